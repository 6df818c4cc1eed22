//! Arguments of a tenant's monthly budget. A value that is not given stays as it is.

use clap::Args;
use longshore::accounts::Budget;

use super::limit::LimitArg;
use crate::amount_args::{Dollars, Fraction, TokenCount};

/// A tenant's monthly limits.
#[derive(Debug, Clone, Copy, Args)]
pub struct BudgetArgs {
    /// Maximum cost in dollars of its AI calls per calendar month (UTC), or none
    #[arg(long, value_name = "USD|none")]
    pub budget_usd: Option<LimitArg<Dollars>>,
    /// Maximum tokens of its AI calls per calendar month, as 2M, or none
    #[arg(long, value_name = "N|none")]
    pub budget_tokens: Option<LimitArg<TokenCount>>,
    /// Warn callers once this share of either limit is used
    #[arg(long, value_name = "PERCENT")]
    pub warn_at: Option<Fraction>,
}

/// The share at which callers are warned by default.
const WARN_AT: f64 = 0.8;

impl BudgetArgs {
    /// Whether no option was given.
    pub fn is_empty(self) -> bool {
        self.budget_usd.is_none() && self.budget_tokens.is_none() && self.warn_at.is_none()
    }

    /// The budget that results from `now` and the options; `None` if nothing is limited.
    pub fn apply_to(self, now: Option<Budget>) -> Option<Budget> {
        let now = now.unwrap_or(Budget { tokens: None, cost_picos: None, warn_at: WARN_AT });
        let picos = self.budget_usd.map(|limit| limit.0.map(|Dollars(picos)| picos));
        let tokens = self.budget_tokens.map(|limit| limit.0.map(|TokenCount(tokens)| tokens));
        let budget = Budget {
            tokens: tokens.unwrap_or(now.tokens),
            cost_picos: picos.unwrap_or(now.cost_picos),
            warn_at: self.warn_at.map_or(now.warn_at, |Fraction(part)| part),
        };
        (budget.tokens.is_some() || budget.cost_picos.is_some()).then_some(budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_about_a_budget_stays_and_nothing_left_is_none() {
        let none = BudgetArgs { budget_usd: None, budget_tokens: None, warn_at: None };
        assert!(none.is_empty());
        let usd = BudgetArgs { budget_usd: Some(LimitArg(Some(Dollars(5)))), ..none };
        let now = usd.apply_to(None).unwrap();
        assert_eq!((now.cost_picos, now.tokens, now.warn_at), (Some(5), None, 0.8));
        let warn = BudgetArgs { warn_at: Some(Fraction(0.5)), ..none };
        let now = warn.apply_to(Some(now)).unwrap();
        assert_eq!((now.cost_picos, now.warn_at), (Some(5), 0.5));
        let lifted = BudgetArgs { budget_usd: Some(LimitArg(None)), ..none };
        assert_eq!(lifted.apply_to(Some(now)), None);
    }
}
