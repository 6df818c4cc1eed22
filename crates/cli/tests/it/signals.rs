//! `drain_is_clean`: what a worker does when it is told to stop.

use serde_json::json;

use crate::support::{Place, SOON, eventually};

#[test]
fn drain_is_clean() {
    let place = Place::new();
    let running = place.submit_script("echo > started; sleep 1; echo > finished", &[]);
    let waiting = place.submit_script("true", &[]);
    let mut worker = place.start(&["worker", "--slots", "1"]);
    eventually(SOON, || place.path("started").exists().then_some(()));
    worker.signal("TERM");
    assert_eq!(worker.ends_within(SOON), 0);
    assert!(place.path("finished").exists(), "what ran was finished");
    assert_eq!(place.unit(&running)["state"], "done");
    assert_eq!(place.unit(&waiting)["state"], "ready");
    assert_eq!(place.queue()["counts"]["leased"], 0);
    assert_eq!(place.run(&["workers", "--json"]).ok().json(), json!([]));
    place.run(&["verify"]).ok();
}

#[test]
fn a_second_signal_interrupts_and_uses_no_attempt() {
    let place = Place::new();
    let id = place.submit_script("echo $$ > pid; sleep 600; true", &[]);
    let mut worker = place.start(&["worker", "--slots", "1"]);
    eventually(SOON, || place.read("pid").ends_with('\n').then_some(()));
    worker.signal("INT");
    // The first signal must be handled before the second, or the two become one.
    eventually(SOON, || place.read("stderr").contains("draining").then_some(()));
    worker.signal("INT");
    assert_eq!(worker.ends_within(SOON), 130);
    let unit = place.unit(&id);
    assert_eq!((&unit["state"], &unit["attempt"]), (&json!("ready"), &json!(0)), "{unit}");
    assert!(!crate::support::is_alive(place.read("pid").trim()));
}

#[test]
fn a_drain_that_takes_too_long_is_cut_short() {
    let place = Place::new();
    let id = place.submit_script("echo > started; sleep 600; true", &[]);
    let mut worker = place.start(&["worker", "--slots", "1", "--drain-timeout", "200ms"]);
    eventually(SOON, || place.path("started").exists().then_some(()));
    worker.signal("TERM");
    assert_eq!(worker.ends_within(SOON), 130);
    assert_eq!(place.unit(&id)["state"], "ready");
}
