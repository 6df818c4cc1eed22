//! 14: memory that grows with finished or with sent units.

use std::io::Write;
use std::process::Stdio;

use serde_json::json;

use super::fixture::{StoreFixture, on_both_stores};
use crate::support::{ChildGuard, TIMEOUT, TestDir, eventually, pick_size, stretch};

/// Bytes per payload, large enough that retained units would show.
const PAYLOAD_BYTES: usize = 16_000;
/// How much a process may grow between a third of the units, when caches are full, and the end.
const MAX_GROWTH: u64 = 16 * 1024 * 1024;

#[test]
fn complaint_14_memory_grows_neither_with_what_was_done_nor_with_what_is_sent() {
    on_both_stores(|fixture| {
        let all = pick_size(5_000, 30_000);
        assert!(
            all * 2 / 3 * PAYLOAD_BYTES as u64 >= 3 * MAX_GROWTH,
            "retained payloads would exceed the margin"
        );
        let sent = sender_peaks(fixture, all);
        assert!(sent[1] <= sent[0] + MAX_GROWTH, "{}: a sender's bytes: {sent:?}", fixture.name());
        let worked = worker_peaks(fixture, all);
        assert!(worked[1] <= worked[0] + MAX_GROWTH, "{}: a worker's bytes: {worked:?}", fixture.name());
    });
}

/// A process's peak memory so far, in bytes.
fn peak_memory(process: &ChildGuard) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn units_in_state(dir: &TestDir, state: &str) -> u64 {
    let queues = dir.run(&["queue", "show", "default", "--json"]);
    if queues.code == 0 { queues.json()[0]["counts"][state].as_u64().unwrap() } else { 0 }
}

/// Sends a batch from a stream that stays open: the sender's peak after a third of it, and after all.
fn sender_peaks(fixture: &StoreFixture, all: u64) -> [u64; 2] {
    let dir = &fixture.dir;
    let pad = "x".repeat(PAYLOAD_BYTES);
    let args = ["submit", "chaos", "--lines", "-", "--batch", "b", "--chunk", "100"];
    let mut sender = ChildGuard(dir.command(&args).stdin(Stdio::piped()).spawn().unwrap());
    let mut pipe = sender.0.stdin.take().unwrap();
    let mut peaks = [0; 2];
    for (part, slot) in [0..all / 3, all / 3..all].into_iter().zip(&mut peaks) {
        let wanted = part.end - 200;
        for n in part {
            let line = json!({ "n": n, "ms": 0, "pad": pad });
            writeln!(pipe, "{line}").unwrap();
        }
        pipe.flush().unwrap();
        eventually(stretch(TIMEOUT * 3), || (units_in_state(dir, "ready") >= wanted).then_some(()));
        *slot = peak_memory(&sender);
    }
    drop(pipe);
    assert_eq!(sender.ends_within(stretch(TIMEOUT)), 0);
    peaks
}

/// One worker runs all units: its peak after a third of them, and after all.
fn worker_peaks(fixture: &StoreFixture, all: u64) -> [u64; 2] {
    let dir = &fixture.dir;
    let mut worker = dir.start(&["worker", "--slots", "8", "--chaos-log", "runs"]);
    let peaks = [all / 3, all].map(|wanted| {
        let ran = || dir.read("runs").lines().count() as u64;
        eventually(stretch(TIMEOUT * 3), || (ran() >= wanted).then_some(()));
        peak_memory(&worker)
    });
    worker.signal("TERM");
    assert_eq!(worker.ends_within(stretch(TIMEOUT)), 0);
    peaks
}
