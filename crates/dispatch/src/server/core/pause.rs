//! Paused arrays: units that have not started go back to the store, which hands none out until the
//! array is resumed.

use longshore::{BatchId, UnitId};

use super::Core;
use crate::wire::ToWorker;

impl Core {
    /// Takes back the array's units that are queued here or wait at workers.
    pub(super) fn on_paused(&mut self, array: BatchId) {
        let all = self.scheduler.tasks().filter(|(_, task)| task.data.batch.as_ref() == Some(&array));
        let all: Vec<UnitId> = all.map(|(unit, _)| unit).collect();
        for unit in all {
            match self.scheduler.holder(unit) {
                None => self.return_to_store(unit),
                Some(_) if self.scheduler.has_started(unit) => {}
                Some(worker) => {
                    self.retracted.insert(unit);
                    let lease = self.scheduler.task(unit).map(|task| task.worker_lease);
                    self.send(worker, ToWorker::Retract(lease.into_iter().collect()));
                }
            }
        }
        self.results.flush_soon();
    }

    /// Returns a unit to the store if it was retracted because of a pause.
    pub(super) fn on_returned(&mut self, unit: UnitId) {
        if self.retracted.remove(&unit) {
            self.return_to_store(unit);
            self.results.flush_soon();
        }
    }
}
