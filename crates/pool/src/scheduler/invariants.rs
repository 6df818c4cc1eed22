//! Executable invariants of the scheduler: checked after every event in tests and debug builds.

use super::worker_slot::Phase;
use super::{Counts, Table};

impl<J> Table<J> {
    /// The first violated invariant, if there is one.
    pub(crate) fn fault(&self) -> Option<String> {
        let Counts { queue, line, .. } = self.counts();
        let free = self.workers.iter().find(|(_, seat)| seat.is_free()).map(|(id, _)| *id);
        if let Some(id) = free.filter(|_| queue + line > 0) {
            return Some(format!("worker {id} is free while {} calls wait", queue + line));
        }
        if line > 0 && queue < self.settings.queue {
            return Some(format!("{line} in line, and only {queue} in the queue"));
        }
        if self.seated() > self.settings.max && !self.shrinking {
            return Some(format!("{} seats, of {}", self.seated(), self.settings.max));
        }
        if self.closing && line > 0 {
            return Some("somebody waits in line for a pool that ends".to_owned());
        }
        self.seat_fault()
    }

    fn seat_fault(&self) -> Option<String> {
        self.workers.iter().find_map(|(id, seat)| {
            let wrong = match seat.phase {
                Phase::Starting => seat.in_flight > 0 || seat.calls > 0,
                Phase::Working => seat.replaces.is_some(),
                Phase::Leaving(_) | Phase::Abandoned => false,
            };
            let lost = seat.in_flight as u64 > seat.calls;
            (wrong || lost).then(|| format!("worker {id}: {seat:?}"))
        })
    }
}
