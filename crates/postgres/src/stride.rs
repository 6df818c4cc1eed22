//! Stride scheduling among lanes. Each process keeps its own state.
//!
//! Processes need not coordinate: a sum of fair shares is fair. A lane without ready units earns no
//! credit: when it has some again, it joins level with the next lane in order. Only lanes of claims
//! with the same filter are compared, since other lanes are served by other workers at another
//! speed.
//!
//! A claim is charged when it is planned, and refunded for units that it could not take. So of
//! several concurrent claims each starts where the previous one will end.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use longshore_core::store::{ClaimRequest, Queues};
use longshore_core::stride_scheduler::{LaneShare, entry_level, entry_pass, step};
use longshore_core::{BatchId, Kind, QueueName, TenantId};

mod scan_start;

pub(crate) use scan_start::{ScanMode, ScanStarts};

/// Lanes and claim filters remembered at most. Beyond this all lanes start level again.
const MAX_REMEMBERED: usize = 10_000;

/// The stride passes of lanes, and where scans start.
#[derive(Debug, Default)]
pub(crate) struct StrideState {
    passes: Mutex<LanePasses>,
    pub(crate) scan_starts: ScanStarts,
}

#[derive(Debug, Default)]
struct LanePasses {
    passes: HashMap<i64, u64>,
    /// Lanes that still had units after the last claim with each filter.
    open: HashMap<ClaimFilterHash, BTreeSet<i64>>,
    /// Filters with a last claim that could not use the fast path.
    full_claims: HashSet<ClaimFilterHash>,
}

/// Hash of a claim's filter: everything it asks for except the amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ClaimFilterHash(u64);

impl ClaimFilterHash {
    /// Hashes the filter of a claim.
    pub(crate) fn of(claim: &ClaimRequest) -> Self {
        let tenant = claim.scope.tenant().map(TenantId::as_str);
        let queues: Option<Vec<&str>> = match &claim.queues {
            Queues::All => None,
            Queues::Named(names) => Some(names.iter().map(QueueName::as_str).collect()),
        };
        let batch = claim.batch.as_ref().map(BatchId::as_str);
        let kinds: Vec<&str> = claim.kinds.iter().map(Kind::as_str).collect();
        let mut hasher = DefaultHasher::new();
        (tenant, queues, batch, kinds).hash(&mut hasher);
        Self(hasher.finish())
    }
}

impl StrideState {
    fn with<T>(&self, change: impl FnOnce(&mut LanePasses) -> T) -> T {
        change(&mut self.passes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Prepares the passes of these lanes for a claim: lanes that had no units at the last claim
    /// with this filter join level with the others.
    pub(crate) fn join(&self, filter: ClaimFilterHash, lanes: &[i64]) {
        self.with(|state| {
            if state.passes.len().max(state.open.len()).max(state.full_claims.len()) > MAX_REMEMBERED {
                *state = LanePasses::default();
            }
            let LanePasses { passes, open, .. } = state;
            let none = BTreeSet::new();
            let open = open.get(&filter).unwrap_or(&none);
            let pass = |lane: &i64| passes.get(lane).copied().unwrap_or(0);
            let level = entry_level(lanes.iter().map(|lane| (pass(lane), !open.contains(lane))));
            let joined: Vec<(i64, u64)> = lanes
                .iter()
                .filter(|lane| !open.contains(lane))
                .map(|lane| (*lane, entry_pass(pass(lane), level)))
                .collect();
            passes.extend(joined);
        });
    }

    /// Lets `plan` move the passes of these lanes, under the lock.
    pub(crate) fn plan<T>(
        &self,
        lanes: &mut [(i64, LaneShare)],
        plan: impl FnOnce(&mut [(i64, LaneShare)]) -> T,
    ) -> T {
        self.with(|state| {
            for (lane, share) in lanes.iter_mut() {
                share.pass = state.passes.get(lane).copied().unwrap_or(0);
            }
            let planned = plan(lanes);
            state.passes.extend(lanes.iter().map(|(lane, share)| (*lane, share.pass)));
            planned
        })
    }

    /// Charges a lane that was claimed from alone. Otherwise a lane that was served a moment
    /// before, or by claims with another filter, would count as ahead of this one for ever.
    pub(crate) fn charge(&self, lane: i64, weight: u32, units: u64) {
        self.with(|state| {
            let pass = state.passes.entry(lane).or_default();
            *pass = pass.saturating_add(units.saturating_mul(step(weight)));
        });
    }

    /// Records whether a claim found more than one stream of plain units.
    pub(crate) fn set_needs_full_claim(&self, filter: ClaimFilterHash, needed: bool) {
        self.with(|state| match needed {
            true => state.full_claims.insert(filter),
            false => state.full_claims.remove(&filter),
        });
    }

    /// Whether the last claim with this filter needed the full claim.
    pub(crate) fn needs_full_claim(&self, filter: ClaimFilterHash) -> bool {
        self.with(|state| state.full_claims.contains(&filter))
    }

    /// Refunds a lane for units that were planned and not claimed.
    pub(crate) fn refund(&self, lane: i64, weight: u32, units: u64) {
        self.with(|state| {
            if let Some(pass) = state.passes.get_mut(&lane) {
                *pass = pass.saturating_sub(units.saturating_mul(step(weight)));
            }
        });
    }

    /// Records which lanes still have units.
    pub(crate) fn set_open(&self, filter: ClaimFilterHash, open: BTreeSet<i64>) {
        self.with(|state| state.open.insert(filter, open));
    }
}

#[cfg(test)]
mod tests {
    use longshore_core::stride_scheduler::StrideCursor;

    use super::*;

    const FILTER: ClaimFilterHash = ClaimFilterHash(1);

    fn serve(stride: &StrideState, lanes: &[i64], units: usize) -> Vec<i64> {
        let share = |lane: &i64| (*lane, LaneShare { pass: 0, weight: 1, available: 1_000, tenant: None });
        let mut shares: Vec<_> = lanes.iter().map(share).collect();
        stride.plan(&mut shares, |shares| {
            let before = shares.iter().map(|(_, share)| *share).collect();
            let mut cursor = StrideCursor::new(before, Vec::new());
            let mut served = Vec::new();
            for _ in 0..units {
                let at = cursor.next_lane().unwrap();
                cursor.serve(at);
                served.push(shares[at].0);
            }
            for ((_, share), after) in shares.iter_mut().zip(&cursor.shares) {
                share.pass = after.pass;
            }
            served
        })
    }

    fn count(served: &[i64], lane: i64) -> usize {
        served.iter().filter(|one| **one == lane).count()
    }

    #[test]
    fn who_was_away_joins_level() {
        let stride = StrideState::default();
        stride.join(FILTER, &[1, 2]);
        serve(&stride, &[1, 2], 100);
        stride.set_open(FILTER, BTreeSet::from([1, 2]));
        stride.join(FILTER, &[1, 2, 3]);
        let served = serve(&stride, &[1, 2, 3], 30);
        assert_eq!([count(&served, 1), count(&served, 2), count(&served, 3)], [10, 10, 10]);
    }

    #[test]
    fn who_ran_ahead_does_not_get_back_by_leaving() {
        let stride = StrideState::default();
        stride.join(FILTER, &[1, 2]);
        serve(&stride, &[1], 50);
        stride.set_open(FILTER, BTreeSet::from([2]));
        stride.join(FILTER, &[1, 2]);
        assert_eq!(count(&serve(&stride, &[1, 2], 50), 1), 0);
    }

    #[test]
    fn who_was_served_alone_is_charged_as_among_others() {
        let stride = StrideState::default();
        stride.join(FILTER, &[1, 2]);
        serve(&stride, &[2], 50);
        stride.join(FILTER, &[1]);
        stride.charge(1, 1, 200);
        stride.set_open(FILTER, BTreeSet::from([1]));
        stride.join(FILTER, &[1, 2]);
        assert_eq!(count(&serve(&stride, &[1, 2], 50), 1), 25, "the earlier lead of lane 2 does not count");
    }

    #[test]
    fn what_was_not_taken_is_given_back() {
        let stride = StrideState::default();
        stride.join(FILTER, &[1, 2]);
        serve(&stride, &[1, 2], 20);
        stride.refund(1, 1, 10);
        assert_eq!(count(&serve(&stride, &[1, 2], 10), 1), 10);
    }
}
