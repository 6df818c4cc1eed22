//! Options of a sender: how long a key is taken, what a dependency's failure means, and resources.

use serde_json::json;

use crate::support::{TIMEOUT, TestDir, eventually};

#[test]
fn a_key_is_taken_while_its_unit_lives_or_while_it_is_kept() {
    let dir = TestDir::new();
    let send = |key: &str, window: &str| {
        let first = dir.submit_script("true", &["--key", key, "--window", window]);
        dir.work();
        (dir.submit_script("true", &["--key", key, "--window", window]), first)
    };
    let (again, first) = send("a", "live");
    assert_ne!(again, first, "the first unit has ended, so its key is free");
    let (again, first) = send("b", "kept");
    assert_eq!(again, first, "the ended unit keeps its key");
}

#[test]
fn a_unit_is_cancelled_or_released_when_one_it_waits_for_fails() {
    let dir = TestDir::new();
    let fails = dir.submit_script("false", &[]);
    let after = ["--after", &fails];
    let release = [&after[..], &["--on-dependency-failure", "release"]].concat();
    let (cancelled, released) = (dir.submit_script("true", &after), dir.submit_script("true", &release));
    dir.work();
    let unit = dir.unit(&cancelled);
    assert_eq!((&unit["state"], &unit["failure"]["code"]), (&json!("cancelled"), &json!("dependency")));
    assert_eq!(dir.unit(&released)["state"], "done");
}

#[test]
fn units_share_the_resources_of_their_worker_and_wait_for_one_that_has_them() {
    let dir = TestDir::new();
    // `mkdir` fails if another of these units runs concurrently.
    let script = "mkdir taken && sleep 0.2 && rmdir taken";
    let units: Vec<String> = (0..3).map(|_| dir.submit_script(script, &["--resource", "gpu=2"])).collect();
    let plain = dir.submit_script("true", &[]);
    let mut without = dir.start(&["worker", "--slots", "4", "--resource", "gpu=1"]);
    eventually(TIMEOUT, || (dir.unit(&plain)["state"] == "done").then_some(()));
    for unit in &units {
        assert_eq!(dir.unit(unit)["state"], "ready", "the worker lacks resources");
    }
    without.kill();
    dir.run(&["worker", "--slots", "4", "--resource", "gpu=3", "--until-idle"]).ok();
    for unit in &units {
        assert_eq!(dir.unit(unit)["state"], "done", "{}", dir.unit(unit));
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let dir = TestDir::new();
    for (args, words) in [
        (&["submit", "exec", "1", "--window", "kept"][..], "--key"),
        (&["submit", "exec", "1", "--on-dependency-failure", "release"], "--after"),
        (&["submit", "exec", "1", "--resource", "gpu"], "`gpu` is not a resource as gpu=2"),
        (&["submit", "exec", "1", "--resource", "a=1", "--resource", "a=2"], "given twice"),
        (&["worker", "--resource", "a=0"], "a number above 0"),
        (&["worker", "--resource", "a=1", "--resource", "a=1"], "given twice"),
    ] {
        dir.run(args).ends(2).says(words);
    }
    dir.run(&["worker", "--ttl", "900ms"]).ends(1).says("at least 1 s");
}
