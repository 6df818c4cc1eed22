//! What this process remembers of units it claimed and of calls it journalled, so that their end need
//! not look it up.
//!
//! A unit's stream and size never change, so a memory of them cannot be wrong, only missing. That a call
//! was journalled is only a hint: whoever relies on it sees when it is wrong.

use std::collections::{HashMap, HashSet};

use longshore_core::{CallId, UnitId};

/// More than any worker holds; beyond it the memory starts anew.
const MOST: usize = 100_000;

/// The facts of a unit that its counters need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) stream: i64,
    pub(crate) bytes: i64,
}

/// Remembered units and calls.
#[derive(Debug, Default)]
pub(crate) struct Known {
    units: HashMap<UnitId, Facts>,
    calls: HashSet<CallId>,
}

impl Known {
    /// Remembers a unit that was claimed.
    pub(crate) fn remember(&mut self, unit: UnitId, facts: Facts) {
        if self.units.len() >= MOST {
            self.units.clear();
        }
        self.units.insert(unit, facts);
    }

    /// What is known of a unit that ends.
    pub(crate) fn take(&mut self, unit: UnitId) -> Option<Facts> {
        self.units.remove(&unit)
    }

    /// Remembers a call that was journalled and has not ended.
    pub(crate) fn journalled(&mut self, call: CallId) {
        if self.calls.len() >= MOST {
            self.calls.clear();
        }
        self.calls.insert(call);
    }

    /// Whether a call was journalled and has not ended, as far as is known.
    pub(crate) fn is_journalled(&self, call: CallId) -> bool {
        self.calls.contains(&call)
    }

    /// Forgets a call that ends.
    pub(crate) fn forget(&mut self, call: CallId) {
        self.calls.remove(&call);
    }
}
