//! Units per state: maintained counters, never a `count(*)`.

use serde::{Deserialize, Serialize};

use crate::unit::UnitState;

/// Units by state. Updated in the same transaction as the units, so always exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counts {
    /// Waiting for dependencies.
    pub blocked: u64,
    /// Waiting for their time.
    pub scheduled: u64,
    /// Waiting for a worker.
    pub ready: u64,
    /// Leased by a worker.
    pub leased: u64,
    /// Succeeded.
    pub done: u64,
    /// Failed.
    pub failed: u64,
    /// Cancelled.
    pub cancelled: u64,
}

impl Counts {
    /// All units.
    pub fn total(&self) -> u64 {
        self.live() + self.finished()
    }

    /// Units that have not ended.
    pub fn live(&self) -> u64 {
        self.blocked + self.scheduled + self.ready + self.leased
    }

    /// Units that have ended.
    pub fn finished(&self) -> u64 {
        self.done + self.failed + self.cancelled
    }

    /// The count of one state.
    pub fn of(&self, state: UnitState) -> u64 {
        let mut copy = *self;
        *copy.counter_mut(state)
    }

    /// The counter of one state.
    pub fn counter_mut(&mut self, state: UnitState) -> &mut u64 {
        match state {
            UnitState::Blocked => &mut self.blocked,
            UnitState::Scheduled => &mut self.scheduled,
            UnitState::Ready => &mut self.ready,
            UnitState::Leased => &mut self.leased,
            UnitState::Done => &mut self.done,
            UnitState::Failed => &mut self.failed,
            UnitState::Cancelled => &mut self.cancelled,
        }
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        for state in UnitState::ALL {
            *self.counter_mut(state) += other.of(state);
        }
    }
}

impl std::iter::Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |mut all, one| {
            all += one;
            all
        })
    }
}
