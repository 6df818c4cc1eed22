//! When a script is accepted and when it runs: room, delays, deadlines, keys.

use std::time::{Duration, Instant};

use longshore::time::{Clock, SystemClock, Timestamp};

use super::fixture::PoolFixture;
use crate::support::{TIMEOUT, eventually};

/// A script that runs until the file `go` exists.
const HELD_SCRIPT: &str = "echo >> runs; until [ -e go ]; do sleep 0.05; done";

fn start_pool() -> PoolFixture {
    PoolFixture::start(&["--workers", "1", "--nthr", "1"])
}

#[test]
fn a_full_pool_refuses_scripts_with_code_five_and_takes_them_once_there_is_room() {
    let pool = start_pool();
    pool.run_on_store(&["queue", "set", "default", "--max-units", "2"]).ok();
    pool.submit("held.sh", HELD_SCRIPT, &[]);
    pool.submit("held.sh", HELD_SCRIPT, &[]);
    let submit = |more: &[&str]| pool.run(&[&["submit", "--script", "held.sh"], more].concat());
    submit(&[]).ends(5).says("queue is full").says("hint:");
    submit(&["--wait-room", "100ms"]).ends(5).says("queue is full");
    submit(&["--array", "1-2", "--no-wait"]).ends(5).says("queue is full");
    pool.dir.write("go", "");
    submit(&["--wait-room", "60s", "--wait"]).ok();
    pool.wait_until_idle();
    pool.stop();
}

#[test]
fn a_script_waits_for_its_time() {
    let pool = start_pool();
    let before = SystemClock.now();
    let (code, view) = pool.wait_for("job.sh", "true", &["--delay", "1s"]);
    assert_eq!(code, 0, "{view}");
    let started = Timestamp::from_micros(view["report"]["started"].as_i64().unwrap());
    assert!(started >= before + Duration::from_secs(1), "{view}");
    let far = pool.unit("far.sh", "touch ran", &["--at", "2100-01-01T00:00:00Z"]);
    pool.submit("far.sh", "touch ran", &["--delay", "1h", "--array", "1-3"]);
    assert_eq!(pool.status()["later"], 4);
    let dir = pool.dir.path("pool");
    pool.run(&["unit", "retry", &far, "--dir", dir.to_str().unwrap()]).ok();
    let status = pool.wait_for_status(|status| status["done"] == 2);
    assert_eq!(status["later"], 3);
    pool.stop();
}

#[test]
fn a_script_that_is_not_done_by_its_deadline_fails_whether_it_runs_or_waits() {
    let pool = start_pool();
    let (code, view) = pool.wait_for("long.sh", "sleep 1000", &["--deadline", "5s"]);
    assert_eq!((code, &view["failure"]["code"]), (3, &"timeout".into()), "{view}");
    pool.submit("held.sh", HELD_SCRIPT, &[]);
    pool.wait_for_lines("runs", 1);
    // These wait behind the held script, whether or not they are claimed or assigned to the worker.
    pool.submit("late.sh", "echo >> late", &["--deadline", "500ms", "--array", "1-20"]);
    let over = Instant::now() + Duration::from_millis(500);
    eventually(TIMEOUT, || (Instant::now() > over).then_some(()));
    pool.dir.write("go", "");
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&1.into(), &21.into()));
    assert!(!pool.dir.path("late").exists(), "none of them has run");
    pool.stop();
}

#[test]
fn a_script_is_recognised_by_its_key_and_an_array_by_its_name() {
    let pool = start_pool();
    let first = pool.submit("held.sh", HELD_SCRIPT, &["--key", "nightly"]);
    assert_eq!(first["status"], "created");
    let again = pool.submit("held.sh", HELD_SCRIPT, &["--key", "nightly"]);
    assert_eq!((&again["unit"], &again["status"]), (&first["unit"], &"existing".into()));
    let submit = |more: &[&str]| pool.run(&[&["submit", "--script", "held.sh"], more].concat());
    submit(&["--key", "nightly", "--on-duplicate", "refuse"]).ends(1).says("its key is taken");
    submit(&["--key", "nightly", "--array", "1-3"]).ends(2).says("recognised by its --name");
    pool.dir.write("go", "");
    // `--wait` waits for the existing unit.
    let waited = submit(&["--key", "nightly", "--wait", "--json"]).ok().json();
    assert_eq!(waited["state"], "done");
    // The key is free again once the unit has ended.
    assert_eq!(pool.submit("held.sh", HELD_SCRIPT, &["--key", "nightly"])["status"], "created");
    pool.wait_until_idle();
    pool.stop();
}
