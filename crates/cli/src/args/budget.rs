//! A tenant's monthly budget as typed. What is not typed stays as it is.

use clap::Args;
use longshore::ledger::Budget;

use super::limit::Limit;
use crate::money::{Dollars, Part, Tokens};

/// What a tenant may use in a month.
#[derive(Debug, Clone, Copy, Args)]
pub struct BudgetArgs {
    /// Most dollars that its AI calls may cost in a calendar month (UTC), or none
    #[arg(long, value_name = "USD|none")]
    pub budget_usd: Option<Limit<Dollars>>,
    /// Most tokens that they may use in a month, as 2M, or none
    #[arg(long, value_name = "N|none")]
    pub budget_tokens: Option<Limit<Tokens>>,
    /// From this part of either on, callers are warned
    #[arg(long, value_name = "PERCENT")]
    pub warn_at: Option<Part>,
}

/// From which part on callers are warned where nothing else was said.
const WARN_AT: f64 = 0.8;

impl BudgetArgs {
    /// Whether nothing was said.
    pub fn is_empty(self) -> bool {
        self.budget_usd.is_none() && self.budget_tokens.is_none() && self.warn_at.is_none()
    }

    /// The budget that is meant where `now` holds; none if it bounds nothing.
    pub fn over(self, now: Option<Budget>) -> Option<Budget> {
        let now = now.unwrap_or(Budget { tokens: None, cost_picos: None, warn_at: WARN_AT });
        let picos = self.budget_usd.map(|limit| limit.0.map(|Dollars(picos)| picos));
        let tokens = self.budget_tokens.map(|limit| limit.0.map(|Tokens(tokens)| tokens));
        let budget = Budget {
            tokens: tokens.unwrap_or(now.tokens),
            cost_picos: picos.unwrap_or(now.cost_picos),
            warn_at: self.warn_at.map_or(now.warn_at, |Part(part)| part),
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
        let usd = BudgetArgs { budget_usd: Some(Limit(Some(Dollars(5)))), ..none };
        let now = usd.over(None).unwrap();
        assert_eq!((now.cost_picos, now.tokens, now.warn_at), (Some(5), None, 0.8));
        let warn = BudgetArgs { warn_at: Some(Part(0.5)), ..none };
        let now = warn.over(Some(now)).unwrap();
        assert_eq!((now.cost_picos, now.warn_at), (Some(5), 0.5));
        let lifted = BudgetArgs { budget_usd: Some(Limit(None)), ..none };
        assert_eq!(lifted.over(Some(now)), None);
    }
}
