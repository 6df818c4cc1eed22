//! When a unit that did not end well runs again.
//!
//! The delay is exponential with full jitter. The jitter is a hash of the unit's id and attempt,
//! so that the decision stays a pure function while units that failed together still spread out.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::name::UnitId;
use crate::time::Timestamp;

/// How often, how long and how far apart a unit is tried.
///
/// Unknown fields are ignored when read: a newer worker's policies are kept in the store that an
/// older one reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryPolicy {
    /// Attempts in all, the first included. At least 1.
    pub max_attempts: u32,
    /// Longest wait before the second attempt; doubles with each further one.
    pub base: Duration,
    /// Longest wait ever.
    pub cap: Duration,
    /// No attempt starts later than this after the unit was sent.
    pub max_age: Option<Duration>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            base: Duration::from_secs(1),
            cap: Duration::from_secs(600),
            max_age: None,
        }
    }
}

impl RetryPolicy {
    /// Never a second attempt.
    pub fn never() -> Self {
        Self { max_attempts: 1, ..Self::default() }
    }

    /// The wait after failed attempt number `attempt` (from 1), somewhere in `0..=ceiling`.
    pub fn delay(&self, unit: UnitId, attempt: u32) -> Duration {
        let ceiling = self.ceiling(attempt);
        let micros = u64::try_from(ceiling.as_micros()).unwrap_or(u64::MAX);
        let share = (u128::from(micros) * u128::from(roll(unit, attempt))) >> 64;
        Duration::from_micros(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// The longest wait after failed attempt number `attempt` (from 1).
    pub fn ceiling(&self, attempt: u32) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.cap)
    }

    /// Whether an attempt after number `attempt` may start at `at`, for a unit sent at `sent`.
    pub fn allows(&self, attempt: u32, sent: Timestamp, at: Timestamp) -> bool {
        attempt < self.max_attempts && self.max_age.is_none_or(|age| at.since(sent) <= age)
    }
}

/// 64 well-mixed bits of a unit's id and attempt (splitmix64's finaliser).
fn roll(unit: UnitId, attempt: u32) -> u64 {
    let id = u128::from_be_bytes(*unit.as_bytes());
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    let mut x = (id as u64) ^ ((id >> 64) as u64).rotate_left(17) ^ (u64::from(attempt) << 40);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What becomes of a unit whose worker died while it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLost {
    /// It runs again. Right for anything that can be repeated.
    #[default]
    Rerun,
    /// It fails. Right where running twice costs more than not running.
    Fail,
}

/// Everything that decides a unit's way after a run: the sender's, else its kind's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// After an outcome that asks for another attempt.
    pub retry: RetryPolicy,
    /// Longest run; `None` leaves it to the deadline.
    pub timeout: Option<Duration>,
    /// After the worker died.
    pub on_lost: OnLost,
    /// Runs lost with their workers before the unit fails. From the second on it runs alone.
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
        let delays: Vec<f64> =
            (0..4000).map(|_| policy.delay(UnitId::new(), 1).as_secs_f64()).collect();
        let mean = delays.iter().sum::<f64>() / 4000.0;
        assert!((0.45..0.55).contains(&mean), "mean {mean}");
        assert!(delays.iter().any(|d| *d < 0.01) && delays.iter().any(|d| *d > 0.99));
    }

    #[test]
    fn age_ends_retries_even_with_attempts_left() {
        let policy =
            RetryPolicy { max_age: Some(Duration::from_secs(60)), ..RetryPolicy::default() };
        let sent = Timestamp::from_micros(0);
        assert!(policy.allows(1, sent, sent + Duration::from_secs(60)));
        assert!(!policy.allows(1, sent, sent + Duration::from_secs(61)));
        assert!(!policy.allows(5, sent, sent));
    }
}
