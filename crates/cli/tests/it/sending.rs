//! What a sender may ask for: how long a key is taken, what a dependency's failure means, and
//! resources.

use serde_json::json;

use crate::support::{Place, SOON, eventually};

#[test]
fn a_key_is_taken_while_its_unit_lives_or_while_it_is_kept() {
    let place = Place::new();
    let send = |key: &str, window: &str| {
        let first = place.submit_script("true", &["--key", key, "--window", window]);
        place.work();
        (place.submit_script("true", &["--key", key, "--window", window]), first)
    };
    let (again, first) = send("a", "live");
    assert_ne!(again, first, "it had ended, and another may begin");
    let (again, first) = send("b", "kept");
    assert_eq!(again, first, "it has ended, and is remembered");
}

#[test]
fn a_unit_is_cancelled_or_released_when_one_it_waits_for_fails() {
    let place = Place::new();
    let fails = place.submit_script("false", &[]);
    let after = ["--after", &fails];
    let release = [&after[..], &["--on-dependency-failure", "release"]].concat();
    let (cancelled, released) =
        (place.submit_script("true", &after), place.submit_script("true", &release));
    place.work();
    let unit = place.unit(&cancelled);
    assert_eq!(
        (&unit["state"], &unit["failure"]["code"]),
        (&json!("cancelled"), &json!("dependency"))
    );
    assert_eq!(place.unit(&released)["state"], "done");
}

#[test]
fn units_share_the_resources_of_their_worker_and_wait_for_one_that_has_them() {
    let place = Place::new();
    // Whoever finds the other's directory runs beside it.
    let script = "mkdir taken && sleep 0.2 && rmdir taken";
    let units: Vec<String> =
        (0..3).map(|_| place.submit_script(script, &["--resource", "gpu=2"])).collect();
    let plain = place.submit_script("true", &[]);
    let mut without = place.start(&["worker", "--slots", "4", "--resource", "gpu=1"]);
    eventually(SOON, || (place.unit(&plain)["state"] == "done").then_some(()));
    for unit in &units {
        assert_eq!(place.unit(unit)["state"], "ready", "that worker has too little for it");
    }
    without.kill();
    place.run(&["worker", "--slots", "4", "--resource", "gpu=3", "--until-idle"]).ok();
    for unit in &units {
        assert_eq!(place.unit(unit)["state"], "done", "{}", place.unit(unit));
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new();
    for (args, words) in [
        (&["submit", "exec", "1", "--window", "kept"][..], "--key"),
        (&["submit", "exec", "1", "--on-dependency-failure", "release"], "--after"),
        (&["submit", "exec", "1", "--resource", "gpu"], "`gpu` is not a resource as gpu=2"),
        (&["submit", "exec", "1", "--resource", "a=1", "--resource", "a=2"], "given twice"),
        (&["worker", "--resource", "a=0"], "whole number from 1"),
        (&["worker", "--resource", "a=1", "--resource", "a=1"], "given twice"),
    ] {
        place.run(args).ends(2).says(words);
    }
    place.run(&["worker", "--ttl", "900ms"]).ends(1).says("at least 1 s");
}
