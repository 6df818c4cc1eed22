//! An array that is paused: what of it has not begun goes back to the store, which will not give it to
//! anybody until it is resumed.

use longshore::{BatchId, UnitId};

use super::Core;
use crate::server::bodies::Source;
use crate::wire::ToWorker;

impl Core {
    /// Takes back what of this array waits here or at workers.
    pub(super) fn on_paused(&mut self, array: BatchId) {
        let Some(body) = self.bodies.number_of(&Source::Batch(array)) else { return };
        let all = self.board.tasks().filter(|(_, task)| task.cargo.body == body);
        let all: Vec<UnitId> = all.map(|(unit, _)| unit).collect();
        for unit in all {
            match self.board.holder(unit) {
                None => self.give_back(unit),
                Some(_) if self.board.has_begun(unit) => {}
                Some(seat) => {
                    self.recalled.insert(unit);
                    let told = self.board.task(unit).map(|task| task.told);
                    self.tell(seat, ToWorker::Recall(told.into_iter().collect()));
                }
            }
        }
        self.ends.hurry();
    }

    /// What a worker has returned goes on to the store, if it was recalled for that.
    pub(super) fn on_returned(&mut self, unit: UnitId) {
        if self.recalled.remove(&unit) {
            self.give_back(unit);
            self.ends.hurry();
        }
    }
}
