//! A worker's slot in the scheduler, and why workers end.

use std::time::{Duration, Instant};

use super::WorkerId;
use crate::settings::PoolSettings;

/// A worker's slot in the scheduler.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct WorkerSlot {
    pub(super) phase: Phase,
    /// Calls that it was given and has not answered.
    pub(super) in_flight: usize,
    /// Calls that it may be given in addition to the running one.
    pub(super) prefetch: usize,
    /// Calls that it runs at once.
    pub(super) concurrency: usize,
    /// Calls that it was given in total.
    pub(super) calls: u64,
    pub(super) started_at: Instant,
    pub(super) idle_since: Instant,
    /// From this number of calls on it is replaced: before `max_calls`, so that its replacement is
    /// ready by then.
    pub(super) replace_after: Option<u64>,
    /// It is given no more calls than this.
    pub(super) max_calls: Option<u64>,
    /// Its call must not share the worker with others.
    pub(super) isolated: bool,
    max_age: Option<Duration>,
    /// The worker that it replaces once it is ready.
    pub(super) replaces: Option<WorkerId>,
    /// Why it has to be replaced, if it has to.
    pub(super) replace_cause: Option<EndCause>,
    /// Its call was cancelled: from this time on the worker may be abandoned.
    pub(super) abandon_at: Option<Instant>,
    /// It took too long to start, and that was reported.
    pub(super) slow_start: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Starting,
    Working,
    /// It gets no more calls, and stops once its calls are answered.
    Leaving(EndCause),
    /// It hangs in a call or in its start, and was replaced.
    Abandoned,
}

/// Why a worker ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum EndCause {
    /// It was idle for too long.
    Idle,
    /// It reached its number of calls.
    Calls,
    /// It reached its maximum age.
    Age,
    /// It used too much memory.
    Memory,
    /// It asked to be replaced.
    Requested,
    /// The pool was made smaller.
    Surplus,
    /// An operation panicked on it.
    Panic,
    /// A call on it timed out, or was cancelled.
    Timeout,
    /// It died.
    Died,
    /// It violated the protocol.
    Protocol,
    /// The pool is closing.
    Closing,
}

impl WorkerSlot {
    pub(super) fn new(
        id: WorkerId,
        settings: &PoolSettings,
        replaces: Option<WorkerId>,
        now: Instant,
    ) -> Self {
        // Spread, so that workers that started together are not replaced together.
        let spread = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
        let replace_after = settings.max_calls.map(|most| spread_calls(most, spread));
        let max_age = settings.max_age.map(|most| most - most / 8 + most / 1024 * spread as u32);
        Self {
            phase: Phase::Starting,
            in_flight: 0,
            prefetch: 0,
            concurrency: 1,
            calls: 0,
            started_at: now,
            idle_since: now,
            replace_after,
            max_calls: settings.max_calls,
            isolated: false,
            max_age,
            replaces,
            replace_cause: None,
            abandon_at: None,
            slow_start: false,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Working && self.in_flight == 0
    }

    /// Whether it accepts another call.
    pub(super) fn accepts_calls(&self) -> bool {
        self.phase == Phase::Working
            && self.in_flight <= self.prefetch
            && !self.isolated
            && !self.is_used_up()
    }

    /// Whether it accepts calls, now or once it has started.
    pub(super) fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Working)
    }

    /// When it reaches its maximum age.
    pub(super) fn expires_at(&self) -> Option<Instant> {
        self.max_age.and_then(|age| self.started_at.checked_add(age))
    }

    /// Whether it was given all the calls that it may be given.
    pub(super) fn is_used_up(&self) -> bool {
        self.max_calls.is_some_and(|most| self.calls >= most)
    }

    /// Whether it gets no more calls and has capacity to spare: its last calls may end beside another
    /// worker.
    pub(super) fn may_leave_early(&self) -> bool {
        self.phase == Phase::Working && self.is_used_up() && (1..self.concurrency).contains(&self.in_flight)
    }

    /// Whether it gets no more calls, and its last ones still run.
    pub(super) fn is_leaving_with_calls(&self) -> bool {
        matches!(self.phase, Phase::Leaving(_)) && self.in_flight > 0
    }

    /// Whether its replacement has to be started, and was not requested yet.
    pub(super) fn nears_max_calls(&self) -> bool {
        self.replace_cause.is_none() && self.replace_after.is_some_and(|after| self.calls >= after)
    }
}

/// Between six and seven eighths of `most`, by a number below 256.
fn spread_calls(most: u64, spread: u64) -> u64 {
    let eighth = u128::from(most) * u128::from(spread) / 2048;
    (most - most / 4).saturating_add(u64::try_from(eighth).unwrap_or(u64::MAX)).max(1)
}

impl EndCause {
    /// Its name in statistics and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Calls => "calls",
            Self::Age => "age",
            Self::Memory => "memory",
            Self::Requested => "own_wish",
            Self::Surplus => "surplus",
            Self::Panic => "panic",
            Self::Timeout => "timeout",
            Self::Died => "died",
            Self::Protocol => "protocol",
            Self::Closing => "closing",
        }
    }

    /// Whether this cause, before the worker's first call, counts as a failed start.
    pub(super) fn is_failure(self) -> bool {
        matches!(self, Self::Died | Self::Protocol | Self::Panic)
    }
}
