//! What this process remembers of units it claimed, so that their finish need not look it up.
//!
//! A unit's stream and size never change, so a memory cannot be wrong, only missing.

use std::collections::HashMap;

use longshore_core::UnitId;

/// More than any worker holds; beyond it the memory starts anew.
const MOST: usize = 100_000;

/// The facts of a unit that its counters need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) stream: i64,
    pub(crate) bytes: i64,
}

/// Remembered units.
#[derive(Debug, Default)]
pub(crate) struct Known(HashMap<UnitId, Facts>);

impl Known {
    /// Remembers a unit that was claimed.
    pub(crate) fn remember(&mut self, unit: UnitId, facts: Facts) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(unit, facts);
    }

    /// What is known of a unit that ends.
    pub(crate) fn take(&mut self, unit: UnitId) -> Option<Facts> {
        self.0.remove(&unit)
    }
}
