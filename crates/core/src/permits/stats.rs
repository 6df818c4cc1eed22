//! The state of a pool: counters, holders and waiters.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::name::PermitId;
use crate::priority::Priority;

/// A pool's state, read at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolStats {
    /// The maximum weight.
    pub max: u32,
    /// The held weight. May exceed `max` after the pool was shrunk, until enough permits are
    /// released.
    pub in_use: u32,
    /// Permits granted so far.
    pub acquired: u64,
    /// Waits that timed out.
    pub timeouts: u64,
    /// Leases that expired: their holders died, stopped, or lost the back end.
    pub expired: u64,
    /// Wait times of granted permits.
    pub waits: WaitHistogram,
    /// Holders, longest first.
    pub holders: Vec<Holder>,
    /// Waiters, next first.
    pub waiting: Vec<Waiter>,
    /// How long the back end grants nothing, because it may have lost leases that are still valid.
    pub quarantine: Option<Duration>,
}

impl PoolStats {
    /// The free weight.
    pub fn available(&self) -> u32 {
        self.max.saturating_sub(self.in_use)
    }

    /// The held share of the pool, from 0; above 1 after the pool was shrunk. A pool with maximum 0
    /// counts as full.
    pub fn utilization(&self) -> f64 {
        if self.max == 0 { 1.0 } else { f64::from(self.in_use) / f64::from(self.max) }
    }
}

/// A held permit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The permit.
    pub id: PermitId,
    /// The holder, as it describes itself.
    pub owner: String,
    /// Its weight.
    pub weight: u32,
    /// Its fence.
    pub fence: u64,
    /// How long it has been held.
    #[serde(rename = "held")]
    pub held_for: Duration,
    /// How long until its lease expires.
    #[serde(rename = "left")]
    pub expires_in: Duration,
}

/// A waiting request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// The id of the permit it waits for.
    pub id: PermitId,
    /// The waiter, as it describes itself.
    pub owner: String,
    /// Its weight.
    pub weight: u32,
    /// Its priority.
    pub priority: Priority,
    /// How long it has waited.
    pub waited: Duration,
}

/// A histogram of wait times with buckets of doubling width: few enough for a back end to keep one
/// counter per bucket, and fine enough to tell a second from a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WaitHistogram(pub [u64; WaitHistogram::STEPS]);

impl WaitHistogram {
    /// Number of buckets: below 1 ms, below 2 ms, … and half an hour or more.
    pub const STEPS: usize = 22;

    /// The bucket of a wait.
    pub fn bucket(wait: Duration) -> usize {
        let millis = wait.as_millis();
        let bits = usize::try_from(u128::BITS - millis.leading_zeros()).unwrap_or(0);
        bits.min(Self::STEPS - 1)
    }

    /// Counts a wait.
    pub fn add(&mut self, wait: Duration) {
        self.0[Self::bucket(wait)] += 1;
    }

    /// The upper bound of the bucket in which this share of all waits ended (0.5: the median).
    /// `None` if no permit was granted yet.
    pub fn percentile(&self, share: f64) -> Option<Duration> {
        let all: u64 = self.0.iter().sum();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counts of waits"
        )]
        let wanted = ((all as f64) * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let step = self.0.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        (all > 0).then(|| Duration::from_millis(1 << step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_fall_into_steps_that_double() {
        let steps = [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1000, 10), (u64::MAX, 21)];
        for (millis, step) in steps {
            assert_eq!(WaitHistogram::bucket(Duration::from_millis(millis)), step, "{millis}");
        }
    }

    #[test]
    fn percentiles_are_the_end_of_a_step() {
        let mut waits = WaitHistogram::default();
        assert_eq!(waits.percentile(0.5), None);
        for millis in [0, 0, 0, 5, 900] {
            waits.add(Duration::from_millis(millis));
        }
        assert_eq!(waits.percentile(0.5), Some(Duration::from_millis(1)));
        assert_eq!(waits.percentile(0.8), Some(Duration::from_millis(8)));
        assert_eq!(waits.percentile(1.0), Some(Duration::from_millis(1024)));
    }

    #[test]
    fn a_pool_that_was_made_smaller_has_nothing_free() {
        let stats = PoolStats { max: 2, in_use: 3, ..PoolStats::default() };
        assert_eq!(stats.available(), 0);
        assert!(stats.utilization() > 1.0);
    }
}
