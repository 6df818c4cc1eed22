//! `drain_is_clean`: what a worker does when it is told to stop.

use serde_json::json;

use crate::support::{TIMEOUT, TestDir, eventually};

#[test]
fn drain_is_clean() {
    let dir = TestDir::new();
    let running = dir.submit_script("echo > started; sleep 1; echo > finished", &[]);
    let waiting = dir.submit_script("true", &[]);
    let mut worker = dir.start(&["worker", "--slots", "1"]);
    eventually(TIMEOUT, || dir.path("started").exists().then_some(()));
    worker.signal("TERM");
    assert_eq!(worker.ends_within(TIMEOUT), 0);
    assert!(dir.path("finished").exists(), "what ran was finished");
    assert_eq!(dir.unit(&running)["state"], "done");
    assert_eq!(dir.unit(&waiting)["state"], "ready");
    assert_eq!(dir.queue()["counts"]["leased"], 0);
    assert_eq!(dir.run(&["workers", "--json"]).ok().json(), json!([]));
    dir.run(&["verify"]).ok();
}

#[test]
fn a_second_signal_interrupts_and_uses_no_attempt() {
    let dir = TestDir::new();
    let id = dir.submit_script("echo $$ > pid; sleep 600; true", &[]);
    let mut worker = dir.start(&["worker", "--slots", "1"]);
    eventually(TIMEOUT, || dir.read("pid").ends_with('\n').then_some(()));
    worker.signal("INT");
    // The first signal must be handled before the second, or the two become one.
    eventually(TIMEOUT, || dir.read("stderr").contains("draining").then_some(()));
    worker.signal("INT");
    assert_eq!(worker.ends_within(TIMEOUT), 130);
    let unit = dir.unit(&id);
    assert_eq!((&unit["state"], &unit["attempt"]), (&json!("ready"), &json!(0)), "{unit}");
    assert!(!crate::support::is_alive(dir.read("pid").trim()));
}

#[test]
fn a_drain_that_takes_too_long_is_cut_short() {
    let dir = TestDir::new();
    let id = dir.submit_script("echo > started; sleep 600; true", &[]);
    let mut worker = dir.start(&["worker", "--slots", "1", "--drain-timeout", "200ms"]);
    eventually(TIMEOUT, || dir.path("started").exists().then_some(()));
    worker.signal("TERM");
    assert_eq!(worker.ends_within(TIMEOUT), 130);
    assert_eq!(dir.unit(&id)["state"], "ready");
}
