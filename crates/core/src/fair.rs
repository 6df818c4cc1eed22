//! Shares: how a claim is divided between the lanes of a queue.
//!
//! Stride scheduling: each lane has a pass; the lane with the smallest pass goes next and its pass
//! grows by `STRIDE / weight`. Over any stretch each lane is served in proportion to its weight,
//! and a lane that was empty starts level with the others instead of with credit.

/// How far a lane of weight 1 moves per unit.
pub const STRIDE: u64 = 1 << 20;

/// A lane that has something to claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneShare {
    /// Where it stands; smallest goes next.
    pub pass: u64,
    /// Its share against the others. At least 1.
    pub weight: u32,
    /// How many units it can give: what is ready, less what its cap forbids.
    pub available: u64,
}

/// Divides `wanted` units between `lanes`: moves their passes and returns each lane's part.
pub fn divide(lanes: &mut [LaneShare], wanted: u64) -> Vec<u64> {
    let mut parts = vec![0; lanes.len()];
    if let [only] = lanes {
        // One lane competes with nobody; its pass need not move.
        parts[0] = wanted.min(only.available);
        return parts;
    }
    let mut left = lanes.to_vec();
    for _ in 0..wanted {
        let Some(next) = turn(left.iter()) else { break };
        parts[next] += 1;
        left[next].serve();
    }
    for (lane, after) in lanes.iter_mut().zip(left) {
        lane.pass = after.pass;
    }
    parts
}

/// Whose turn it is: the lane with the smallest pass that has something to give.
pub fn turn<'l>(lanes: impl Iterator<Item = &'l LaneShare>) -> Option<usize> {
    let open = lanes.enumerate().filter(|(_, lane)| lane.available > 0);
    open.min_by_key(|(at, lane)| (lane.pass, *at)).map(|(at, _)| at)
}

impl LaneShare {
    /// The lane gives one unit.
    pub fn serve(&mut self) {
        self.available -= 1;
        // At least one step: a lane whose weight is beyond all measure must not stand still.
        self.pass += (STRIDE / u64::from(self.weight.max(1))).max(1);
    }
}

/// A lane's share against the others: its own weight times its tenant's.
pub fn share(lane: u32, tenant: u32) -> u32 {
    lane.saturating_mul(tenant)
}

/// The pass a lane starts with when it gets its first unit after a pause: level with the lane
/// that is next, so that silence earns no credit.
pub fn entry_pass(own: u64, smallest_active: Option<u64>) -> u64 {
    smallest_active.map_or(own, |smallest| own.max(smallest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_weights() {
        let lane = |weight| LaneShare { pass: 0, weight, available: u64::MAX };
        let mut lanes: Vec<LaneShare> = (1..=10).map(lane).collect();
        let mut sums = [0; 10];
        for _ in 0..100 {
            for (sum, part) in sums.iter_mut().zip(divide(&mut lanes, 100)) {
                *sum += part;
            }
        }
        for (i, sum) in sums.iter().enumerate() {
            let ideal = 10_000.0 * (i as f64 + 1.0) / 55.0;
            assert!((*sum as f64 - ideal).abs() / ideal < 0.05, "weight {}: {sum}", i + 1);
        }
    }

    #[test]
    fn a_lane_gives_no_more_than_it_has() {
        let mut lanes = [
            LaneShare { pass: 0, weight: 9, available: 2 },
            LaneShare { pass: 0, weight: 1, available: 50 },
        ];
        assert_eq!(divide(&mut lanes, 10), [2, 8]);
    }
}
