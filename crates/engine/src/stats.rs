//! A worker's counters and its final report.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_core::{Outcome, UnitState};
use serde::Serialize;

/// Counters of a running worker. Cheap to read at any time.
#[derive(Debug, Default)]
pub struct WorkerStats {
    done: AtomicU64,
    retried: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    snoozed: AtomicU64,
    lost: AtomicU64,
    interrupted: AtomicU64,
    yielded: AtomicU64,
    claims: AtomicU64,
    claimed: AtomicU64,
    returned: AtomicU64,
    ran: AtomicU64,
    flushes: AtomicU64,
    running: AtomicU64,
    /// Exponentially weighted mean, in nanoseconds.
    mean_run: AtomicU64,
}

/// Totals of a worker at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct WorkerReport {
    /// Units that are done.
    pub done: u64,
    /// Runs that failed and will be retried.
    pub retried: u64,
    /// Units that failed.
    pub failed: u64,
    /// Units that were cancelled.
    pub cancelled: u64,
    /// Runs that snoozed their unit or yielded their slot.
    pub snoozed: u64,
    /// Runs that lost their lease before the outcome was recorded.
    pub lost: u64,
    /// Runs interrupted because the worker stopped.
    pub interrupted: u64,
    /// Units held when the worker ended, without a recorded outcome.
    pub left: u64,
}

impl WorkerStats {
    /// The counts so far; `left` is 0 until the worker has ended.
    pub fn report(&self) -> WorkerReport {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        WorkerReport {
            done: get(&self.done),
            retried: get(&self.retried),
            failed: get(&self.failed),
            cancelled: get(&self.cancelled),
            snoozed: get(&self.snoozed) + get(&self.yielded),
            lost: get(&self.lost),
            interrupted: get(&self.interrupted).saturating_sub(get(&self.yielded)),
            left: 0,
        }
    }

    /// Handlers running now.
    pub fn running(&self) -> u64 {
        self.running.load(Ordering::Relaxed)
    }

    /// Calls to the store's `claim`.
    pub fn claims(&self) -> u64 {
        self.claims.load(Ordering::Relaxed)
    }

    /// Units claimed.
    pub fn claimed(&self) -> u64 {
        self.claimed.load(Ordering::Relaxed)
    }

    /// Units that were prefetched and released unstarted.
    pub fn returned(&self) -> u64 {
        self.returned.load(Ordering::Relaxed)
    }

    /// Handler runs that have returned.
    pub fn ran(&self) -> u64 {
        self.ran.load(Ordering::Relaxed)
    }

    /// Calls to the store's `finish`.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// Outcomes that the store has recorded.
    pub(crate) fn recorded(&self) -> u64 {
        let WorkerReport { done, retried, failed, cancelled, snoozed, interrupted, .. } = self.report();
        done + retried + failed + cancelled + snoozed + interrupted
    }

    /// Recent mean duration of a run.
    pub fn mean_run(&self) -> Duration {
        Duration::from_nanos(self.mean_run.load(Ordering::Relaxed))
    }

    pub(crate) fn on_claim(&self, units: usize) {
        add(&self.claims, 1);
        add(&self.claimed, units);
    }

    pub(crate) fn on_returned(&self, units: usize) {
        add(&self.returned, units);
    }

    pub(crate) fn on_flush(&self) {
        add(&self.flushes, 1);
    }

    pub(crate) fn on_yielded(&self) {
        add(&self.yielded, 1);
    }

    pub(crate) fn on_lost(&self, units: usize) {
        add(&self.lost, units);
    }

    pub(crate) fn on_start(&self) {
        add(&self.running, 1);
    }

    pub(crate) fn on_end(&self, took: Duration) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        add(&self.ran, 1);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let mean = self.mean_run.load(Ordering::Relaxed);
        // A race between two runs loses one sample of the mean, which does no harm.
        let next = if mean == 0 { took } else { mean - mean / 8 + took / 8 };
        self.mean_run.store(next.max(1), Ordering::Relaxed);
    }

    /// Counts a recorded outcome by the unit's resulting state.
    pub(crate) fn on_recorded(&self, outcome: &Outcome, state: UnitState) {
        let count = match (state, outcome) {
            (UnitState::Done, _) => &self.done,
            (UnitState::Failed, _) => &self.failed,
            (UnitState::Cancelled, _) => &self.cancelled,
            (_, Outcome::Snooze(_)) => &self.snoozed,
            (_, Outcome::Interrupted) => &self.interrupted,
            _ => &self.retried,
        };
        add(count, 1);
    }
}

fn add(count: &AtomicU64, by: usize) {
    count.fetch_add(by as u64, Ordering::Relaxed);
}
