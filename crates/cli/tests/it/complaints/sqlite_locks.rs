//! 13: "database is locked".

use std::process::Child;

use super::fixture::StoreFixture;
use crate::support::{ChildGuard, CliOutput, TIMEOUT, TestDir, eventually, pick_size, stretch};

/// Processes that send, and processes that work.
const SENDERS: u64 = 5;
const WORKERS: usize = 3;

#[test]
fn complaint_13_eight_processes_write_one_file_and_nobody_finds_it_locked() {
    let StoreFixture { dir, .. } = StoreFixture::sqlite();
    let each: u64 = pick_size(1_000, 20_000);
    dir.write("lines", (0..each).map(|n| format!("{{\"n\":{n},\"ms\":0}}\n")).collect::<String>());
    let args = ["worker", "--slots", "4", "--chaos-log", "runs"];
    let mut workers: Vec<ChildGuard> = (0..WORKERS).map(|_| dir.start(&args)).collect();
    let senders: Vec<Child> = (0..SENDERS).map(|nth| start_sender(&dir, nth)).collect();
    for sender in senders {
        let run = CliOutput::of(sender).ok();
        assert_not_locked(&format!("{}{}", run.out, run.err));
    }
    let all = SENDERS * each;
    let done = || dir.queue()["counts"]["done"].as_u64().unwrap() == all;
    eventually(stretch(TIMEOUT * 3), || done().then_some(()));
    for worker in &mut workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(TIMEOUT), 0);
    }
    assert_not_locked(&dir.read("stderr"));
    assert_eq!(dir.read("runs").lines().count() as u64, all, "each ran once");
    dir.run(&["verify"]).ok();
}

/// Sends a batch in many small transactions.
fn start_sender(dir: &TestDir, nth: u64) -> Child {
    let batch = format!("batch-{nth}");
    let args = ["submit", "chaos", "--lines", "lines", "--batch", &batch, "--chunk", "10"];
    dir.command(&args).spawn().unwrap()
}

#[track_caller]
fn assert_not_locked(output: &str) {
    let output = output.to_lowercase();
    assert!(!output.contains("locked") && !output.contains("busy"), "{output}");
}
