//! 14: memory that grows with finished or with sent units.

use std::io::Write;
use std::process::Stdio;

use serde_json::json;

use super::kit::{Ground, on_both};
use crate::support::{Place, Running, SOON, eventually, limit, soaked};

/// Bytes per payload, large enough that retained units would show.
const BYTES: usize = 16_000;
/// How much a process may grow between a third of the units, when caches are full, and the end.
const MARGIN: u64 = 16 * 1024 * 1024;

#[test]
fn complaint_14_memory_grows_neither_with_what_was_done_nor_with_what_is_sent() {
    on_both(|ground| {
        let all = soaked(5_000, 30_000);
        assert!(all * 2 / 3 * BYTES as u64 >= 3 * MARGIN, "it would show if they were kept");
        let sent = peak_of_a_sender(ground, all);
        assert!(sent[1] <= sent[0] + MARGIN, "{}: a sender's bytes: {sent:?}", ground.name());
        let worked = peak_of_a_worker(ground, all);
        assert!(worked[1] <= worked[0] + MARGIN, "{}: a worker's bytes: {worked:?}", ground.name());
    });
}

/// A process's peak memory so far, in bytes.
fn peak(process: &Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn count(place: &Place, state: &str) -> u64 {
    let queues = place.run(&["queue", "show", "default", "--json"]);
    if queues.code == 0 { queues.json()[0]["counts"][state].as_u64().unwrap() } else { 0 }
}

/// Sends a batch from a stream that stays open: the sender's peak after a third of it, and after all.
fn peak_of_a_sender(ground: &Ground, all: u64) -> [u64; 2] {
    let place = &ground.place;
    let pad = "x".repeat(BYTES);
    let args = ["submit", "chaos", "--lines", "-", "--batch", "b", "--chunk", "100"];
    let mut sender = Running(place.command(&args).stdin(Stdio::piped()).spawn().unwrap());
    let mut pipe = sender.0.stdin.take().unwrap();
    let mut peaks = [0; 2];
    for (part, peak_then) in [0..all / 3, all / 3..all].into_iter().zip(&mut peaks) {
        let wanted = part.end - 200;
        for n in part {
            let line = json!({ "n": n, "ms": 0, "pad": pad });
            writeln!(pipe, "{line}").unwrap();
        }
        pipe.flush().unwrap();
        eventually(limit(SOON * 3), || (count(place, "ready") >= wanted).then_some(()));
        *peak_then = peak(&sender);
    }
    drop(pipe);
    assert_eq!(sender.ends_within(limit(SOON)), 0);
    peaks
}

/// One worker runs all units: its peak after a third of them, and after all.
fn peak_of_a_worker(ground: &Ground, all: u64) -> [u64; 2] {
    let place = &ground.place;
    let mut worker = place.start(&["worker", "--slots", "8", "--chaos-log", "runs"]);
    let peaks = [all / 3, all].map(|wanted| {
        let ran = || place.read("runs").lines().count() as u64;
        eventually(limit(SOON * 3), || (ran() >= wanted).then_some(()));
        peak(&worker)
    });
    worker.signal("TERM");
    assert_eq!(worker.ends_within(limit(SOON)), 0);
    peaks
}
