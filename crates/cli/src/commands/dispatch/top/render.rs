//! Renders a frame of the live view as lines of text. Pure.

use std::path::Path;

use longshore::Timestamp;
use longshore::duration::{self, format_ago};
use longshore_dispatch::request::{PoolStatus, UnitSummary, WorkerStatus};

use super::PoolSnapshot;
use crate::commands::dispatch::status::short_uid;
use crate::terminal;

/// The width of a bar.
const BAR_WIDTH: usize = 24;

/// Finished units per second.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rates {
    pub(super) done: f64,
    pub(super) failed: f64,
}

/// The content of a frame.
pub(super) struct PoolFrame<'a> {
    pub(super) folder: &'a Path,
    /// `None` while the server does not answer.
    pub(super) snapshot: Option<&'a PoolSnapshot>,
    pub(super) rates: Rates,
    pub(super) width: usize,
    pub(super) now: Timestamp,
}

impl PoolFrame<'_> {
    /// The lines, none wider than the frame.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("pool {}", self.folder.display())];
        match self.snapshot {
            None => lines.push("the server does not answer; reconnecting".to_owned()),
            Some((status, failures)) => {
                self.head(status, &mut lines);
                workers(&status.workers, &mut lines);
                self.failures(failures, &mut lines);
            }
        }
        let fits = |line: String| line.chars().filter(|c| !c.is_control()).take(self.width).collect();
        lines.into_iter().map(fits).collect()
    }

    fn head(&self, status: &PoolStatus, lines: &mut Vec<String>) {
        let (min, max) = status.size;
        let wanted = if min == max { format!("{min}") } else { format!("{min} to {max}") };
        let here = status.workers.len();
        let (up, mood, base) = (duration::format(status.up), &status.state, &status.base);
        lines.push(format!("server process {}, up for {up}, {mood}", status.pid));
        let threads: u32 = status.workers.iter().map(|worker| worker.threads).sum();
        let load: u32 = status.workers.iter().map(|worker| worker.load.min(worker.threads)).sum();
        lines.push(format!("workers {here} of {wanted}, by {base}"));
        lines.push(format!("threads {} {load} of {threads}", bar(load, threads)));
        lines.push(String::new());
        let waiting = status.ready + status.claimed.saturating_sub(status.running);
        let Rates { done, failed } = self.rates;
        lines.push(format!(
            "waiting {waiting}   for others {}   running {}   done {} ({done:.1}/s)   failed {} ({failed:.1}/s)   cancelled {}",
            status.not_ready, status.running, status.done, status.failed, status.cancelled
        ));
    }

    fn failures(&self, failures: &[UnitSummary], lines: &mut Vec<String>) {
        if failures.is_empty() {
            return;
        }
        lines.push(String::new());
        lines.push("last failures".to_owned());
        for unit in failures {
            let what = match (&unit.batch, unit.index) {
                (Some(batch), Some(index)) => format!("{batch} {index}"),
                _ => unit.name.clone().unwrap_or_default(),
            };
            let code = unit.failure.as_ref().map_or("", |failure| failure.code.as_str());
            let when = format_ago(unit.since, self.now);
            lines.push(format!("{}  {code:<12} {when:<14} {what}", unit.unit));
        }
    }
}

/// A value above the whole, as with prefetched work, is a full bar.
fn bar(part: u32, whole: u32) -> String {
    terminal::bar(part.into(), whole.into(), BAR_WIDTH)
}

fn workers(workers: &[WorkerStatus], lines: &mut Vec<String>) {
    if workers.is_empty() {
        return;
    }
    let host = workers.iter().map(|worker| worker.host.chars().count()).max().unwrap_or(0).max(4);
    lines.push(String::new());
    let space = BAR_WIDTH + 12;
    lines.push(format!(
        "{:<8}  {:<host$}  {:<8}  {:<space$}  {:>7}  {:>6}",
        "worker", "host", "state", "threads", "scripts", "load"
    ));
    for worker in workers {
        let start = short_uid(&worker.uid);
        let threads = format!("{} {}/{}", bar(worker.load, worker.threads), worker.load, worker.threads);
        lines.push(format!(
            "{start:<8}  {:<host$}  {:<8}  {threads:<space$}  {:>7}  {:>6.2}",
            worker.host, worker.mood, worker.tasks, worker.average
        ));
    }
}

#[cfg(test)]
mod tests {
    use longshore::{Failure, UnitId, UnitState};

    use super::*;

    fn worker(load: u32) -> WorkerStatus {
        WorkerStatus {
            uid: "01a1e273-5fa5".into(),
            host: "node\u{1b}[31m7".into(),
            pid: 1,
            threads: 8,
            load,
            tasks: 3,
            mood: "working".into(),
            average: 1.5,
        }
    }

    fn lines(width: usize) -> Vec<String> {
        let status = PoolStatus { workers: vec![worker(2), worker(20)], failed: 1, ..PoolStatus::default() };
        let failure = UnitSummary {
            unit: UnitId::new(),
            state: UnitState::Failed,
            batch: None,
            task: None,
            index: None,
            name: Some("job.sh".into()),
            attempt: 1,
            lost: 0,
            created_at: Timestamp::from_micros(0),
            since: Timestamp::from_micros(0),
            failure: Some(Failure::new("exit-42", "it ended")),
        };
        let (folder, now) = (Path::new("/pool"), Timestamp::from_micros(60_000_000));
        let snapshot = (status, vec![failure]);
        let rates = Rates { done: 12.34, failed: 0.0 };
        PoolFrame { folder, snapshot: Some(&snapshot), rates, width, now }.lines()
    }

    #[test]
    fn a_frame_shows_workers_rates_and_failures() {
        let text = lines(120).join("\n");
        for words in ["(12.3/s)", "2/8", "[######..................]", "20/8", "exit-42", "job.sh"] {
            assert!(text.contains(words), "{words} in\n{text}");
        }
        assert!(text.contains(&format!("[{}]", "#".repeat(BAR_WIDTH))), "more than the whole is a full bar");
    }

    #[test]
    fn no_line_is_wider_than_the_frame_or_steers_the_terminal() {
        for line in lines(40) {
            assert!(line.chars().count() <= 40 && !line.contains('\u{1b}'), "{line:?}");
        }
    }
}
