//! What becomes of a new unit: one decision for all stores.
//!
//! A store looks up the holder of the unit's dedup key, the states of its dependencies and the live
//! units under its limits. These functions say whether it is stored, and in which state.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::name::{Scope, TenantId, UnitId};
use crate::store::{Capacity, CapacityScope, SendRejection, SendResult};
use crate::time::Timestamp;
use crate::unit::{Dependencies, NewUnit, OnDependencyFailure, OnDuplicate, UnitState};
use crate::{Error, Result};

/// Most queues that a tenant's senders may use, shared ones included.
pub const MAX_QUEUES: u64 = 1_000;

/// Most streams that a tenant's senders may use. A stream is a kind in a queue, and in a batch one of its
/// own; lists and metrics add up all streams.
pub const MAX_STREAMS: u64 = 2_000;

/// How many more streams each batch of the tenant allows.
pub const MAX_BATCH_STREAMS: u64 = 10;

/// Most batches of a tenant that the store keeps, ended ones included.
pub const MAX_BATCHES: u64 = 10_000;

/// A capacity in bytes bounds live units. All stored units of a tenant, ended ones included, may take this
/// many times as much as its own capacity: otherwise the tenant could fill the disk with units that end at
/// once. The capacities of queues and lanes only make senders wait, so ended units do not count there.
pub const STORED_FACTOR: u64 = 100;

/// What the row of a stored unit takes besides its [`NewUnit::stored_bytes`].
pub const ROW_BYTES: u64 = 256;

impl Scope {
    /// Rejects the first unit of a queue if the tenant has `existing` others. An operator's programs
    /// have no such limit.
    pub fn check_new_queue(&self, existing: u64) -> Option<SendRejection> {
        self.check_new("queues", existing, MAX_QUEUES)
    }

    /// Rejects the first unit of a stream if the tenant has `existing` others, and `batches`.
    pub fn check_new_stream(&self, existing: u64, batches: u64) -> Option<SendRejection> {
        self.check_new("kinds in its queues", existing, MAX_STREAMS + MAX_BATCH_STREAMS * batches)
    }

    /// Rejects a new batch of a suspended tenant, and of one with `existing` others.
    pub fn check_new_batch(&self, tenant: &TenantId, suspended: bool, existing: u64) -> Result<()> {
        let rejection = match suspended {
            true => Some(SendRejection::Suspended(tenant.clone())),
            false => self.check_new("batches", existing, MAX_BATCHES),
        };
        rejection.map_or(Ok(()), |rejection| Err(Error::Invalid(rejection.to_string())))
    }

    fn check_new(&self, what: &str, existing: u64, limit: u64) -> Option<SendRejection> {
        let is_limited = self.tenant().is_some() && existing >= limit;
        is_limited.then(|| SendRejection::TooMany { what: what.to_owned(), limit })
    }
}

/// The live units under one capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitUsage {
    /// What the capacity applies to.
    pub bound: CapacityScope,
    /// The limits.
    pub capacity: Capacity,
    /// Live units.
    pub live: u64,
    /// Their [`NewUnit::stored_bytes`].
    pub bytes: u64,
    /// The bytes of all stored units, ended ones included, with [`ROW_BYTES`] each; `None` if they are not
    /// bounded.
    pub stored: Option<u64>,
}

impl LimitUsage {
    /// A capacity of which nothing is used.
    pub fn new(bound: CapacityScope, capacity: Capacity) -> Self {
        let stored = (bound == CapacityScope::Tenant && capacity.bytes.is_some()).then_some(0);
        Self { bound, capacity, live: 0, bytes: 0, stored }
    }

    /// Whether there is a limit at all.
    pub fn is_limited(&self) -> bool {
        self.capacity != Capacity::default()
    }

    /// Why there is no room for a unit of `bytes`.
    pub fn rejection(&self, bytes: u64) -> Option<SendRejection> {
        let exceeds = |max: u64| {
            let stored = self.stored.map(|stored| stored + bytes + ROW_BYTES);
            stored.is_some_and(|stored| stored > max.saturating_mul(STORED_FACTOR))
        };
        let limit = match self.capacity {
            Capacity { units: Some(max), .. } if self.live + 1 > max => format!("{max} units"),
            Capacity { bytes: Some(max), .. } if self.bytes + bytes > max => format!("{max} bytes"),
            Capacity { bytes: Some(max), .. } if exceeds(max) => format!(
                "{max} bytes, and {STORED_FACTOR} times as much with ended units, which are pruned in time"
            ),
            _ => return None,
        };
        Some(SendRejection::Full { bound: self.bound, live: self.live, bytes: self.bytes, limit })
    }
}

/// The limits that apply to one send, and how much of them is used. `S` identifies a lane, queue or
/// tenant in a store; lanes are numbered.
#[derive(Debug)]
pub struct CapacityCheck<S> {
    /// The limits that apply to the units of each lane, in the order of their checks.
    pub lanes: HashMap<i64, Vec<S>>,
    /// The usage of each limit.
    pub limits: BTreeMap<S, LimitUsage>,
}

impl<S> Default for CapacityCheck<S> {
    fn default() -> Self {
        Self { lanes: HashMap::new(), limits: BTreeMap::new() }
    }
}

impl<S: Ord> CapacityCheck<S> {
    /// Counts a unit of `bytes`, or returns the rejection if a limit is reached.
    pub fn admit(&mut self, lane: i64, bytes: u64) -> Option<SendRejection> {
        let scopes = self.lanes.get(&lane)?;
        let mut limits = scopes.iter().filter_map(|scope| self.limits.get(scope));
        if let Some(rejection) = limits.find_map(|usage| usage.rejection(bytes)) {
            return Some(rejection);
        }
        for scope in scopes {
            if let Some(usage) = self.limits.get_mut(scope) {
                usage.live += 1;
                usage.bytes += bytes;
                usage.stored = usage.stored.map(|stored| stored + bytes + ROW_BYTES);
            }
        }
        None
    }

    /// Uncounts a unit that ended as soon as it was stored. It still counts as stored.
    pub fn release(&mut self, lane: i64, bytes: u64) {
        for scope in self.lanes.get(&lane).into_iter().flatten() {
            if let Some(usage) = self.limits.get_mut(scope) {
                usage.live -= 1;
                usage.bytes -= bytes;
            }
        }
    }
}

/// The dependencies of a new unit.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UnitDependencies {
    /// Dependencies that have not ended. Empty if one has failed: the unit ends at once.
    pub open: Vec<UnitId>,
    /// One that failed or was cancelled, if that cancels the unit.
    pub failed: Option<UnitId>,
}

impl UnitDependencies {
    /// Looks up the state of each dependency. `state_of` returns `None` for a unit that does not
    /// exist or belongs to another tenant, which rejects the new unit.
    pub fn resolve<E>(
        after: &Dependencies,
        mut state_of: impl FnMut(UnitId) -> Result<Option<UnitState>, E>,
    ) -> Result<Result<Self, SendRejection>, E> {
        let (mut dependencies, mut listed) = (Self::default(), HashSet::new());
        for needs in &after.units {
            if !listed.insert(needs) {
                continue;
            }
            match state_of(*needs)? {
                None => return Ok(Err(SendRejection::UnknownDependency(*needs))),
                Some(UnitState::Failed | UnitState::Cancelled)
                    if after.on_failure == OnDependencyFailure::Cancel =>
                {
                    dependencies.failed = Some(*needs);
                }
                Some(state) if state.is_final() => {}
                Some(_) => dependencies.open.push(*needs),
            }
        }
        if dependencies.failed.is_some() {
            dependencies.open.clear();
        }
        Ok(Ok(dependencies))
    }
}

impl UnitDependencies {
    /// The open dependencies of a unit that was cancelled by one, when its batch is retried. `None` if
    /// one has failed, was cancelled or is gone.
    pub fn reopened<E>(
        after: Vec<UnitId>,
        state_of: impl FnMut(UnitId) -> Result<Option<UnitState>, E>,
    ) -> Result<Option<Vec<UnitId>>, E> {
        let after = Dependencies { units: after, on_failure: OnDependencyFailure::Cancel };
        let dependencies = Self::resolve(&after, state_of)?.ok().filter(|found| found.failed.is_none());
        Ok(dependencies.map(|found| found.open))
    }
}

impl OnDuplicate {
    /// The answer to a unit with a dedup key that `holder` has.
    pub fn answer(self, holder: UnitId) -> SendResult {
        match self {
            Self::Existing => SendResult::Existing(holder),
            Self::Rejected => SendResult::Rejected(SendRejection::Duplicate(holder)),
        }
    }
}

impl NewUnit {
    /// The state in which it starts, and its sort key in that state.
    pub fn initial_state(&self, blocked: bool, now: Timestamp) -> (UnitState, Timestamp) {
        match self.not_before {
            not_before if blocked => (UnitState::Blocked, not_before.unwrap_or(Timestamp::ZERO)),
            Some(at) if at > now => (UnitState::Scheduled, at),
            _ => (UnitState::Ready, self.priority.rank(now)),
        }
    }
}

impl SendResult {
    /// Why the unit was rejected.
    pub fn rejection(&self) -> Option<&SendRejection> {
        match self {
            Self::Rejected(rejection) => Some(rejection),
            Self::Created(_) | Self::Existing(_) => None,
        }
    }

    /// Whether it rejects the whole chunk of a batch.
    pub fn keeps_chunk_out(&self) -> bool {
        self.rejection().is_some_and(SendRejection::rejects_chunk)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn limited(bound: CapacityScope, units: Option<u64>, bytes: Option<u64>) -> LimitUsage {
        LimitUsage::new(bound, Capacity { units, bytes })
    }

    #[test]
    fn a_rejected_unit_uses_no_capacity() {
        let mut check = CapacityCheck::default();
        check.lanes.insert(7, vec!["lane", "queue"]);
        check.limits.insert("lane", limited(CapacityScope::Lane, Some(2), None));
        check.limits.insert("queue", limited(CapacityScope::Queue, None, Some(10)));
        assert_eq!(check.admit(7, 8), None);
        let full = |bound, limit: &str| {
            let limit = limit.to_owned();
            Some(SendRejection::Full { bound, live: 1, bytes: 8, limit })
        };
        assert_eq!(check.admit(7, 3), full(CapacityScope::Queue, "10 bytes"));
        assert_eq!(check.limits["lane"].live, 1, "the lane does not count it");
        check.release(7, 8);
        assert_eq!([check.admit(7, 1), check.admit(7, 1)], [None, None]);
        assert!(matches!(check.admit(7, 1), Some(SendRejection::Full { bound: CapacityScope::Lane, .. })));
        assert_eq!(check.admit(8, 99), None, "no limit applies to this lane");
    }

    #[test]
    fn a_unit_waits_for_open_dependencies_or_ends_with_a_failed_one() {
        let [open, done, failed] = [UnitId::new(), UnitId::new(), UnitId::new()];
        let resolve = |units: Vec<UnitId>, on_failure| {
            let after = Dependencies { units, on_failure };
            let state = |id| {
                let states = [(open, UnitState::Ready), (done, UnitState::Done), (failed, UnitState::Failed)];
                Ok::<_, Infallible>(states.iter().find(|(one, _)| *one == id).map(|(_, s)| *s))
            };
            let Ok(found) = UnitDependencies::resolve(&after, state);
            found.map(|found| (found.open, found.failed))
        };
        let (cancel, release) = (OnDependencyFailure::Cancel, OnDependencyFailure::Release);
        assert_eq!(resolve(vec![open, done, open], cancel), Ok((vec![open], None)));
        assert_eq!(resolve(vec![open, failed], cancel), Ok((vec![], Some(failed))));
        assert_eq!(resolve(vec![open, failed], release), Ok((vec![open], None)));
        let unknown = UnitId::new();
        assert_eq!(resolve(vec![open, unknown], release), Err(SendRejection::UnknownDependency(unknown)));
    }
}
