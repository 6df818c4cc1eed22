//! Schedules as users and scripts see them: added, listed, fired by real workers.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{ChildGuard, TIMEOUT, TestDir, eventually, stretch};

const NOOP_PAYLOAD: &str = r#"{"argv":["true"]}"#;

fn schedule(dir: &TestDir, name: &str) -> Value {
    dir.run(&["cron", "show", name, "--json"]).ok().json()
}

/// Adds a schedule of kind `exec` that does nothing.
fn add_schedule(dir: &TestDir, name: &str, cron: &str, more: &[&str]) {
    let args = ["cron", "add", name, "--cron", cron, "--kind", "exec", "--payload", NOOP_PAYLOAD];
    dir.run(&[&args[..], more].concat()).ok();
}

/// The dedup keys, each with its time, of all units that schedule `name` sent.
fn fired_keys(dir: &TestDir, name: &str) -> Vec<String> {
    let list = ["unit", "list", "--kind", "exec", "--limit", "10000", "--json"];
    let units = dir.run(&list).ok().json();
    let key = |unit: &Value| unit["key"].as_str().unwrap_or_default().to_owned();
    let mut keys: Vec<String> = units.as_array().unwrap().iter().map(key).collect();
    keys.retain(|key| key.starts_with(&format!("cron:{name}-")));
    keys.sort();
    keys
}

#[test]
fn a_schedule_is_added_shown_steered_and_removed() {
    let dir = TestDir::new();
    add_schedule(&dir, "s", "0 2 * * *", &["--tz", "Europe/Berlin", "--missed", "all:3"]);
    let found = schedule(&dir, "s");
    assert_eq!((&found["cron"], &found["zone"]), (&json!("0 2 * * *"), &json!("Europe/Berlin")));
    assert_eq!((&found["missed"], &found["overlap"]), (&json!({ "all": 3 }), &json!("skip")));
    assert_eq!(found["template"]["payload"]["argv"][0], "true");
    let list = dir.run(&["cron", "list", "--json"]).ok().json();
    assert_eq!(list[0]["name"], "s");
    dir.run(&["cron", "pause", "s"]).ok();
    assert_eq!(schedule(&dir, "s")["paused"], true);
    dir.run(&["cron", "resume", "s"]).ok();
    assert_eq!(schedule(&dir, "s")["paused"], false);
    dir.run(&["cron", "remove", "s"]).ok();
    dir.run(&["cron", "show", "s"]).ends(1).says("there is no schedule `s`");
}

#[test]
fn adding_the_same_again_is_harmless_and_another_needs_replace() {
    let dir = TestDir::new();
    add_schedule(&dir, "s", "0 2 * * *", &[]);
    add_schedule(&dir, "s", "0 2 * * *", &[]);
    let other = ["cron", "add", "s", "--cron", "0 3 * * *", "--kind", "exec", "--payload", NOOP_PAYLOAD];
    dir.run(&other).ends(2).says("--replace");
    dir.run(&[&other[..], &["--replace"]].concat()).ok();
    assert_eq!(schedule(&dir, "s")["cron"], "0 3 * * *");
}

#[test]
fn what_cannot_be_meant_is_explained() {
    let dir = TestDir::new();
    let try_add = |cron: &str, zone: &str| {
        let args = ["cron", "add", "s", "--cron", cron, "--tz", zone];
        dir.run(&[&args[..], &["--kind", "exec", "--payload", NOOP_PAYLOAD]].concat()).ends(2)
    };
    try_add("0 25 * * *", "UTC").says("hour `25` (at character 3)");
    try_add("0 2 * *", "UTC").says("this one has 4");
    try_add("61 0 2 * * *", "UTC").says("with six fields the first is the second");
    try_add("0 0 30 2 *", "UTC").says("never fires");
    try_add("0 2 * * *", "Europe/Berln").says("did you mean `Europe/Berlin`?");
    let missed = ["cron", "add", "s", "--cron", "@daily", "--missed", "never", "--batch", "b"];
    dir.run(&missed).ends(2).says("all:LIMIT");
    let no_file = ["cron", "add", "s", "--cron", "@daily", "--batch", "nowhere.toml"];
    dir.run(&no_file).ends(1).says("nowhere.toml");
    dir.run(&["cron", "add", "s", "--cron", "@daily"]).ends(2).says("--kind");
    assert_eq!(dir.run(&["cron", "list", "--json"]).ok().json(), json!([]));
}

#[test]
fn the_coming_times_are_shown_in_their_zone() {
    let dir = TestDir::new();
    let try_out = ["cron", "next", "--cron", "30 9 * * *", "--tz", "Asia/Tokyo", "-n", "3"];
    let times = dir.run(&[&try_out[..], &["--json"]].concat()).ok().json();
    let times = times.as_array().unwrap();
    assert_eq!(times.len(), 3);
    for time in times {
        assert!(time["local"].as_str().unwrap().ends_with("T09:30:00+09:00"), "{time}");
        assert!(time["at"].as_str().unwrap().ends_with("T00:30:00Z"), "{time}");
    }
    add_schedule(&dir, "s", "@yearly", &[]);
    assert_eq!(dir.run(&["cron", "next", "s", "--json"]).ok().json().as_array().unwrap().len(), 5);
}

#[test]
fn a_schedule_fires_by_hand_beside_its_own_times() {
    let dir = TestDir::new();
    add_schedule(&dir, "s", "0 2 * * *", &["--priority", "high"]);
    let before = schedule(&dir, "s");
    let unit = dir.run(&["cron", "fire", "s"]).ok().out;
    dir.work();
    let unit = dir.unit(unit.trim());
    assert_eq!((&unit["state"], &unit["priority"]), (&json!("done"), &json!(1)));
    let after = schedule(&dir, "s");
    assert_eq!((&after["fired"], &after["next_fire"]), (&json!(1), &before["next_fire"]));
}

#[test]
fn a_tenants_schedules_are_its_own() {
    let dir = TestDir::new();
    add_schedule(&dir, "s", "@daily", &["--tenant", "acme"]);
    dir.run(&["cron", "show", "s"]).ends(1);
    let unit = dir.run(&["cron", "fire", "s", "--tenant", "acme"]).ok().out;
    assert_eq!(dir.unit(unit.trim())["tenant"], "acme");
    let others = dir.run(&["cron", "list", "--tenant", "other", "--json"]).ok().json();
    assert_eq!(others, json!([]));
}

/// Two workers, one of them elected; SIGKILL hits both in turn.
#[test]
fn each_time_fires_once_whoever_is_killed() {
    let dir = TestDir::new();
    add_schedule(&dir, "s", "* * * * * *", &["--missed", "all", "--overlap", "allow"]);
    let start = || dir.start(&["worker", "--slots", "2", "--ttl", "2s"]);
    let mut workers: [ChildGuard; 2] = [start(), start()];
    let fired = || schedule(&dir, "s")["fired"].as_u64().unwrap();
    let reaches = |count| {
        eventually(stretch(Duration::from_secs(60)), || (fired() >= count).then_some(()));
    };
    for kill in 0..4 {
        reaches(fired() + 2);
        workers[kill % 2].kill();
        workers[kill % 2] = start();
    }
    reaches(fired() + 3);
    dir.run(&["cron", "pause", "s"]).ok();
    let keys = fired_keys(&dir, "s");
    let distinct: BTreeSet<&String> = keys.iter().collect();
    let after = schedule(&dir, "s");
    assert_eq!(distinct.len(), keys.len(), "no time twice");
    assert_eq!(after["fired"], keys.len(), "a unit for each firing");
    assert_eq!((&after["missed_times"], &after["skipped"]), (&json!(0), &json!(0)));
    assert_eq!(key_seconds(keys.last().unwrap()) - key_seconds(&keys[0]) + 1, keys.len() as i64, "no gap");
    let settled = || {
        let counts = &dir.queue()["counts"];
        let live = ["ready", "leased", "scheduled"].map(|name| counts[name].as_u64().unwrap());
        (live == [0, 0, 0]).then_some(())
    };
    eventually(stretch(Duration::from_secs(60)), settled);
    for worker in &mut workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(TIMEOUT), 0);
    }
    dir.run(&["verify"]).ok();
}

/// The time in a key, in seconds.
fn key_seconds(key: &str) -> i64 {
    let stamp = key.rsplit('-').next().unwrap();
    let time = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", stamp).unwrap();
    time.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp().as_second()
}

/// A test directory with the example `arithmetic` as `sums`.
fn dir_with_batch_file() -> TestDir {
    let dir = TestDir::new();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/arithmetic");
    std::fs::create_dir(dir.path("sums")).unwrap();
    for name in ["batch.toml", "adder.toml", "seed.sql"] {
        std::fs::copy(from.join(name), dir.path("sums").join(name)).unwrap();
    }
    dir
}

#[test]
fn a_batch_file_is_started_once_per_firing() {
    let dir = dir_with_batch_file();
    let add = ["cron", "add", "sums", "--cron", "0 2 * * *", "--batch", "sums/batch.toml"];
    dir.run(&add).ok();
    let unit = dir.run(&["cron", "fire", "sums"]).ok().out;
    dir.work();
    let unit = dir.unit(unit.trim());
    assert_eq!(unit["state"], "done", "{unit}");
    let name = unit["result"]["batch"].as_str().unwrap();
    assert!(name.starts_with("sums-20"), "{name}");
    let batch = dir.batch(name);
    assert_eq!((&batch["status"], &batch["done"]), (&json!("complete"), &json!(5)));

    // Resubmit the unit's payload, as a repeated run would have it.
    let payload = unit["payload"].to_string();
    let again = dir.run(&["submit", "batch.start", &payload]).ok().out;
    dir.work();
    assert_eq!(dir.unit(again.trim())["result"]["batch"], name);
    assert_eq!(dir.run(&["batch", "list", "--json"]).ok().json().as_array().unwrap().len(), 1);
}

#[test]
fn a_batch_file_that_is_gone_fails_its_unit_with_the_reason() {
    let dir = dir_with_batch_file();
    let add = ["cron", "add", "sums", "--cron", "@daily", "--batch", "sums", "--max-attempts", "1"];
    dir.run(&add).ok();
    std::fs::remove_file(dir.path("sums/batch.toml")).unwrap();
    let unit = dir.run(&["cron", "fire", "sums"]).ok().out;
    dir.work();
    let unit = dir.unit(unit.trim());
    assert_eq!(unit["state"], "failed");
    assert!(unit["failure"]["message"].as_str().unwrap().contains("sums"), "{unit}");
}
