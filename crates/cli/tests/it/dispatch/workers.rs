//! Single workers of a pool: shown, drained, stopped.

use serde_json::Value;

use super::fixture::{POOL_TIMEOUT, PoolFixture};
use crate::support::{eventually, stretch};

fn workers(pool: &PoolFixture) -> Vec<Value> {
    pool.run(&["dispatch", "worker", "list", "--json"]).ok().json().as_array().unwrap().clone()
}

/// The worker that runs a script.
fn holder(pool: &PoolFixture) -> Value {
    eventually(stretch(POOL_TIMEOUT), || {
        workers(pool).into_iter().find(|worker| !worker["running"].as_array().unwrap().is_empty())
    })
}

#[test]
fn a_drained_worker_ends_its_scripts_and_a_stopped_one_hands_them_over() {
    let pool = PoolFixture::start(&["--workers", "2", "--nthr", "1", "--resource", "gpu=1"]);
    let hold = "echo $LONGSHORE_ATTEMPT >> began; until [ -e go ]; do sleep 0.05; done";
    let unit = pool.unit("hold.sh", hold, &["--resource", "gpu=1"]);
    let worker = holder(&pool);
    let uid = worker["uid"].as_str().unwrap();
    let short = &uid[..8];

    let shown = pool.run(&["dispatch", "worker", "info", short, "--json"]).ok().json();
    assert_eq!(shown[0]["running"][0], unit.as_str());
    assert_eq!(shown[0]["resources"]["gpu"], serde_json::json!([1, 0]));
    let text = pool.run(&["dispatch", "worker", "info", short]).ok().out;
    assert!(text.contains("0 of 1 are free") && text.contains(&unit), "{text}");
    pool.run(&["dispatch", "worker", "info", "no-such"]).ends(1).says("no worker of this pool is `no-such`");

    pool.run(&["dispatch", "worker", "drain", short]).ok();
    let is_draining = |status: &Value| {
        status["workers"].as_array().unwrap().iter().any(|one| one["uid"] == uid && one["mood"] == "draining")
    };
    pool.wait_for_status(is_draining);
    // Another worker takes its place; the script was not interrupted.
    pool.wait_for_workers(3);
    assert_eq!(pool.lines("began"), ["1"]);

    pool.run(&["dispatch", "worker", "stop", short]).ok();
    pool.wait_for_lines("began", 2);
    assert_ne!(holder(&pool)["uid"], uid);
    pool.wait_for_workers(2);
    pool.dir.write("go", "");
    let ended = pool.run(&["unit", "wait", &unit, "--json"]).ok().json();
    assert_eq!((&ended["state"], &ended["lost"]), (&"done".into(), &0.into()));
    pool.stop();
}

#[test]
fn all_workers_of_a_host_are_named_by_it() {
    let pool = PoolFixture::start(&["--workers", "2", "--nthr", "1"]);
    let before = pool.worker_pids();
    let host = workers(&pool)[0]["host"].as_str().unwrap().to_owned();
    let drained = pool.run(&["dispatch", "worker", "drain", &host, "--json"]).ok().json();
    assert_eq!(drained.as_array().unwrap().len(), 2);
    pool.wait_for_status(|status| {
        let now = status["workers"].as_array().unwrap();
        let is_new = |one: &&Value| !before.iter().any(|pid| one["pid"] == *pid);
        now.len() == 2 && now.iter().filter(is_new).count() == 2
    });
    pool.stop();
}
