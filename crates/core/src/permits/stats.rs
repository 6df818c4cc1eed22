//! How a pool stands: its figures, who holds, who waits.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::name::PermitId;
use crate::rank::Priority;

/// A pool's figures, all read at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolStats {
    /// Most weight that may be held at once.
    pub max: u32,
    /// Weight that is held. May be above `max` after the pool was made smaller, until enough came back.
    pub in_use: u32,
    /// Permits given so far.
    pub acquired: u64,
    /// Waits that ended without a permit because they took too long.
    pub timeouts: u64,
    /// Leases that ran out: their holders died, stopped, or lost the back end.
    pub expired: u64,
    /// How long those waited who got a permit.
    pub waits: Waits,
    /// Who holds what, longest first.
    pub holders: Vec<Holder>,
    /// Who waits, next first.
    pub waiting: Vec<Waiter>,
    /// How long the back end gives nothing, because it may have forgotten leases that are still good.
    pub quarantine: Option<Duration>,
}

impl PoolStats {
    /// Weight that is free.
    pub fn available(&self) -> u32 {
        self.max.saturating_sub(self.in_use)
    }

    /// Share of the pool that is held, from 0; above 1 after the pool was made smaller. A pool of
    /// nothing counts as full.
    pub fn utilization(&self) -> f64 {
        if self.max == 0 { 1.0 } else { f64::from(self.in_use) / f64::from(self.max) }
    }
}

/// One who holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The permit.
    pub id: PermitId,
    /// Who it is, in its own words.
    pub owner: String,
    /// How much of the pool.
    pub weight: u32,
    /// The number of the permit.
    pub fence: u64,
    /// For how long it has been held.
    pub held: Duration,
    /// How long its lease is still good.
    pub left: Duration,
}

/// One who waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// The permit it will be.
    pub id: PermitId,
    /// Who it is, in its own words.
    pub owner: String,
    /// How much of the pool it wants.
    pub weight: u32,
    /// Its class.
    pub priority: Priority,
    /// For how long it has been waiting.
    pub waited: Duration,
}

/// How long waits took, in steps that double: small enough for a back end to keep one count per step, and
/// exact enough to tell a second from a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Waits(pub [u64; Waits::STEPS]);

impl Waits {
    /// Number of steps: below 1 ms, below 2 ms, … and everything from half an hour on.
    pub const STEPS: usize = 22;

    /// The step that a wait falls into.
    pub fn step(wait: Duration) -> usize {
        let millis = wait.as_millis();
        let bits = usize::try_from(u128::BITS - millis.leading_zeros()).unwrap_or(0);
        bits.min(Self::STEPS - 1)
    }

    /// Counts a wait.
    pub fn add(&mut self, wait: Duration) {
        self.0[Self::step(wait)] += 1;
    }

    /// A wait that this share of all was not longer than (0.5: the median), to the end of its step.
    /// `None` if nobody got a permit yet.
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
            assert_eq!(Waits::step(Duration::from_millis(millis)), step, "{millis}");
        }
    }

    #[test]
    fn percentiles_are_the_end_of_a_step() {
        let mut waits = Waits::default();
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
