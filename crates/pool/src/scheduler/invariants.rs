//! Executable invariants of the scheduler: checked after every event in tests and debug builds.

use super::worker_slot::Phase;
use super::{PoolCounts, ScheduledCall, WorkerScheduler};

impl<J: ScheduledCall> WorkerScheduler<J> {
    /// The first violated invariant, if there is one.
    pub(crate) fn invariant_violation(&self) -> Option<String> {
        let PoolCounts { queue, overflow, .. } = self.counts();
        let free = self.workers.iter().find(|(_, slot)| slot.is_idle()).map(|(id, _)| *id);
        if let Some(id) = free.filter(|_| queue + overflow > 0) {
            return Some(format!("worker {id} is free while {} calls wait", queue + overflow));
        }
        if overflow > 0 && queue < self.settings.queue {
            return Some(format!("{overflow} calls wait for queue space, but the queue has only {queue}"));
        }
        if self.active_workers() > self.settings.max && !self.shrinking {
            return Some(format!("{} workers, limit {}", self.active_workers(), self.settings.max));
        }
        if self.closing && overflow > 0 {
            return Some("a call waits for queue space in a closing pool".to_owned());
        }
        self.slot_violation()
    }

    fn slot_violation(&self) -> Option<String> {
        self.workers.iter().find_map(|(id, slot)| {
            let wrong = match slot.phase {
                Phase::Starting => slot.in_flight > 0 || slot.calls > 0,
                Phase::Working => slot.replaces.is_some(),
                Phase::Leaving(_) | Phase::Abandoned => false,
            };
            let lost = slot.in_flight as u64 > slot.calls;
            let excess = slot.max_calls.is_some_and(|most| slot.calls > most);
            let shared = slot.isolated && slot.in_flight > 1;
            (wrong || lost || excess || shared).then(|| format!("worker {id}: {slot:?}"))
        })
    }
}
