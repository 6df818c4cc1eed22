//! The passes of tenants and lanes between claims.
//!
//! A process keeps its own, in memory: a sum of fair shares is fair. Only claims with the same
//! filter are compared, since other workers serve other lanes, at another speed.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};

use super::{LaneShare, PassQueue, STRIDE, StrideCursor, TenantShare, effective_weight, step};
use crate::name::{BatchId, Kind, QueueName, SessionId, TenantId};
use crate::store::{ClaimRequest, Queues};

/// Claim filters remembered at most. Beyond this all tenants start level again.
const MAX_FILTERS: usize = 1_000;

/// How far behind an excluded tenant may stay: it is served 64 units before others at weight 1.
const MAX_CREDIT: u64 = 64 * STRIDE;

/// Hash of a claim's filter: everything it asks for except the amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClaimFilterHash(u64);

impl ClaimFilterHash {
    /// Hashes the filter of a claim.
    pub fn of(claim: &ClaimRequest) -> Self {
        let tenant = claim.scope.tenant().map(TenantId::as_str);
        let queues: Option<Vec<&str>> = match &claim.queues {
            Queues::All => None,
            Queues::Named(names) => Some(names.iter().map(QueueName::as_str).collect()),
        };
        let batch = claim.batch.as_ref().map(BatchId::as_str);
        let kinds: Vec<&str> = claim.kinds.iter().map(Kind::as_str).collect();
        Self(hash_of(&(tenant, queues, batch, kinds)))
    }
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The passes of tenants and lanes, by claim filter.
#[derive(Debug)]
pub struct StrideState<L>(HashMap<ClaimFilterHash, FilterState<L>>);

/// What claims with one filter have served.
#[derive(Debug)]
struct FilterState<L> {
    tenants: Level<TenantId>,
    /// The lanes of tenants with more than one.
    lanes: HashMap<TenantId, Level<L>>,
    /// Tenants that the last claim excluded. They keep their passes.
    excluded: HashSet<TenantId>,
}

/// Passes among which the smallest goes next.
#[derive(Debug)]
struct Level<K> {
    /// The pass of the entry that was served last. Entries that were never empty are not behind it,
    /// so an entry that is has been empty, paused or capped, and earned no credit.
    now: u64,
    /// Passes; a missing one, or one before `now`, counts as `now`.
    passes: HashMap<K, u64>,
}

impl<L> Default for StrideState<L> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<L> Default for FilterState<L> {
    fn default() -> Self {
        Self { tenants: Level::default(), lanes: HashMap::new(), excluded: HashSet::new() }
    }
}

impl<K> Default for Level<K> {
    fn default() -> Self {
        Self { now: 0, passes: HashMap::new() }
    }
}

impl<L: Clone + Eq + Hash> StrideState<L> {
    /// A cursor over these shares that continues after the last claim with this filter. The first
    /// claim orders by a hash of its session, so that short-lived processes do not all begin with
    /// the same tenant.
    pub fn cursor(
        &self,
        filter: ClaimFilterHash,
        session: SessionId,
        mut tenants: Vec<TenantShare>,
        mut lanes: Vec<LaneShare<L>>,
    ) -> StrideCursor<L> {
        let state = self.0.get(&filter);
        for tenant in tenants.iter_mut() {
            tenant.pass = match state {
                Some(state) => state.tenant_pass(&tenant.id),
                None => phase(session, &tenant.id, tenant.weight),
            };
        }
        for lane in &mut lanes {
            let level = state.and_then(|state| state.lanes.get(&tenants[lane.tenant].id));
            lane.pass = match level {
                Some(level) => level.pass(&lane.key),
                None => phase(session, &lane.key, lane.weight),
            };
        }
        let mut cursor = StrideCursor::new(tenants, lanes);
        // Tenants that were excluded return behind `now`, and keep that position over many claims.
        let first = cursor.tenants.iter().map(|tenant| tenant.pass).min();
        cursor.order.served = state.map_or(0, |state| first.unwrap_or(0).min(state.tenants.now));
        for (order, tenant) in cursor.lane_orders.iter_mut().zip(&cursor.tenants) {
            let level = state.and_then(|state| state.lanes.get(&tenant.id));
            order.served = level.map_or(0, |level| level.now);
        }
        cursor
    }

    /// Stores where a cursor ended, for the next claim. A single tenant or lane competes with no
    /// other, and is not stored.
    pub fn save(&mut self, filter: ClaimFilterHash, cursor: &StrideCursor<L>, excluded: &[TenantId]) {
        if cursor.lanes.len() <= 1 && excluded.is_empty() {
            return;
        }
        if self.0.len() >= MAX_FILTERS && !self.0.contains_key(&filter) {
            self.0.clear();
        }
        let state = self.0.entry(filter).or_default();
        for id in excluded {
            let now = state.tenants.now;
            state.tenants.passes.entry(id.clone()).or_insert(now);
        }
        state.excluded = excluded.iter().cloned().collect();
        if cursor.tenants.len() > 1 || !excluded.is_empty() {
            let passes = cursor.tenants.iter().map(|tenant| (tenant.id.clone(), tenant.pass));
            state.tenants.advance(&cursor.order, passes, |id| state.excluded.contains(id));
        }
        state.save_lanes(cursor);
    }

    /// Takes back the charge for units that a lane of `cursor` was to give, and did not.
    pub fn refund(&mut self, filter: ClaimFilterHash, cursor: &StrideCursor<L>, at: usize, units: u64) {
        let Some(state) = self.0.get_mut(&filter) else { return };
        let lane = &cursor.lanes[at];
        let tenant = &cursor.tenants[lane.tenant];
        if cursor.tenants.len() > 1 {
            let step = step(effective_weight(lane.weight, tenant.weight));
            state.tenants.refund(&tenant.id, units.saturating_mul(step));
        }
        let divided = cursor.lane_orders[lane.tenant].entries > 1;
        if let Some(level) = state.lanes.get_mut(&tenant.id).filter(|_| divided) {
            level.refund(&lane.key, units.saturating_mul(step(lane.weight)));
        }
    }
}

impl<L: Clone + Eq + Hash> FilterState<L> {
    fn tenant_pass(&self, id: &TenantId) -> u64 {
        let Level { now, passes } = &self.tenants;
        let credit = if self.excluded.contains(id) { MAX_CREDIT } else { 0 };
        passes.get(id).copied().unwrap_or(*now).max(now.saturating_sub(credit))
    }

    fn save_lanes(&mut self, cursor: &StrideCursor<L>) {
        let mut lanes = HashMap::new();
        for (order, tenant) in cursor.lane_orders.iter().zip(&cursor.tenants) {
            if order.entries > 1 {
                let level = self.lanes.remove(&tenant.id).unwrap_or_default();
                lanes.insert(&tenant.id, (level, order, Vec::new()));
            }
        }
        for lane in &cursor.lanes {
            if let Some((_, _, passes)) = lanes.get_mut(&cursor.tenants[lane.tenant].id) {
                passes.push((lane.key.clone(), lane.pass));
            }
        }
        self.lanes = lanes
            .into_iter()
            .map(|(id, (mut level, order, passes))| {
                level.advance(order, passes.into_iter(), |_| false);
                (id.clone(), level)
            })
            .collect();
    }
}

impl<K: Eq + Hash> Level<K> {
    fn pass(&self, key: &K) -> u64 {
        self.passes.get(key).copied().unwrap_or(self.now).max(self.now)
    }

    fn advance(
        &mut self,
        order: &PassQueue,
        passes: impl Iterator<Item = (K, u64)>,
        keeps: impl Fn(&K) -> bool,
    ) {
        self.now = order.served;
        self.passes.retain(|key, pass| *pass > order.served || keeps(key));
        // All passes of this claim, for a refund.
        self.passes.extend(passes);
    }

    fn refund(&mut self, key: &K, charge: u64) {
        if let Some(pass) = self.passes.get_mut(key) {
            *pass = pass.saturating_sub(charge);
            self.now = self.now.min(*pass);
        }
    }
}

/// A position within the first turn of an entry.
fn phase(session: SessionId, key: &impl Hash, weight: u32) -> u64 {
    hash_of(&(session.as_bytes(), key)) % step(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILTER: ClaimFilterHash = ClaimFilterHash(1);

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    /// A tenant of weight 1 with one lane for each of these names.
    fn cursor(state: &StrideState<u32>, names: &[&str]) -> StrideCursor<u32> {
        let tenants = names.iter().map(|name| TenantShare::new(tenant(name), 1)).collect();
        let lane = |at| LaneShare { available: 1_000, ..LaneShare::new(0, at, 1) };
        let lanes = (0..names.len()).map(lane).collect();
        state.cursor(FILTER, SessionId::from_bytes([0; 16]), tenants, lanes)
    }

    /// How many of `units` go to each tenant.
    fn serve(state: &mut StrideState<u32>, names: &[&str], units: usize, excluded: &[TenantId]) -> Vec<u32> {
        let mut cursor = cursor(state, names);
        let mut parts = vec![0; names.len()];
        for _ in 0..units {
            let at = cursor.next_lane().unwrap();
            cursor.serve(at);
            parts[at] += 1;
        }
        state.save(FILTER, &cursor, excluded);
        parts
    }

    #[test]
    fn a_tenant_that_was_away_joins_level() {
        let mut state = StrideState::default();
        assert_eq!(serve(&mut state, &["a", "b"], 100, &[]), [50, 50]);
        assert_eq!(serve(&mut state, &["a", "b", "c"], 30, &[]), [10, 10, 10]);
    }

    #[test]
    fn single_claims_are_shared() {
        let mut state = StrideState::default();
        let served = (0..40).map(|_| serve(&mut state, &["a", "b"], 1, &[])[0]).sum::<u32>();
        assert_eq!(served, 20);
    }

    #[test]
    fn a_tenant_that_leaves_and_returns_gains_nothing() {
        let mut state = StrideState::default();
        let mut part = 0;
        for _ in 0..40 {
            part += serve(&mut state, &["a", "b"], 1, &[])[1];
            part += serve(&mut state, &["a", "c"], 1, &[])[1];
            serve(&mut state, &["a", "d"], 1, &[]);
        }
        assert!(part <= 60, "{part} of 120");
    }

    #[test]
    fn an_excluded_tenant_keeps_its_position_for_a_while() {
        let mut state = StrideState::default();
        serve(&mut state, &["a", "b", "c"], 3, &[]);
        serve(&mut state, &["b", "c"], 20, &[tenant("a")]);
        assert_eq!(serve(&mut state, &["a", "b", "c"], 10, &[]), [10, 0, 0]);
        serve(&mut state, &["b", "c"], 2_000, &[tenant("a")]);
        assert!(serve(&mut state, &["a", "b", "c"], 1_000, &[])[0] < 400, "its credit is bounded");
    }

    #[test]
    fn a_tenant_that_was_served_while_others_were_excluded_waits_until_they_are_level() {
        let mut state = StrideState::default();
        serve(&mut state, &["a", "b", "c"], 3, &[]);
        serve(&mut state, &["c"], 15, &[tenant("a"), tenant("b")]);
        let mut parts = [0; 3];
        for _ in 0..30 {
            let served = serve(&mut state, &["a", "b", "c"], 1, &[]);
            parts.iter_mut().zip(served).for_each(|(sum, part)| *sum += part);
        }
        assert!(parts[2] <= 1, "{parts:?}");
    }

    #[test]
    fn units_that_were_not_taken_are_refunded() {
        let mut state = StrideState::default();
        let before = cursor(&state, &["a", "b"]);
        serve(&mut state, &["a", "b"], 20, &[]);
        state.refund(FILTER, &before, 0, 10);
        assert!(serve(&mut state, &["a", "b"], 10, &[])[0] >= 9);
    }

    #[test]
    fn a_tenant_whose_unit_must_wait_for_slots_stays_next() {
        let mut state = StrideState::default();
        serve(&mut state, &["light", "heavy"], 2, &[]);
        for _ in 0..5 {
            let before = cursor(&state, &["light", "heavy"]);
            let first = before.clone().next_lane();
            let parts = serve(&mut state, &["light", "heavy"], 3, &[]);
            for (at, part) in parts.iter().enumerate() {
                state.refund(FILTER, &before, at, u64::from(*part));
            }
            assert_eq!(cursor(&state, &["light", "heavy"]).next_lane(), first);
        }
    }

    #[test]
    fn few_passes_are_remembered() {
        let mut state = StrideState::default();
        for nth in 0..100 {
            serve(&mut state, &["a", &format!("b{nth}")], 10, &[]);
        }
        assert!(state.0[&FILTER].tenants.passes.len() <= 3);
    }
}
