//! How long one finish runs effects.
//!
//! Effects are SQL of the user, and one transaction runs those of many units. Without a limit, a
//! slow one would keep all others from being recorded.

use std::time::Duration;

use crate::outcome::{Effect, Failure};

/// The failure code of a unit with effects that took too long.
pub const EFFECT_TIMEOUT: &str = "effect-timeout";
/// After this long a finish starts no further effects.
const MAX_TIME: Duration = Duration::from_secs(2);
/// After so many timeouts a finish starts no further effects.
const MAX_TIMEOUTS: usize = 2;

/// The time that one finish has for effects.
#[derive(Debug)]
pub struct EffectBudget {
    unit_limit: Option<Duration>,
    spent: Duration,
    /// The SQL of effects that timed out.
    timed_out: Vec<String>,
}

impl EffectBudget {
    /// The effects of one unit may take `unit_limit`.
    pub fn new(unit_limit: Duration) -> Self {
        Self { unit_limit: Some(unit_limit), spent: Duration::ZERO, timed_out: Vec::new() }
    }

    /// Without limits, for effects in the caller's own transaction.
    pub fn unlimited() -> Self {
        Self { unit_limit: None, spent: Duration::ZERO, timed_out: Vec::new() }
    }

    /// How long the effects of one unit may take.
    pub fn unit_limit(&self) -> Option<Duration> {
        self.unit_limit
    }

    /// Whether these effects are left to another finish: the time is used up, or the same statement
    /// timed out before, as when another transaction has locked its table.
    pub fn defers(&self, effects: &[Effect]) -> bool {
        let is_used_up = self.spent >= MAX_TIME || self.timed_out.len() >= MAX_TIMEOUTS;
        let is_slow = |effect: &Effect| self.timed_out.contains(&effect.sql);
        self.unit_limit.is_some() && !effects.is_empty() && (is_used_up || effects.iter().any(is_slow))
    }

    /// Starts the finish again: the transaction was rolled back.
    pub fn restart(&mut self) {
        self.spent = Duration::ZERO;
    }

    /// Counts the time of a unit's effects that did not time out.
    pub fn spend(&mut self, time: Duration) {
        self.spent += time;
    }

    /// Counts a timeout. Returns the failure of the unit.
    pub fn time_out(&mut self, effect: &Effect) -> Failure {
        self.timed_out.push(effect.sql.clone());
        let limit = self.unit_limit.unwrap_or_default();
        Failure::new(EFFECT_TIMEOUT, format!("took longer than effect_timeout ({limit:?}): {}", effect.sql))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Params;

    fn effect(sql: &str) -> [Effect; 1] {
        [Effect { sql: sql.to_owned(), params: Params::Ordered(vec![]), expected_rows: None }]
    }

    #[test]
    fn after_a_timeout_only_other_statements_run_and_after_two_none() {
        let mut budget = EffectBudget::new(Duration::from_secs(10));
        let failure = budget.time_out(&effect("UPDATE a")[0]);
        assert_eq!(failure.message, "took longer than effect_timeout (10s): UPDATE a");
        assert!(budget.defers(&effect("UPDATE a")) && !budget.defers(&effect("UPDATE b")));
        budget.time_out(&effect("UPDATE b")[0]);
        assert!(budget.defers(&effect("UPDATE c")) && !budget.defers(&[]));
    }

    #[test]
    fn effects_start_until_the_time_is_used_up() {
        let mut budget = EffectBudget::new(Duration::from_secs(10));
        budget.spend(MAX_TIME - Duration::from_millis(1));
        assert!(!budget.defers(&effect("UPDATE a")));
        budget.spend(Duration::from_millis(1));
        assert!(budget.defers(&effect("UPDATE a")) && !budget.defers(&[]));
        assert!(!EffectBudget::unlimited().defers(&effect("UPDATE a")));
    }
}
