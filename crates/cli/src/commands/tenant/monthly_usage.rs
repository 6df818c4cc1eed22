//! A tenant's month: its budget, and its AI usage.

use longshore::accounts::BudgetState;
use serde::Serialize;

use crate::amount_args;
use crate::output::Table;

/// AI usage of the month. Money is text, which no JSON parser rounds.
#[derive(Debug, Serialize)]
pub struct MonthlyUsage<'a> {
    month: &'a str,
    budget_tokens: Option<u64>,
    budget_usd: Option<String>,
    warn_at: Option<f64>,
    spent_tokens: u64,
    spent_usd: String,
    reserved_tokens: u64,
    reserved_usd: String,
}

impl<'a> MonthlyUsage<'a> {
    /// A month as JSON.
    pub fn of(state: &'a BudgetState) -> Self {
        let budget = state.budget.as_ref();
        Self {
            month: &state.month,
            budget_tokens: budget.and_then(|budget| budget.tokens),
            budget_usd: budget.and_then(|budget| budget.cost_picos).map(amount_args::format_plain),
            warn_at: budget.map(|budget| budget.warn_at),
            spent_tokens: state.spent_tokens,
            spent_usd: amount_args::format_plain(state.spent_picos),
            reserved_tokens: state.reserved_tokens,
            reserved_usd: amount_args::format_plain(state.reserved_picos),
        }
    }
}

/// Adds the month's budgets, if any, and its usage.
pub fn fields(table: &mut Table, state: &BudgetState) {
    let budget = state.budget.as_ref();
    let of = |most: Option<String>| most.map_or(String::new(), |most| format!(" of {most}"));
    let dollars = of(budget.and_then(|budget| budget.cost_picos).map(amount_args::format_usd));
    let tokens = of(budget.and_then(|budget| budget.tokens).map(|most| most.to_string()));
    let reserved = |what: String, any: bool| if any { format!(", {what} reserved") } else { String::new() };
    let (picos, count) = (state.reserved_picos, state.reserved_tokens);
    let money = amount_args::format_usd(state.spent_picos)
        + &dollars
        + &reserved(amount_args::format_usd(picos), picos > 0);
    let used = state.spent_tokens.to_string() + &tokens + &reserved(count.to_string(), count > 0);
    table.field(&format!("{} cost", state.month), money);
    table.field(&format!("{} tokens", state.month), used);
    table.field("warned at", budget.map_or(String::new(), |b| format!("{:.0}%", b.warn_at * 100.0)));
}
