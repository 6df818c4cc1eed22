//! SIGKILL to real processes: nothing is lost, nothing is counted twice.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use crate::support::{Place, Running, eventually};

const UNITS: u64 = 2000;
const WORKERS: usize = 3;
const SLOTS: u64 = 8;

/// `no_unit_lost` and `tally_is_exact`, with `exec` units that append to a file.
#[test]
fn no_unit_lost_and_tally_is_exact_under_kill() {
    let place = Place::new();
    let lines: String = (0..UNITS).map(|n| append(n) + "\n").collect();
    place.run_with(&["submit", "exec", "--lines", "-", "--batch", "b"], lines).ok();
    let slots = SLOTS.to_string();
    let start = || place.start(&["worker", "--slots", &slots, "--ttl", "2s"]);
    let mut workers: Vec<Running> = (0..WORKERS).map(|_| start()).collect();
    let finished = || {
        let batch = place.batch("b");
        batch["done"].as_u64().unwrap() + batch["failed"].as_u64().unwrap()
    };
    let mut kills = 0;
    for step in 1..=10 {
        eventually(Duration::from_secs(60), || (finished() >= step * UNITS / 12).then_some(()));
        let victim = usize::try_from(step * 7 % WORKERS as u64).unwrap();
        workers[victim].kill();
        workers[victim] = start();
        kills += 1;
    }
    eventually(Duration::from_secs(120), || (finished() == UNITS).then_some(()));
    for worker in &mut workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(Duration::from_secs(20)), 0);
    }
    let batch = place.batch("b");
    assert_eq!(batch["done"], UNITS, "{batch}");
    assert_eq!(batch["status"], "complete");
    assert_eq!(place.queue()["counts"]["leased"], 0);
    let runs = runs(&place);
    assert_eq!(runs.len() as u64, UNITS, "every unit ran");
    let repeats: u64 = runs.values().map(|times| times - 1).sum();
    assert!(repeats <= kills * 2 * SLOTS, "{repeats} repeats after {kills} kills");
    place.run(&["verify"]).ok();
}

fn append(n: u64) -> String {
    serde_json::json!({ "argv": ["sh", "-c", format!("echo {n} >> runs")] }).to_string()
}

fn runs(place: &Place) -> BTreeMap<u64, u64> {
    let mut runs = BTreeMap::new();
    for line in place.read("runs").lines() {
        *runs.entry(line.parse().unwrap()).or_default() += 1;
    }
    runs
}

#[test]
fn a_killed_submit_goes_on_without_gap_or_repeat() {
    const LINES: u64 = 20_000;
    let place = Place::new();
    let lines: Vec<String> = (0..LINES).map(|n| format!("{{\"n\":{n},\"ms\":0}}\n")).collect();
    let file = place.write("lines", lines.concat());
    let args = ["submit", "chaos", "--lines", "-", "--batch", "b", "--chunk", "100"];
    let total = || {
        let run = place.run(&["batch", "status", "b", "--json"]);
        if run.code == 0 { run.json()["total"].as_u64().unwrap() } else { 0 }
    };
    let mut killed_midway = 0;
    for kill in 1..=5 {
        let mut command = place.command(&args);
        let mut submit = Running(command.stdin(Stdio::piped()).spawn().unwrap());
        let mut pipe = submit.0.stdin.take().unwrap();
        // It gets only part of the input, so it cannot end before the kill.
        let part = usize::try_from(LINES * kill / 6).unwrap();
        let _ = pipe.write_all(lines[..part].concat().as_bytes());
        let before = (part as u64).saturating_sub(300);
        eventually(Duration::from_secs(30), || (total() >= before).then_some(()));
        submit.kill();
        killed_midway += u64::from(total() < LINES);
    }
    assert_eq!(killed_midway, 5);
    let args = ["submit", "chaos", "--lines", file.to_str().unwrap(), "--batch", "b", "--json"];
    let sent = place.run(&args).ok().says("resuming").json();
    assert_eq!(sent["sent"], LINES);
    // The units are run, once each, and leave their numbers in a file.
    place.run(&["worker", "--slots", "32", "--chaos-log", "runs", "--until-idle"]).ok();
    let seen = runs(&place);
    assert_eq!(seen.len() as u64, LINES, "no gap");
    assert!(seen.values().all(|times| *times == 1), "no repeat");
    place.run(&["verify"]).ok();
}
