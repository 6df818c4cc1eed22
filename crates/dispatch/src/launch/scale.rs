//! How many workers there should be. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::board::SeatId;

/// What is wanted of a pool's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Never fewer workers, whatever there is to do.
    pub min: u32,
    /// Never more.
    pub max: u32,
    /// Threads of each.
    pub threads: u32,
    /// A worker above `min` is released after so long without a script.
    pub idle: Duration,
}

/// The first wait after a launch failed; it doubles with each failure that follows.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// The longest.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// A worker that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Present {
    /// Its seat.
    pub seat: SeatId,
    /// What it was launched as; `None` if somebody else started it.
    pub launch: Option<u64>,
    /// Since when it has had nothing to do; `None` if it has.
    pub idle_since: Option<Duration>,
    /// It takes scripts.
    pub working: bool,
}

/// A worker that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launch {
    /// Its job waits, or runs and the worker has not come yet.
    Pending,
    /// Its worker has been here.
    Arrived,
    /// Its worker was here before the server was restarted, and is expected back.
    Returning,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Ask for so many more workers.
    Launch(u32),
    /// Let this worker end what it has, and go.
    Release(SeatId),
    /// This worker is not needed any more, and has not come yet.
    Withdraw(u64),
}

/// Decides how many workers there are.
#[derive(Debug, Clone)]
pub struct Scaler {
    /// What is wanted.
    pub size: Size,
    failures: u32,
    next_try: Duration,
}

impl Scaler {
    /// A scaler for a pool of this size.
    pub fn new(size: Size) -> Self {
        Self { size, failures: 0, next_try: Duration::ZERO }
    }

    /// How many workers this many threads of scripts, waiting and running, call for.
    pub fn wanted(&self, threads: u64) -> u32 {
        let needed = threads.div_ceil(u64::from(self.size.threads.max(1)));
        let needed = u32::try_from(needed).unwrap_or(u32::MAX);
        needed.clamp(self.size.min, self.size.max.max(self.size.min))
    }

    /// A launch failed, or its worker never came.
    pub fn on_failure(&mut self, now: Duration) {
        self.failures = self.failures.saturating_add(1);
        let doubled = FIRST_WAIT.saturating_mul(1 << (self.failures - 1).min(20));
        self.next_try = now + doubled.min(LONGEST_WAIT);
    }

    /// A worker has come.
    pub fn on_arrival(&mut self) {
        (self.failures, self.next_try) = (0, Duration::ZERO);
    }

    /// How long nothing is launched, because it failed so often; `None` if that is over.
    pub fn waits(&self, now: Duration) -> Option<(Duration, u32)> {
        let left = self.next_try.saturating_sub(now);
        (!left.is_zero()).then_some((left, self.failures))
    }

    /// What is to be done, with so many threads of scripts waiting and running.
    pub fn decide(
        &self,
        now: Duration,
        threads: u64,
        present: &[Present],
        launches: &BTreeMap<u64, Launch>,
    ) -> Vec<Step> {
        let wanted = self.wanted(threads);
        let working = present.iter().filter(|worker| worker.working).count();
        let pending: Vec<u64> = launches
            .iter()
            .filter(|(_, launch)| **launch == Launch::Pending)
            .map(|(number, _)| *number)
            .collect();
        let returning = launches.values().filter(|launch| **launch == Launch::Returning).count();
        let have = u32::try_from(working + pending.len() + returning).unwrap_or(u32::MAX);
        if have < wanted {
            let may = self.waits(now).is_none();
            return may.then_some(Step::Launch(wanted - have)).into_iter().collect();
        }
        let mut surplus = have - wanted;
        let mut steps = Vec::new();
        // Those that have not come yet cost nothing to do without; the last first.
        for number in pending.into_iter().rev().take(surplus as usize) {
            steps.push(Step::Withdraw(number));
            surplus -= 1;
        }
        let idle = |worker: &&Present| {
            let since = worker.idle_since.map(|since| now.saturating_sub(since));
            worker.working && since.is_some_and(|idle| idle >= self.size.idle)
        };
        let idle = present.iter().filter(idle).take(surplus as usize);
        steps.extend(idle.map(|worker| Step::Release(worker.seat)));
        steps
    }
}
