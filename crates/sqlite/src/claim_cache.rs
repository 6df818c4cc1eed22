//! Caches what this process claimed and which calls it wrote, so that their end needs no look-up;
//! and the turns of tenants at the next claim.
//!
//! A unit's stream and size never change, so an entry cannot be wrong, only missing. That a call
//! was written is only a hint: the statements that rely on it detect when it is wrong.

use std::collections::{HashMap, HashSet};

use longshore_core::stride_scheduler::StrideState;
use longshore_core::{CallId, UnitId};

/// More than any worker holds; beyond it the cache is cleared.
const MAX_ENTRIES: usize = 100_000;

/// The columns of a unit that its counters need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CachedUnit {
    pub(crate) stream: i64,
    pub(crate) bytes: i64,
}

/// Cached units and calls, and the stride schedule.
#[derive(Debug, Default)]
pub(crate) struct ClaimCache {
    /// By lane number.
    pub(crate) stride: StrideState<i64>,
    /// The last cap key that maintenance checked, if there are more.
    pub(crate) unparked_until: String,
    units: HashMap<UnitId, CachedUnit>,
    calls: HashSet<CallId>,
}

impl ClaimCache {
    /// Adds a claimed unit.
    pub(crate) fn insert(&mut self, unit: UnitId, cached: CachedUnit) {
        if self.units.len() >= MAX_ENTRIES {
            self.units.clear();
        }
        self.units.insert(unit, cached);
    }

    /// Removes a unit that ends, and returns its columns.
    pub(crate) fn take(&mut self, unit: UnitId) -> Option<CachedUnit> {
        self.units.remove(&unit)
    }

    /// Adds a call that was written and has not ended.
    pub(crate) fn insert_call(&mut self, call: CallId) {
        if self.calls.len() >= MAX_ENTRIES {
            self.calls.clear();
        }
        self.calls.insert(call);
    }

    /// Whether a call was written and has not ended, as far as is known.
    pub(crate) fn has_call(&self, call: CallId) -> bool {
        self.calls.contains(&call)
    }

    /// Removes a call that ends.
    pub(crate) fn remove_call(&mut self, call: CallId) {
        self.calls.remove(&call);
    }
}
