//! Stride scheduling: divides a claim between the lanes of a queue.
//!
//! Each lane has a pass; the lane with the smallest pass goes next and its pass grows by `STRIDE /
//! weight`. Over any period each lane is served in proportion to its weight. A lane that was empty
//! starts level with the others, without credit.

/// How far the pass of a lane of weight 1 moves per unit.
pub const STRIDE: u64 = 1 << 20;

/// A lane with claimable units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneShare {
    /// Its position in the schedule; the smallest goes next.
    pub pass: u64,
    /// Its weight relative to the others. At least 1.
    pub weight: u32,
    /// How many units it can provide: ready ones, as far as its cap permits.
    pub available: u64,
    /// Index of its tenant in [`StrideCursor::tenants`], if the tenant has a cap.
    pub tenant: Option<usize>,
}

/// Walks lanes in stride order, within the caps of their tenants.
#[derive(Debug, Clone)]
pub struct StrideCursor {
    /// The lanes.
    pub shares: Vec<LaneShare>,
    /// How many more units each capped tenant may lease, over all its lanes.
    pub tenants: Vec<u64>,
}

impl StrideCursor {
    /// Starts from these positions.
    pub fn new(mut shares: Vec<LaneShare>, tenants: Vec<u64>) -> Self {
        for share in &mut shares {
            let allowed = share.tenant.map_or(u64::MAX, |tenant| tenants[tenant]);
            share.available = share.available.min(allowed);
        }
        Self { shares, tenants }
    }

    /// The next lane: the smallest pass among lanes with available units.
    pub fn next_lane(&self) -> Option<usize> {
        let open = self.shares.iter().enumerate().filter(|(_, lane)| lane.available > 0);
        open.min_by_key(|(at, lane)| (lane.pass, *at)).map(|(at, _)| at)
    }

    /// Takes one unit from a lane, and charges all lanes of its tenant with it.
    pub fn serve(&mut self, at: usize) {
        let lane = &mut self.shares[at];
        lane.available -= 1;
        lane.pass += step(lane.weight);
        let Some(tenant) = lane.tenant else { return };
        let left = self.tenants[tenant].saturating_sub(1);
        self.tenants[tenant] = left;
        for lane in self.shares.iter_mut().filter(|lane| lane.tenant == Some(tenant)) {
            lane.available = lane.available.min(left);
        }
    }

    /// Takes nothing more from a lane.
    pub fn close(&mut self, at: usize) {
        self.shares[at].available = 0;
    }
}

/// How far a lane's pass moves per unit. At least one: a lane with a huge weight must still move.
pub fn step(weight: u32) -> u64 {
    (STRIDE / u64::from(weight.max(1))).max(1)
}

/// A lane's effective weight: its own times its tenant's.
pub fn effective_weight(lane: u32, tenant: u32) -> u32 {
    lane.saturating_mul(tenant)
}

/// The pass at which joining lanes start: that of the next lane that has not been idle or, if all
/// are joining, the largest. Each lane is given as its pass and whether it joins. Only lanes of one
/// claim count: other workers serve the others, at another speed.
pub fn entry_level(lanes: impl Iterator<Item = (u64, bool)> + Clone) -> Option<u64> {
    let active = lanes.clone().filter(|(_, joins)| !joins).map(|(pass, _)| pass);
    active.min().or_else(|| lanes.map(|(pass, _)| pass).max())
}

/// The pass of a lane with its first unit after a pause: level with the next lane, so that an idle
/// lane earns no credit.
pub fn entry_pass(own: u64, level: Option<u64>) -> u64 {
    level.map_or(own, |level| own.max(level))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(weight: u32, available: u64, tenant: Option<usize>) -> LaneShare {
        LaneShare { pass: 0, weight, available, tenant }
    }

    /// How many units each lane provides if `wanted` are taken.
    fn divide(cursor: &mut StrideCursor, wanted: usize) -> Vec<u64> {
        let mut parts = vec![0; cursor.shares.len()];
        for _ in 0..wanted {
            let Some(at) = cursor.next_lane() else { break };
            cursor.serve(at);
            parts[at] += 1;
        }
        parts
    }

    #[test]
    fn shares_follow_the_weights() {
        let lanes = (1..=10).map(|weight| lane(weight, u64::MAX, None)).collect();
        let sums = divide(&mut StrideCursor::new(lanes, Vec::new()), 10_000);
        for (i, sum) in sums.iter().enumerate() {
            let ideal = 10_000.0 * (i as f64 + 1.0) / 55.0;
            assert!((*sum as f64 - ideal).abs() / ideal < 0.05, "weight {}: {sum}", i + 1);
        }
    }

    #[test]
    fn a_lane_gives_no_more_than_it_has() {
        let lanes = vec![lane(9, 2, None), lane(1, 50, None)];
        assert_eq!(divide(&mut StrideCursor::new(lanes, Vec::new()), 10), [2, 8]);
    }

    #[test]
    fn all_lanes_of_a_tenant_share_its_cap() {
        let lanes = vec![lane(1, 50, Some(0)), lane(1, 50, Some(0)), lane(1, 4, Some(1))];
        let mut cursor = StrideCursor::new(lanes, vec![5, 9]);
        assert_eq!(divide(&mut cursor, 100), [3, 2, 4]);
        assert_eq!(cursor.tenants, [0, 5]);
    }

    #[test]
    fn a_joining_lane_starts_level_with_the_next_lane() {
        let level = |lanes: &[(u64, bool)]| entry_level(lanes.iter().copied());
        assert_eq!(level(&[(7, false), (3, true), (5, false)]), Some(5));
        assert_eq!(level(&[(7, true), (3, true)]), Some(7), "all join");
        assert_eq!(level(&[]), None);
        assert_eq!([entry_pass(3, Some(5)), entry_pass(9, Some(5))], [5, 9], "no credit is lost");
    }
}
