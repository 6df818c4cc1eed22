//! When a unit runs again after a run that did not succeed.
//!
//! The delay is exponential with full jitter. The jitter is a hash of the unit's id and attempt, so
//! that the decision stays a pure function while units that failed together spread out.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::exponential_backoff::exponential_delay;
use crate::name::UnitId;
use crate::time::Timestamp;

/// How often, how long and how far apart a unit is attempted.
///
/// Unknown fields are ignored on deserialisation: an older worker may read a policy that a newer
/// one stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RetryPolicy {
    /// Attempts in total, including the first. At least 1.
    pub max_attempts: u32,
    /// Longest delay before the second attempt; doubles with each further one.
    pub base: Duration,
    /// Longest delay.
    pub cap: Duration,
    /// No attempt starts later than this after the unit was sent.
    pub max_age: Option<Duration>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_attempts: 5, base: Duration::from_secs(1), cap: Duration::from_secs(600), max_age: None }
    }
}

impl RetryPolicy {
    /// A single attempt.
    pub fn never() -> Self {
        Self { max_attempts: 1, ..Self::default() }
    }

    /// The delay after failed attempt number `attempt` (from 1), within `0..=ceiling`.
    pub fn delay(&self, unit: UnitId, attempt: u32) -> Duration {
        let ceiling = self.ceiling(attempt);
        let micros = u64::try_from(ceiling.as_micros()).unwrap_or(u64::MAX);
        let share = (u128::from(micros) * u128::from(hash(unit, attempt))) >> 64;
        Duration::from_micros(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// The longest delay after failed attempt number `attempt` (from 1).
    pub fn ceiling(&self, attempt: u32) -> Duration {
        exponential_delay(self.base, self.cap, attempt.saturating_sub(1))
    }

    /// Whether an attempt after number `attempt` may start at `at`, for a unit sent at `sent`.
    pub fn allows(&self, attempt: u32, sent: Timestamp, at: Timestamp) -> bool {
        attempt < self.max_attempts && self.max_age.is_none_or(|age| at.since(sent) <= age)
    }
}

/// 64 well-mixed bits of a unit's id and attempt (splitmix64's finaliser).
fn hash(unit: UnitId, attempt: u32) -> u64 {
    let id = u128::from_be_bytes(*unit.as_bytes());
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    let mut x = (id as u64) ^ ((id >> 64) as u64).rotate_left(17) ^ (u64::from(attempt) << 40);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What happens to a unit when its worker died while it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnLost {
    /// It runs again. For work that can be repeated.
    #[default]
    Rerun,
    /// It fails. For work where running twice is worse than not running.
    Fail,
}

/// Decides what happens after a run: the sender's policy, else that of the unit's kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Policy {
    /// For outcomes that ask for another attempt.
    pub retry: RetryPolicy,
    /// Longest run; `None` limits it by the deadline only.
    pub timeout: Option<Duration>,
    /// For runs lost with their worker.
    pub on_lost: OnLost,
    /// After this many lost runs the unit fails. From the second on it runs alone.
    pub max_lost: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self { retry: RetryPolicy::default(), timeout: None, on_lost: OnLost::Rerun, max_lost: 5 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_doubles_up_to_the_cap() {
        let policy = RetryPolicy { cap: Duration::from_secs(10), ..RetryPolicy::default() };
        let seconds: Vec<u64> = (1..=6).map(|n| policy.ceiling(n).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 10, 10]);
        assert_eq!(policy.ceiling(u32::MAX).as_secs(), 10);
    }

    #[test]
    fn jitter_spreads_over_the_whole_range() {
        let policy = RetryPolicy::default();
        let delays: Vec<f64> = (0..4000).map(|_| policy.delay(UnitId::new(), 1).as_secs_f64()).collect();
        let mean = delays.iter().sum::<f64>() / 4000.0;
        assert!((0.45..0.55).contains(&mean), "mean {mean}");
        assert!(delays.iter().any(|d| *d < 0.01) && delays.iter().any(|d| *d > 0.99));
    }

    #[test]
    fn age_ends_retries_even_with_attempts_left() {
        let policy = RetryPolicy { max_age: Some(Duration::from_secs(60)), ..RetryPolicy::default() };
        let sent = Timestamp::from_micros(0);
        assert!(policy.allows(1, sent, sent + Duration::from_secs(60)));
        assert!(!policy.allows(1, sent, sent + Duration::from_secs(61)));
        assert!(!policy.allows(5, sent, sent));
    }
}
