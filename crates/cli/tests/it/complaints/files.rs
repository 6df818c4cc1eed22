//! 13: "database is locked".

use std::process::Child;

use super::kit::Ground;
use crate::support::{Place, Run, Running, SOON, eventually, limit, soaked};

/// Processes that send, and processes that work.
const SENDERS: u64 = 5;
const WORKERS: usize = 3;

#[test]
fn complaint_13_eight_processes_write_one_file_and_nobody_finds_it_locked() {
    let Ground { place, .. } = Ground::sqlite();
    let each: u64 = soaked(1_000, 20_000);
    place
        .write("lines", (0..each).map(|n| format!("{{\"n\":{n},\"ms\":0}}\n")).collect::<String>());
    let args = ["worker", "--slots", "4", "--chaos-log", "runs"];
    let mut workers: Vec<Running> = (0..WORKERS).map(|_| place.start(&args)).collect();
    let senders: Vec<Child> = (0..SENDERS).map(|nth| sender(&place, nth)).collect();
    for sender in senders {
        let run = Run::of(sender).ok();
        assert_not_locked(&format!("{}{}", run.out, run.err));
    }
    let all = SENDERS * each;
    let done = || place.queue()["counts"]["done"].as_u64().unwrap() == all;
    eventually(limit(SOON * 3), || done().then_some(()));
    for worker in &mut workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(SOON), 0);
    }
    assert_not_locked(&place.read("stderr"));
    assert_eq!(place.read("runs").lines().count() as u64, all, "each ran once");
    place.run(&["verify"]).ok();
}

/// Sends a batch in many small transactions.
fn sender(place: &Place, nth: u64) -> Child {
    let batch = format!("batch-{nth}");
    let args = ["submit", "chaos", "--lines", "lines", "--batch", &batch, "--chunk", "10"];
    place.command(&args).spawn().unwrap()
}

#[track_caller]
fn assert_not_locked(said: &str) {
    let said = said.to_lowercase();
    assert!(!said.contains("locked") && !said.contains("busy"), "{said}");
}
