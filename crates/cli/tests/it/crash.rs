//! Repeated SIGKILL of real processes: no unit is lost and none is counted twice.
//!
//! The storms are small here and large in a soak (`./test --soak`).

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use crate::support::{ChildGuard, TIMEOUT, TestDir, eventually, pick_size, stretch};

const SLOTS: u64 = 8;

/// A batch `b` that runs while workers are killed.
pub struct CrashStorm {
    pub dir: TestDir,
    pub units: u64,
    kills: u64,
    workers: u64,
    /// How often the store's server is restarted meanwhile, if it has one.
    restarts: u64,
}

impl CrashStorm {
    /// On the store that the directory's configuration names.
    pub fn new(dir: TestDir, restarts: u64) -> Self {
        Self {
            dir,
            units: pick_size(2_000, 20_000),
            kills: pick_size(10, 100),
            workers: pick_size(3, 6),
            restarts,
        }
    }

    pub fn submit(&self, kind: &str, line: impl Fn(u64) -> String) {
        let lines: String = (0..self.units).map(|n| line(n) + "\n").collect();
        let args = ["submit", kind, "--lines", "-", "--batch", "b"];
        self.dir.run_with(&args, lines).ok();
    }

    /// Runs workers until every unit has finished, with kills and restarts spread over the batch;
    /// then drains them.
    pub fn run_with_kills(&self, more: &[&str], mut restart: impl FnMut()) {
        let slots = SLOTS.to_string();
        let args = [&["worker", "--slots", &slots, "--ttl", "2s"], more].concat();
        let start = || self.dir.start(&args);
        let mut workers: Vec<ChildGuard> = (0..self.workers).map(|_| start()).collect();
        for kill in 1..=self.kills {
            self.wait_for_finished(kill * self.units / (self.kills + 2));
            if kill % (self.kills / (self.restarts + 1)) == 0 && kill < self.kills {
                restart();
            }
            let victim = usize::try_from(kill * 7 % self.workers).unwrap();
            workers[victim].kill();
            workers[victim] = start();
        }
        self.wait_for_finished(self.units);
        for worker in &mut workers {
            worker.signal("TERM");
            assert_eq!(worker.ends_within(TIMEOUT), 0);
        }
    }

    fn wait_for_finished(&self, units: u64) {
        let finished = || {
            let batch = self.dir.batch("b");
            ["done", "failed", "cancelled"].iter().map(|n| batch[n].as_u64().unwrap()).sum::<u64>()
        };
        eventually(stretch(Duration::from_secs(120)), || (finished() >= units).then_some(()));
    }

    /// Checks the batch's final counts.
    pub fn assert_exact(&self, done: u64, failed: u64) {
        let batch = self.dir.batch("b");
        assert_eq!((&batch["done"], &batch["failed"]), (&done.into(), &failed.into()), "{batch}");
        assert_eq!((&batch["total"], &batch["cancelled"]), (&self.units.into(), &0.into()));
        assert_eq!(batch["status"], "complete");
        assert_eq!(self.dir.queue()["counts"]["leased"], 0);
        self.dir.run(&["verify"]).ok();
    }

    /// Every unit ran, and repeats are bounded by what killed workers held: units they ran, and units
    /// they had run but not yet recorded. A restart of the server may cost every worker as much as a
    /// kill.
    pub fn assert_repeats_are_bounded(&self) {
        let runs = runs(&self.dir);
        assert_eq!(runs.len() as u64, self.units, "every unit ran");
        let repeats: u64 = runs.values().map(|times| times - 1).sum();
        let at_risk = u64::from(longshore::max_unrecorded_units(u32::try_from(SLOTS).unwrap()));
        let most = (self.kills + self.restarts * self.workers) * at_risk;
        assert!(repeats <= most, "{repeats} repeats after {} kills, not {most}", self.kills);
    }
}

/// How often each unit wrote its number to the file `runs`.
fn runs(dir: &TestDir) -> BTreeMap<u64, u64> {
    let mut runs = BTreeMap::new();
    for line in dir.read("runs").lines() {
        *runs.entry(line.parse().unwrap()).or_default() += 1;
    }
    runs
}

#[test]
fn no_unit_lost_and_repeats_are_bounded_in_a_storm_of_kills() {
    let storm = CrashStorm::new(TestDir::new(), 0);
    storm.submit("chaos", |n| format!("{{\"n\":{n},\"ms\":{}}}", n % 20));
    storm.run_with_kills(&["--chaos-log", "runs"], || {});
    storm.assert_exact(storm.units, 0);
    storm.assert_repeats_are_bounded();
}

/// Commands append to a file; one in ten then fails.
#[test]
fn tally_is_exact_in_a_storm_of_kills() {
    let storm = CrashStorm::new(TestDir::new(), 0);
    storm.submit("exec", |n| {
        let script = format!("echo {n} >> runs; test {} != 0", n % 10);
        serde_json::json!({ "argv": ["sh", "-c", script] }).to_string()
    });
    storm.run_with_kills(&[], || {});
    storm.assert_exact(storm.units - storm.units / 10, storm.units / 10);
    storm.assert_repeats_are_bounded();
}

#[test]
fn no_gap_and_no_repeat_in_a_storm_of_killed_submits() {
    let (all, kills) = (pick_size(20_000, 200_000), pick_size(5, 20));
    let dir = TestDir::new();
    let lines: Vec<String> = (0..all).map(|n: u64| format!("{{\"n\":{n},\"ms\":0}}\n")).collect();
    let file = dir.write("lines", lines.concat());
    let args = ["submit", "chaos", "--lines", "-", "--batch", "b", "--chunk", "100"];
    let total = || {
        let run = dir.run(&["batch", "status", "b", "--json"]);
        if run.code == 0 { run.json()["total"].as_u64().unwrap() } else { 0 }
    };
    for kill in 1..=kills {
        let mut command = dir.command(&args);
        let mut submit = ChildGuard(command.stdin(Stdio::piped()).spawn().unwrap());
        let mut pipe = submit.0.stdin.take().unwrap();
        // The process gets only part of the input, so it cannot end before the kill.
        let part = usize::try_from(all * kill / (kills + 1)).unwrap();
        let _ = pipe.write_all(lines[..part].concat().as_bytes());
        let before = (part as u64).saturating_sub(300);
        eventually(stretch(Duration::from_secs(30)), || (total() >= before).then_some(()));
        submit.kill();
        assert!(total() < all, "it was killed midway");
    }
    let args = ["submit", "chaos", "--lines", file.to_str().unwrap(), "--batch", "b", "--json"];
    let sent = dir.run(&args).ok().says("resuming").json();
    assert_eq!(sent["sent"], all);
    // Each unit runs once and writes its number to a file.
    dir.run(&["worker", "--slots", "32", "--chaos-log", "runs", "--until-idle"]).ok();
    let seen = runs(&dir);
    assert_eq!(seen.len() as u64, all, "no gap");
    assert!(seen.values().all(|times| *times == 1), "no repeat");
    dir.run(&["verify"]).ok();
}
