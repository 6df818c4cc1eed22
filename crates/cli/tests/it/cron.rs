//! Schedules as people and scripts meet them: added, listed, fired by real workers.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Place, Running, SOON, eventually, limit};

const TRUE: &str = r#"{"argv":["true"]}"#;

fn schedule(place: &Place, name: &str) -> Value {
    place.run(&["cron", "show", name, "--json"]).ok().json()
}

/// Adds a schedule of kind `exec` that does nothing.
fn add(place: &Place, name: &str, cron: &str, more: &[&str]) {
    let args = ["cron", "add", name, "--cron", cron, "--kind", "exec", "--payload", TRUE];
    place.run(&[&args[..], more].concat()).ok();
}

/// The keys of everything that schedule `name` sent, each with its time.
fn keys(place: &Place, name: &str) -> Vec<String> {
    let list = ["unit", "list", "--kind", "exec", "--limit", "10000", "--json"];
    let units = place.run(&list).ok().json();
    let key = |unit: &Value| unit["key"].as_str().unwrap_or_default().to_owned();
    let mut keys: Vec<String> = units.as_array().unwrap().iter().map(key).collect();
    keys.retain(|key| key.starts_with(&format!("cron:{name}-")));
    keys.sort();
    keys
}

#[test]
fn a_schedule_is_added_shown_steered_and_removed() {
    let place = Place::new();
    add(&place, "s", "0 2 * * *", &["--tz", "Europe/Berlin", "--missed", "all:3"]);
    let found = schedule(&place, "s");
    assert_eq!((&found["cron"], &found["zone"]), (&json!("0 2 * * *"), &json!("Europe/Berlin")));
    assert_eq!((&found["missed"], &found["overlap"]), (&json!({ "all": 3 }), &json!("skip")));
    assert_eq!(found["template"]["payload"]["argv"][0], "true");
    let list = place.run(&["cron", "list", "--json"]).ok().json();
    assert_eq!(list[0]["name"], "s");
    place.run(&["cron", "pause", "s"]).ok();
    assert_eq!(schedule(&place, "s")["paused"], true);
    place.run(&["cron", "resume", "s"]).ok();
    assert_eq!(schedule(&place, "s")["paused"], false);
    place.run(&["cron", "remove", "s"]).ok();
    place.run(&["cron", "show", "s"]).ends(1).says("there is no schedule `s`");
}

#[test]
fn adding_the_same_again_is_harmless_and_another_needs_replace() {
    let place = Place::new();
    add(&place, "s", "0 2 * * *", &[]);
    add(&place, "s", "0 2 * * *", &[]);
    let other = ["cron", "add", "s", "--cron", "0 3 * * *", "--kind", "exec", "--payload", TRUE];
    place.run(&other).ends(2).says("--replace");
    place.run(&[&other[..], &["--replace"]].concat()).ok();
    assert_eq!(schedule(&place, "s")["cron"], "0 3 * * *");
}

#[test]
fn what_cannot_be_meant_is_explained() {
    let place = Place::new();
    let try_add = |cron: &str, zone: &str| {
        let args = ["cron", "add", "s", "--cron", cron, "--tz", zone];
        place.run(&[&args[..], &["--kind", "exec", "--payload", TRUE]].concat()).ends(2)
    };
    try_add("0 25 * * *", "UTC").says("hour `25` (at character 3)");
    try_add("0 2 * *", "UTC").says("this one has 4");
    try_add("61 0 2 * * *", "UTC").says("with six fields the first is the second");
    try_add("0 0 30 2 *", "UTC").says("never fires");
    try_add("0 2 * * *", "Europe/Berln").says("did you mean `Europe/Berlin`?");
    let missed = ["cron", "add", "s", "--cron", "@daily", "--missed", "never", "--batch", "b"];
    place.run(&missed).ends(2).says("all:LIMIT");
    let no_file = ["cron", "add", "s", "--cron", "@daily", "--batch", "nowhere.toml"];
    place.run(&no_file).ends(1).says("nowhere.toml");
    place.run(&["cron", "add", "s", "--cron", "@daily"]).ends(2).says("--kind");
    assert_eq!(place.run(&["cron", "list", "--json"]).ok().json(), json!([]));
}

#[test]
fn the_coming_times_are_shown_in_their_zone() {
    let place = Place::new();
    let try_out = ["cron", "next", "--cron", "30 9 * * *", "--tz", "Asia/Tokyo", "-n", "3"];
    let times = place.run(&[&try_out[..], &["--json"]].concat()).ok().json();
    let times = times.as_array().unwrap();
    assert_eq!(times.len(), 3);
    for time in times {
        assert!(time["local"].as_str().unwrap().ends_with("T09:30:00+09:00"), "{time}");
        assert!(time["at"].as_str().unwrap().ends_with("T00:30:00Z"), "{time}");
    }
    add(&place, "s", "@yearly", &[]);
    assert_eq!(
        place.run(&["cron", "next", "s", "--json"]).ok().json().as_array().unwrap().len(),
        5
    );
}

#[test]
fn a_schedule_fires_by_hand_beside_its_own_times() {
    let place = Place::new();
    add(&place, "s", "0 2 * * *", &["--priority", "high"]);
    let before = schedule(&place, "s");
    let unit = place.run(&["cron", "fire", "s"]).ok().out;
    place.work();
    let unit = place.unit(unit.trim());
    assert_eq!((&unit["state"], &unit["priority"]), (&json!("done"), &json!(1)));
    let after = schedule(&place, "s");
    assert_eq!((&after["fired"], &after["next_fire"]), (&json!(1), &before["next_fire"]));
}

#[test]
fn a_tenants_schedules_are_its_own() {
    let place = Place::new();
    add(&place, "s", "@daily", &["--tenant", "acme"]);
    place.run(&["cron", "show", "s"]).ends(1);
    let unit = place.run(&["cron", "fire", "s", "--tenant", "acme"]).ok().out;
    assert_eq!(place.unit(unit.trim())["tenant"], "acme");
    let others = place.run(&["cron", "list", "--tenant", "other", "--json"]).ok().json();
    assert_eq!(others, json!([]));
}

/// Two workers, of which one leads; kill -9 hits both in turn.
#[test]
fn each_time_fires_once_whoever_is_killed() {
    let place = Place::new();
    add(&place, "s", "* * * * * *", &["--missed", "all", "--overlap", "allow"]);
    let start = || place.start(&["worker", "--slots", "2", "--ttl", "2s"]);
    let mut workers: [Running; 2] = [start(), start()];
    let fired = || schedule(&place, "s")["fired"].as_u64().unwrap();
    let reaches = |count| {
        eventually(limit(Duration::from_secs(60)), || (fired() >= count).then_some(()));
    };
    for kill in 0..4 {
        reaches(fired() + 2);
        workers[kill % 2].kill();
        workers[kill % 2] = start();
    }
    reaches(fired() + 3);
    place.run(&["cron", "pause", "s"]).ok();
    let keys = keys(&place, "s");
    let distinct: BTreeSet<&String> = keys.iter().collect();
    let after = schedule(&place, "s");
    assert_eq!(distinct.len(), keys.len(), "no time twice");
    assert_eq!(after["fired"], keys.len(), "a unit for each firing");
    assert_eq!((&after["missed_times"], &after["skipped"]), (&json!(0), &json!(0)));
    assert_eq!(seconds(keys.last().unwrap()) - seconds(&keys[0]) + 1, keys.len() as i64, "no gap");
    let settled = || {
        let counts = &place.queue()["counts"];
        let live = ["ready", "leased", "scheduled"].map(|name| counts[name].as_u64().unwrap());
        (live == [0, 0, 0]).then_some(())
    };
    eventually(limit(Duration::from_secs(60)), settled);
    for worker in &mut workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(SOON), 0);
    }
    place.run(&["verify"]).ok();
}

/// The time in a key, in seconds.
fn seconds(key: &str) -> i64 {
    let stamp = key.rsplit('-').next().unwrap();
    let time = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", stamp).unwrap();
    time.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp().as_second()
}

/// The example `arithmetic`, in a folder of its own.
fn with_batch_file() -> Place {
    let place = Place::new();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/arithmetic");
    std::fs::create_dir(place.path("sums")).unwrap();
    for name in ["batch.toml", "adder.toml", "seed.sql"] {
        std::fs::copy(from.join(name), place.path("sums").join(name)).unwrap();
    }
    place
}

#[test]
fn a_batch_file_is_started_once_per_firing() {
    let place = with_batch_file();
    let add = ["cron", "add", "sums", "--cron", "0 2 * * *", "--batch", "sums/batch.toml"];
    place.run(&add).ok();
    let unit = place.run(&["cron", "fire", "sums"]).ok().out;
    place.work();
    let unit = place.unit(unit.trim());
    assert_eq!(unit["state"], "done", "{unit}");
    let name = unit["result"]["batch"].as_str().unwrap();
    assert!(name.starts_with("sums-20"), "{name}");
    let batch = place.batch(name);
    assert_eq!((&batch["status"], &batch["done"]), (&json!("complete"), &json!(5)));

    // The same unit's payload again, as a run that was repeated would have it.
    let payload = unit["payload"].to_string();
    let again = place.run(&["submit", "batch.start", &payload]).ok().out;
    place.work();
    assert_eq!(place.unit(again.trim())["result"]["batch"], name);
    assert_eq!(place.run(&["batch", "list", "--json"]).ok().json().as_array().unwrap().len(), 1);
}

#[test]
fn a_batch_file_that_is_gone_fails_its_unit_with_the_reason() {
    let place = with_batch_file();
    let add = ["cron", "add", "sums", "--cron", "@daily", "--batch", "sums", "--max-attempts", "1"];
    place.run(&add).ok();
    std::fs::remove_file(place.path("sums/batch.toml")).unwrap();
    let unit = place.run(&["cron", "fire", "sums"]).ok().out;
    place.work();
    let unit = place.unit(unit.trim());
    assert_eq!(unit["state"], "failed");
    assert!(unit["failure"]["message"].as_str().unwrap().contains("sums"), "{unit}");
}
