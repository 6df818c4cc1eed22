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
}

/// Divides `wanted` units between `lanes`: moves their passes and returns each lane's number of
/// units.
pub fn divide(lanes: &mut [LaneShare], wanted: u64) -> Vec<u64> {
    let mut parts = vec![0; lanes.len()];
    if let [only] = lanes {
        // A single lane competes with no other; its pass need not move.
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

/// The next lane: the smallest pass among lanes with available units.
pub fn turn<'l>(lanes: impl Iterator<Item = &'l LaneShare>) -> Option<usize> {
    let open = lanes.enumerate().filter(|(_, lane)| lane.available > 0);
    open.min_by_key(|(at, lane)| (lane.pass, *at)).map(|(at, _)| at)
}

impl LaneShare {
    /// Takes one unit from the lane.
    pub fn serve(&mut self) {
        self.available -= 1;
        // At least one step: a lane with a huge weight must still move.
        self.pass += (STRIDE / u64::from(self.weight.max(1))).max(1);
    }
}

/// A lane's effective weight: its own times its tenant's.
pub fn share(lane: u32, tenant: u32) -> u32 {
    lane.saturating_mul(tenant)
}

/// The pass of a lane with its first unit after a pause: level with the next lane, so that an idle
/// lane earns no credit.
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
