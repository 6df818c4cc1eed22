//! Monthly budgets: reserved before a call, settled after it.
//!
//! Pure. Exact with any number of concurrent calls, because a store decides
//! ([`BudgetState::admit`]) and writes the consequence in one transaction.

use longshore_core::{Error, Result, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::calls::{Call, NewCall};

/// What a tenant may use per calendar month (UTC).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "BudgetLimits"))]
pub struct Budget {
    /// Tokens, input and output together.
    #[serde(default)]
    pub tokens: Option<u64>,
    /// Cost, in picodollars (10⁻¹² USD).
    #[serde(default)]
    pub cost_picos: Option<i64>,
    /// From this share on, 0 to 1, callers are warned.
    #[serde(default = "warn_at")]
    pub warn_at: f64,
}

fn warn_at() -> f64 {
    0.8
}

impl Budget {
    /// Rejects values out of range.
    pub fn check(&self) -> Result<()> {
        if !(0.0..=1.0).contains(&self.warn_at) {
            let words = format!("a budget's warn_at must be between 0 and 1, not {}", self.warn_at);
            return Err(Error::Invalid(words));
        }
        let too_many = self.tokens.is_some_and(|tokens| i64::try_from(tokens).is_err());
        if too_many || self.cost_picos.is_some_and(|picos| picos < 0) {
            return Err(Error::Invalid("a budget's tokens or cost are out of range".to_owned()));
        }
        Ok(())
    }
}

/// A tenant's usage in a month.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetState {
    /// The tenant.
    pub tenant: TenantId,
    /// The month, as `2026-11`.
    pub month: String,
    /// The budget, if there is one.
    pub budget: Option<Budget>,
    /// Tokens of calls that ended.
    pub spent_tokens: u64,
    /// Cost of calls that ended.
    pub spent_picos: i64,
    /// Tokens reserved by open calls.
    pub reserved_tokens: u64,
    /// Cost reserved by open calls.
    pub reserved_picos: i64,
}

/// Whether a call fits into a budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BudgetDecision {
    /// It fits.
    Within,
    /// It fits; ended calls have used this share of the budget.
    NearLimit(f64),
    /// It does not fit.
    Exceeded,
}

impl BudgetState {
    /// A month without usage.
    pub fn new(tenant: TenantId, month: String, budget: Option<Budget>) -> Self {
        Self { tenant, month, budget, spent_tokens: 0, spent_picos: 0, reserved_tokens: 0, reserved_picos: 0 }
    }

    /// The month of a time.
    pub fn month_of(time: Timestamp) -> String {
        time.to_string().chars().take(7).collect()
    }

    /// Adds a call: its actual usage, or what it reserves.
    pub fn add(&mut self, call: &Call) {
        match &call.end {
            Some(end) => {
                self.spent_tokens = self.spent_tokens.saturating_add(end.tokens());
                self.spent_picos = self.spent_picos.saturating_add(end.cost_picos);
            }
            None => {
                let NewCall { reserve_tokens, reserve_picos, .. } = call.call;
                self.reserved_tokens = self.reserved_tokens.saturating_add(reserve_tokens);
                self.reserved_picos = self.reserved_picos.saturating_add(reserve_picos);
            }
        }
    }

    /// Subtracts what [`Self::add`] added. Sums that saturated stop at zero.
    pub fn discount(&mut self, call: &Call) {
        match &call.end {
            Some(end) => {
                self.spent_tokens = self.spent_tokens.saturating_sub(end.tokens());
                self.spent_picos = self.spent_picos.saturating_sub(end.cost_picos).max(0);
            }
            None => {
                let NewCall { reserve_tokens, reserve_picos, .. } = call.call;
                self.reserved_tokens = self.reserved_tokens.saturating_sub(reserve_tokens);
                self.reserved_picos = self.reserved_picos.saturating_sub(reserve_picos).max(0);
            }
        }
    }

    /// Whether a call that may use so much would fit if open calls reserved nothing.
    pub fn is_only_reserved(&self, tokens: u64, picos: i64) -> bool {
        let settled = Self { reserved_tokens: 0, reserved_picos: 0, ..self.clone() };
        settled.admit(tokens, picos) != BudgetDecision::Exceeded
    }

    /// The share of the budget that ended calls have used. Reservations do not count: most of what a call
    /// reserves is free again when it ends.
    fn used_share(&self) -> f64 {
        let Some(budget) = &self.budget else { return 0.0 };
        let part = |used: f64, most: Option<f64>| most.map_or(0.0, |most| used / most.max(1.0));
        part(self.spent_tokens as f64, budget.tokens.map(|most| most as f64))
            .max(part(self.spent_picos as f64, budget.cost_picos.map(|most| most as f64)))
    }

    /// The share that ended calls have used, from the budget's `warn_at` on.
    pub fn warned_share(&self) -> Option<f64> {
        let used = self.used_share();
        self.budget.as_ref().is_some_and(|budget| used >= budget.warn_at).then_some(used)
    }

    /// Whether ended calls have used the budget up.
    pub fn is_used_up(&self) -> bool {
        self.budget.is_some() && self.used_share() >= 1.0
    }

    /// Whether a call that may use so much fits, beside what is spent and reserved.
    pub fn admit(&self, tokens: u64, picos: i64) -> BudgetDecision {
        let Some(budget) = &self.budget else { return BudgetDecision::Within };
        let used = self.used_share();
        let tokens = self.spent_tokens.saturating_add(self.reserved_tokens).saturating_add(tokens);
        let picos = self.spent_picos.saturating_add(self.reserved_picos).saturating_add(picos);
        let over = budget.tokens.is_some_and(|most| tokens > most)
            || budget.cost_picos.is_some_and(|most| picos > most);
        match used {
            _ if over => BudgetDecision::Exceeded,
            used if used >= budget.warn_at => BudgetDecision::NearLimit(used),
            _ => BudgetDecision::Within,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(budget: Budget) -> BudgetState {
        BudgetState::new(TenantId::default(), "2026-11".into(), Some(budget))
    }

    #[test]
    fn a_call_fits_as_long_as_spent_and_reserved_leave_room() {
        let budget = Budget { tokens: Some(100), cost_picos: None, warn_at: 0.8 };
        let month = BudgetState { spent_tokens: 50, reserved_tokens: 20, ..state(budget) };
        assert_eq!(month.admit(9, i64::MAX), BudgetDecision::Within);
        assert_eq!(month.admit(30, 0), BudgetDecision::Within, "reservations do not count as used");
        assert_eq!(month.admit(31, 0), BudgetDecision::Exceeded);
        let month = BudgetState { spent_tokens: 80, ..month };
        assert_eq!(month.admit(0, 0), BudgetDecision::NearLimit(0.8));
        assert!(!month.is_used_up() && BudgetState { spent_tokens: 100, ..month }.is_used_up());
        let money = Budget { tokens: None, cost_picos: Some(0), warn_at: 0.8 };
        assert_eq!(state(money).admit(1, 1), BudgetDecision::Exceeded);
    }

    #[test]
    fn what_is_only_reserved_may_become_free_again() {
        let budget = Budget { tokens: Some(100), cost_picos: Some(10), warn_at: 0.8 };
        let month =
            BudgetState { spent_tokens: 50, reserved_tokens: 50, reserved_picos: 10, ..state(budget) };
        for (tokens, picos, only_reserved) in [(50, 10, true), (51, 0, false), (1, 11, false), (1, 1, true)] {
            assert_eq!(month.admit(tokens, picos), BudgetDecision::Exceeded);
            assert_eq!(month.is_only_reserved(tokens, picos), only_reserved, "{tokens} {picos}");
        }
    }

    #[test]
    fn months_are_calendar_months() {
        let time = Timestamp::parse("2026-11-30T23:59:59Z").unwrap();
        assert_eq!(BudgetState::month_of(time), "2026-11");
    }
}
