//! An array that is paused: what of it has not begun goes back to the store, which will not give it to
//! anybody until it is resumed.

use longshore::{BatchId, UnitId};

use super::Core;
use crate::server::script_cache::ScriptSource;
use crate::wire::ToWorker;

impl Core {
    /// Takes back what of this array waits here or at workers.
    pub(super) fn on_paused(&mut self, array: BatchId) {
        let Some(script_id) = self.scripts.id_of(&ScriptSource::Batch(array)) else { return };
        let all = self.scheduler.tasks().filter(|(_, task)| task.data.script_id == script_id);
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

    /// What a worker has returned goes on to the store, if it was recalled for that.
    pub(super) fn on_returned(&mut self, unit: UnitId) {
        if self.retracted.remove(&unit) {
            self.return_to_store(unit);
            self.results.flush_soon();
        }
    }
}
