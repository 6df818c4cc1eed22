//! Attributes signals that the worker did not send.
//!
//! A base system that ends a job, such as Slurm, signals the scripts and their worker at the same
//! time. Such scripts were interrupted and have not failed. Either may receive its signal first, so
//! an end by such a signal is deferred for a moment, to see whether the worker is signalled, too.

use std::time::Duration;

use longshore::worker_session::Lease;
use tokio::time::Instant;

use crate::script::{RunEnd, RunReport};

/// How much later than its scripts a worker may be signalled.
const SIGNAL_GRACE: Duration = Duration::from_millis(300);
/// HUP, INT, USR1, USR2 and TERM: base systems use these to ask jobs to end.
const TERMINATION_SIGNALS: [i32; 5] = [1, 2, 10, 12, 15];

/// Deferred ends, and whether the worker was signalled.
#[derive(Debug, Default)]
pub(super) struct SignalGrace {
    shutting_down: bool,
    deferred: Vec<(Instant, Lease, RunReport)>,
}

impl SignalGrace {
    /// The end to report; `None` if it is deferred.
    pub(super) fn classify(&mut self, lease: Lease, mut report: RunReport) -> Option<(Lease, RunReport)> {
        if !ended_by_request(&report.end) {
            return Some((lease, report));
        }
        if self.shutting_down {
            report.end = RunEnd::Interrupted;
            return Some((lease, report));
        }
        self.deferred.push((Instant::now() + SIGNAL_GRACE, lease, report));
        None
    }

    /// The worker was signalled: its deferred scripts were interrupted.
    pub(super) fn on_shutdown(&mut self) -> Vec<(Lease, RunReport)> {
        self.shutting_down = true;
        let ends = std::mem::take(&mut self.deferred).into_iter();
        ends.map(|(_, lease, report)| (lease, RunReport { end: RunEnd::Interrupted, ..report })).collect()
    }

    /// Deferred ends at their deadline: only the script was signalled.
    pub(super) fn take_expired(&mut self, now: Instant) -> Vec<(Lease, RunReport)> {
        let due = self.deferred.extract_if(.., |(deadline, ..)| now >= *deadline);
        due.map(|(_, lease, report)| (lease, report)).collect()
    }

    /// When the next deferred end expires.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deferred.iter().map(|(deadline, ..)| *deadline).min()
    }
}

/// Whether such a signal ended the script. A shell reports it in its exit code.
fn ended_by_request(end: &RunEnd) -> bool {
    match end {
        RunEnd::Signalled(signal) => TERMINATION_SIGNALS.contains(signal),
        RunEnd::Exited(code) => TERMINATION_SIGNALS.contains(&(code - 128)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use longshore::UnitId;

    use super::*;

    fn lease() -> Lease {
        Lease { unit: UnitId::new(), fence: 1 }
    }

    fn report(end: RunEnd) -> RunReport {
        RunReport {
            end,
            host: String::new(),
            queued: 0,
            started: 0,
            ended: 0,
            cpu: Duration::ZERO,
            peak_memory: 0,
            tail: String::new(),
            remarks: Vec::new(),
            output: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_script_that_is_asked_to_end_with_its_worker_was_interrupted() {
        let mut grace = SignalGrace::default();
        assert!(grace.classify(lease(), report(RunEnd::Signalled(15))).is_none());
        assert!(grace.classify(lease(), report(RunEnd::Exited(143))).is_none());
        let ends = grace.on_shutdown();
        assert_eq!(ends.len(), 2);
        assert!(ends.iter().all(|(_, report)| report.end == RunEnd::Interrupted));
        let late = grace.classify(lease(), report(RunEnd::Signalled(15))).unwrap();
        assert_eq!(late.1.end, RunEnd::Interrupted);
    }

    #[tokio::test(start_paused = true)]
    async fn a_signal_to_one_script_alone_is_its_own_end() {
        let mut grace = SignalGrace::default();
        assert!(grace.classify(lease(), report(RunEnd::Signalled(15))).is_none());
        assert!(grace.take_expired(Instant::now()).is_empty());
        tokio::time::advance(SIGNAL_GRACE).await;
        let ends = grace.take_expired(Instant::now());
        assert!(matches!(&ends[..], [(_, report)] if report.end == RunEnd::Signalled(15)), "{ends:?}");
        for end in [RunEnd::Signalled(9), RunEnd::Signalled(11), RunEnd::Exited(1), RunEnd::Exited(127)] {
            assert_eq!(grace.classify(lease(), report(end.clone())).unwrap().1.end, end);
        }
    }
}
