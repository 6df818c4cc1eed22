//! Stride scheduling: divides a claim between tenants, and a tenant's part between its lanes.
//!
//! Each tenant has a pass; the tenant with the smallest pass goes next, and its pass grows by
//! `STRIDE / weight`. Over any period each tenant is served in proportion to its weight, however
//! many lanes, kinds or batches its units are in. The lanes of a tenant are ordered among themselves
//! in the same way. [`StrideState`] remembers the passes between claims.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::name::TenantId;

mod state;

pub use state::{ClaimFilterHash, StrideState};

/// How far a pass moves per unit at weight 1.
pub const STRIDE: u64 = 1 << 20;

/// How many units of one tenant a claim looks at without taking them.
const MAX_PASSED_OVER: u32 = 5_000;

/// A tenant with claimable units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantShare {
    /// The tenant.
    pub id: TenantId,
    /// Its weight relative to the other tenants. At least 1.
    pub weight: u32,
    /// How many more units its cap permits, over all its lanes.
    pub allowed: u64,
    /// Its position in the schedule; the smallest goes next.
    pub pass: u64,
}

impl TenantShare {
    /// A tenant without a cap.
    pub fn new(id: TenantId, weight: u32) -> Self {
        Self { id, weight, allowed: u64::MAX, pass: 0 }
    }
}

/// A lane with claimable units. `L` identifies it within its tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneShare<L> {
    /// The lane.
    pub key: L,
    /// Index of its tenant in [`StrideCursor::tenants`].
    pub tenant: usize,
    /// Its weight relative to the tenant's other lanes, and a factor of the tenant's weight for
    /// units of this lane. At least 1.
    pub weight: u32,
    /// How many units it can provide: ready ones, as far as its cap permits.
    pub available: u64,
    /// Its position among the tenant's lanes; the smallest goes next.
    pub pass: u64,
}

impl<L> LaneShare<L> {
    /// A lane of the tenant at this index.
    pub fn new(key: L, tenant: usize, weight: u32) -> Self {
        Self { key, tenant, weight, available: 0, pass: 0 }
    }
}

/// Walks lanes in stride order, within the caps of their tenants.
#[derive(Debug, Clone)]
pub struct StrideCursor<L> {
    tenants: Vec<TenantShare>,
    lanes: Vec<LaneShare<L>>,
    order: PassQueue,
    /// The order of each tenant's lanes.
    lane_orders: Vec<PassQueue>,
    /// The units of each tenant that were looked at and not taken.
    passed_over: Vec<u32>,
}

/// Entries in the order of their passes. An entry with an outdated pass is skipped.
#[derive(Debug, Clone, Default)]
struct PassQueue {
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    /// The largest pass that was served.
    served: u64,
    entries: usize,
}

impl PassQueue {
    fn push(&mut self, pass: u64, at: usize) {
        self.heap.push(Reverse((pass, at)));
    }

    /// The entry with the smallest pass that `is_open`. Entries that are not are removed.
    fn first(&mut self, is_open: impl Fn(u64, usize) -> bool) -> Option<usize> {
        while let Some(Reverse((pass, at))) = self.heap.peek().copied() {
            if is_open(pass, at) {
                return Some(at);
            }
            self.heap.pop();
        }
        None
    }
}

impl<L> StrideCursor<L> {
    /// Starts from the passes of these shares.
    pub fn new(tenants: Vec<TenantShare>, lanes: Vec<LaneShare<L>>) -> Self {
        let mut lane_orders = vec![PassQueue::default(); tenants.len()];
        for (at, lane) in lanes.iter().enumerate() {
            lane_orders[lane.tenant].push(lane.pass, at);
            lane_orders[lane.tenant].entries += 1;
        }
        let mut order = PassQueue { entries: tenants.len(), ..PassQueue::default() };
        tenants.iter().enumerate().for_each(|(at, tenant)| order.push(tenant.pass, at));
        let passed_over = vec![0; tenants.len()];
        Self { tenants, lanes, order, lane_orders, passed_over }
    }

    /// The tenants.
    pub fn tenants(&self) -> &[TenantShare] {
        &self.tenants
    }

    /// The lanes.
    pub fn lanes(&self) -> &[LaneShare<L>] {
        &self.lanes
    }

    /// Whether a lane has available units, and its tenant's cap permits one.
    pub fn is_open(&self, at: usize) -> bool {
        let lane = &self.lanes[at];
        lane.available > 0 && self.tenants[lane.tenant].allowed > 0
    }

    /// The next lane: of the tenant with the smallest pass, the lane with the smallest pass.
    pub fn next_lane(&mut self) -> Option<usize> {
        let Self { tenants, lanes, order, lane_orders, .. } = self;
        loop {
            let tenant = order.first(|pass, at| tenants[at].pass == pass && tenants[at].allowed > 0)?;
            let is_open = |pass, at: usize| lanes[at].pass == pass && lanes[at].available > 0;
            if let Some(lane) = lane_orders[tenant].first(is_open) {
                return Some(lane);
            }
            order.heap.pop();
        }
    }

    /// Takes one unit from a lane, and charges its tenant with it.
    pub fn serve(&mut self, at: usize) {
        let lane = &mut self.lanes[at];
        let (tenant, order) = (&mut self.tenants[lane.tenant], &mut self.lane_orders[lane.tenant]);
        self.order.served = self.order.served.max(tenant.pass);
        order.served = order.served.max(lane.pass);
        lane.available = lane.available.saturating_sub(1);
        tenant.allowed = tenant.allowed.saturating_sub(1);
        tenant.pass += step(effective_weight(lane.weight, tenant.weight));
        lane.pass += step(lane.weight);
        self.order.push(tenant.pass, lane.tenant);
        order.push(lane.pass, at);
    }

    /// Passes over a unit of a lane: it does not suit the worker, or its cap is reached. After many
    /// the claim takes nothing more from the tenant, since other tenants wait meanwhile.
    pub fn pass_over(&mut self, at: usize) {
        let tenant = self.lanes[at].tenant;
        self.passed_over[tenant] += 1;
        if self.passed_over[tenant] >= MAX_PASSED_OVER {
            self.tenants[tenant].allowed = 0;
        }
    }

    /// Takes nothing more from a lane.
    pub fn close(&mut self, at: usize) {
        self.lanes[at].available = 0;
    }
}

/// How far a pass moves per unit. At least one: with a huge weight it must still move.
pub fn step(weight: u32) -> u64 {
    (STRIDE / u64::from(weight.max(1))).max(1)
}

/// The weight of a tenant for units of one lane: the lane's weight times the tenant's.
pub fn effective_weight(lane: u32, tenant: u32) -> u32 {
    lane.saturating_mul(tenant)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenants(weights: &[u32]) -> Vec<TenantShare> {
        let name = |at| TenantId::new(format!("tenant-{at}")).unwrap();
        weights.iter().enumerate().map(|(at, weight)| TenantShare::new(name(at), *weight)).collect()
    }

    fn lane(tenant: usize, weight: u32, available: u64) -> LaneShare<usize> {
        LaneShare { available, ..LaneShare::new(0, tenant, weight) }
    }

    /// How many units each lane provides if `wanted` are taken.
    fn divide(cursor: &mut StrideCursor<usize>, wanted: usize) -> Vec<u64> {
        let mut parts = vec![0; cursor.lanes.len()];
        for _ in 0..wanted {
            let Some(at) = cursor.next_lane() else { break };
            cursor.serve(at);
            parts[at] += 1;
        }
        parts
    }

    #[test]
    fn shares_follow_the_weights() {
        let weights: Vec<u32> = (1..=10).collect();
        let lanes = (0..10).map(|tenant| lane(tenant, 1, u64::MAX)).collect();
        let sums = divide(&mut StrideCursor::new(tenants(&weights), lanes), 10_000);
        for (i, sum) in sums.iter().enumerate() {
            let ideal = 10_000.0 * (i as f64 + 1.0) / 55.0;
            assert!((*sum as f64 - ideal).abs() / ideal < 0.05, "weight {}: {sum}", i + 1);
        }
    }

    #[test]
    fn a_tenants_part_is_divided_among_its_lanes() {
        let lanes = vec![lane(0, 1, 999), lane(0, 3, 999), lane(1, 1, 999)];
        let mut cursor = StrideCursor::new(tenants(&[2, 2]), lanes);
        let parts = divide(&mut cursor, 600);
        assert_eq!(parts[1], parts[0] * 3, "by weight: {parts:?}");
        assert_eq!((parts[0] + parts[1], parts[2]), (400, 200), "three quarters of its units cost a third");
    }

    #[test]
    fn a_lane_gives_no_more_than_it_has() {
        let lanes = vec![lane(0, 9, 2), lane(1, 1, 50)];
        assert_eq!(divide(&mut StrideCursor::new(tenants(&[1, 1]), lanes), 10), [2, 8]);
    }

    #[test]
    fn a_claim_does_not_look_at_all_units_that_suit_no_worker() {
        let lanes = vec![lane(0, 1, u64::MAX), lane(0, 1, u64::MAX), lane(1, 1, 1)];
        let mut cursor = StrideCursor::new(tenants(&[1, 1]), lanes);
        let mut passed_over = 0;
        while let Some(at) = cursor.next_lane() {
            match cursor.lanes[at].tenant {
                0 => cursor.pass_over(at),
                _ => cursor.serve(at),
            }
            passed_over += 1;
        }
        assert_eq!(passed_over, MAX_PASSED_OVER + 1);
    }

    #[test]
    fn all_lanes_of_a_tenant_share_its_cap() {
        let mut capped = tenants(&[1, 1]);
        (capped[0].allowed, capped[1].allowed) = (5, 9);
        let lanes = vec![lane(0, 1, 50), lane(0, 1, 50), lane(1, 1, 4)];
        let mut cursor = StrideCursor::new(capped, lanes);
        assert_eq!(divide(&mut cursor, 100), [3, 2, 4]);
        assert_eq!(cursor.tenants.iter().map(|tenant| tenant.allowed).collect::<Vec<_>>(), [0, 5]);
    }
}
