//! The measured figures and their table.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ours::{Run, median};

/// All figures.
#[derive(Default)]
pub(crate) struct Figures {
    times: Vec<(&'static str, Vec<Duration>)>,
    used: BTreeMap<&'static str, Vec<Run>>,
    pub(crate) idle: Vec<(u64, Run)>,
    pub(crate) latency: Option<(Duration, Duration)>,
    pub(crate) submit: Option<Duration>,
}

impl Figures {
    pub(crate) fn note(&mut self, name: &'static str, time: Duration) {
        match self.times.iter_mut().find(|(known, _)| *known == name) {
            Some((_, times)) => times.push(time),
            None => self.times.push((name, vec![time])),
        }
    }

    pub(crate) fn note_used(&mut self, name: &'static str, run: Run) {
        self.note(name, run.time);
        self.used.entry(name).or_default().push(run);
    }

    /// The time of each contestant, and the median of its ratio to the limit of the same round.
    pub(crate) fn table(&self, scripts: u64) {
        println!("\n{scripts} scripts that do nothing, two at a time");
        println!("{:32} {:>10} {:>8}", "", "us/script", "of limit");
        let limit = self.times.first().map(|(_, times)| times.clone()).unwrap_or_default();
        for (name, times) in &self.times {
            let each = median(times.clone()).as_secs_f64() * 1e6 / scripts as f64;
            let mut ratios: Vec<f64> =
                times.iter().zip(&limit).map(|(a, b)| a.as_secs_f64() / b.as_secs_f64()).collect();
            ratios.sort_by(f64::total_cmp);
            let ratio = ratios.get(ratios.len() / 2).copied().unwrap_or(0.0);
            println!("{name:32} {each:10.0} {ratio:8.2}");
        }
        for (name, runs) in &self.used {
            let each = |of: fn(&Run) -> Duration| {
                median(runs.iter().map(of).collect()).as_secs_f64() * 1e6 / scripts as f64
            };
            let (server, worker) = (each(|run| run.server), each(|run| run.worker));
            println!("{name}: server {server:.0} us, worker {worker:.0} us of CPU a script");
        }
        println!("goals: 1.15 of the limit; server 20 us, worker 120 us");
    }

    pub(crate) fn idle_table(&self) {
        let Some((count, _)) = self.idle.first() else { return };
        let each = |of: fn(&Run) -> Duration| {
            median(self.idle.iter().map(|(_, run)| of(run)).collect()).as_secs_f64() * 1e6 / *count as f64
        };
        let (time, server) = (each(|run| run.time), each(|run| run.server));
        println!("\n{count} simulated scripts, one worker of two threads, from its start:");
        println!("  {:.0} scripts/s; server {server:.1} us of CPU each", 1e6 / time);
        println!("  goal: 50,000/s");
    }

    pub(crate) fn latency_table(&self) {
        let Some((ours, bash)) = self.latency else { return };
        let (ours, bash) = (ours.as_secs_f64() * 1e3, bash.as_secs_f64() * 1e3);
        println!("\none script on an idle pool: {ours:.2} ms at p50, bash by itself {bash:.2} ms");
        println!("  goal: less than 3 ms above bash; it is {:.2} ms", ours - bash);
    }

    pub(crate) fn submit_table(&self) {
        match self.submit {
            Some(each) => {
                println!(
                    "\n`longshore submit --script`, one process each: {:.2} ms at p50",
                    each.as_secs_f64() * 1e3
                );
                println!("  goal: 3 ms");
            }
            None => println!("\n`longshore submit` was not measured: there is no binary beside this one"),
        }
    }
}
