//! Decides how many workers there should be. No I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::exponential_delay;

use crate::scheduler::WorkerKey;

/// How long the scripts of workers that leave a smaller pool may run on by default.
pub const DEFAULT_DRAIN: Duration = Duration::from_secs(3600);

/// Size of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSize {
    /// Minimum number of workers.
    pub min: u32,
    /// Maximum number of workers.
    pub max: u32,
    /// A worker above `min` is released after this long without a script.
    pub idle: Duration,
    /// The scripts of a released worker may run on for this long.
    pub drain: Duration,
}

/// Delay after a failed launch; doubles with each further failure.
const FIRST_BACKOFF: Duration = Duration::from_secs(2);
/// Maximum delay.
const MAX_BACKOFF: Duration = Duration::from_secs(300);

/// A registered worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PresentWorker {
    /// Its key.
    pub key: WorkerKey,
    /// Its launch number; `None` if the pool did not launch it.
    pub launch: Option<u64>,
    /// When it became idle; `None` if it is busy.
    pub idle_since: Option<Duration>,
    /// It accepts scripts.
    pub working: bool,
}

/// State of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchState {
    /// The job waits, or its worker has not registered yet.
    Pending,
    /// The worker has registered.
    Arrived,
    /// The worker was registered before a server restart and may reconnect.
    Returning,
}

/// An action of the launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleAction {
    /// Launch this many workers.
    Launch(u32),
    /// Release this worker after it has ended its tasks.
    Release(WorkerKey),
    /// Cancel this launch: its worker has not registered yet.
    CancelPending(u64),
}

/// Decides how many workers to launch and release.
#[derive(Debug, Clone)]
pub struct Scaler {
    /// The pool's size.
    pub size: PoolSize,
    failures: u32,
    next_try: Duration,
}

impl Scaler {
    /// A scaler for a pool of this size.
    pub fn new(size: PoolSize) -> Self {
        Self { size, failures: 0, next_try: Duration::ZERO }
    }

    /// How many workers there should be if the scripts need this many.
    pub fn wanted(&self, needed: u32) -> u32 {
        needed.clamp(self.size.min, self.size.max.max(self.size.min))
    }

    /// A launch failed, or its worker never registered.
    pub fn on_failure(&mut self, now: Duration) {
        self.next_try = now + exponential_delay(FIRST_BACKOFF, MAX_BACKOFF, self.failures);
        self.failures = self.failures.saturating_add(1);
    }

    /// A worker has registered.
    pub fn on_arrival(&mut self) {
        (self.failures, self.next_try) = (0, Duration::ZERO);
    }

    /// Remaining delay before the next launch and the number of failures; `None` if there is no
    /// delay.
    pub fn backoff(&self, now: Duration) -> Option<(Duration, u32)> {
        let left = self.next_try.saturating_sub(now);
        (!left.is_zero()).then_some((left, self.failures))
    }

    /// The actions if the scripts need this many workers.
    pub fn decide(
        &self,
        now: Duration,
        needed: u32,
        present: &[PresentWorker],
        launches: &BTreeMap<u64, LaunchState>,
    ) -> Vec<ScaleAction> {
        let wanted = self.wanted(needed);
        // Workers that were started by other means come in addition: they push out no launched one.
        let working = present.iter().filter(|worker| worker.working && worker.launch.is_some()).count();
        let pending: Vec<u64> = launches
            .iter()
            .filter(|(_, launch)| **launch == LaunchState::Pending)
            .map(|(number, _)| *number)
            .collect();
        let returning = launches.values().filter(|launch| **launch == LaunchState::Returning).count();
        let have = u32::try_from(working + pending.len() + returning).unwrap_or(u32::MAX);
        if have < wanted {
            let can_launch = self.backoff(now).is_none();
            return can_launch.then_some(ScaleAction::Launch(wanted - have)).into_iter().collect();
        }
        let mut surplus = have - wanted;
        let mut actions = Vec::new();
        // Cancelling a pending launch costs nothing; the latest first.
        for number in pending.into_iter().rev().take(surplus as usize) {
            actions.push(ScaleAction::CancelPending(number));
            surplus -= 1;
        }
        let most = self.size.max.max(self.size.min) as usize;
        let above = (have as usize - actions.len()).saturating_sub(most).min(surplus as usize);
        actions.extend(self.releases(now, present, surplus as usize, above));
        actions
    }

    /// Releases up to `surplus` idle workers, and `above` of them even if they are busy: they end
    /// their tasks first. Workers that the pool did not launch are never released.
    fn releases(
        &self,
        now: Duration,
        present: &[PresentWorker],
        surplus: usize,
        above: usize,
    ) -> Vec<ScaleAction> {
        let launched = |worker: &&PresentWorker| worker.working && worker.launch.is_some();
        let mut launched: Vec<&PresentWorker> = present.iter().filter(launched).collect();
        launched.sort_by_key(|worker| worker.idle_since.is_none());
        let (first, others) = launched.split_at(above.min(launched.len()));
        let idle = |worker: &&&PresentWorker| {
            let since = worker.idle_since.map(|since| now.saturating_sub(since));
            since.is_some_and(|idle| idle >= self.size.idle)
        };
        let idle = others.iter().filter(idle).take(surplus - above);
        first.iter().chain(idle).map(|worker| ScaleAction::Release(worker.key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    fn scaler(min: u32, max: u32) -> Scaler {
        Scaler::new(PoolSize { min, max, idle: Duration::from_secs(60), drain: Duration::ZERO })
    }

    /// Workers launched by the pool, busy or idle for this many seconds.
    fn present(idle: &[Option<u64>]) -> Vec<PresentWorker> {
        let worker = |(n, idle): (u32, &Option<u64>)| PresentWorker {
            key: WorkerKey::new(n),
            launch: Some(u64::from(n)),
            idle_since: idle.map(|seconds| NOW - Duration::from_secs(seconds)),
            working: true,
        };
        (0..).zip(idle).map(worker).collect()
    }

    fn decide(
        scaler: &Scaler,
        present: &[PresentWorker],
        launches: &[(u64, LaunchState)],
    ) -> Vec<ScaleAction> {
        scaler.decide(NOW, 0, present, &launches.iter().copied().collect())
    }

    #[test]
    fn who_is_not_needed_goes_after_a_while_and_who_is_too_many_at_once() {
        let workers = present(&[None, Some(5), Some(100)]);
        let release = |n| ScaleAction::Release(WorkerKey::new(n));
        assert_eq!(decide(&scaler(1, 3), &workers, &[]), [release(2)]);
        assert_eq!(decide(&scaler(1, 1), &workers, &[]), [release(1), release(2)]);
        assert_eq!(decide(&scaler(0, 0), &workers, &[]), [release(1), release(2), release(0)]);
    }

    #[test]
    fn who_was_started_by_somebody_else_stays() {
        let mut workers = present(&[Some(100), Some(100)]);
        workers[0].launch = None;
        assert_eq!(decide(&scaler(0, 0), &workers, &[]), [ScaleAction::Release(WorkerKey::new(1))]);
        assert_eq!(decide(&scaler(1, 1), &workers, &[]), [], "it pushes out no launched worker");
    }

    #[test]
    fn a_worker_that_is_expected_back_is_neither_replaced_nor_withdrawn() {
        let launches = [(1, LaunchState::Returning), (2, LaunchState::Pending)];
        assert_eq!(decide(&scaler(3, 3), &[], &launches), [ScaleAction::Launch(1)]);
        assert_eq!(decide(&scaler(0, 0), &[], &launches), [ScaleAction::CancelPending(2)]);
    }
}
