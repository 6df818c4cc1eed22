//! `/usage`: AI calls by day, model and tenant; limits and budgets.

use std::time::Duration;

use longshore::accounts::{BudgetState, Usage, UsageBy, UsageFilter};
use longshore_ai::Cost;
use maud::{Markup, html};

use super::PageRequest;
use super::format::number;
use super::layout::{layout, pill, table_or_empty};
use crate::api::profiles::{self, ProfileView};
use crate::api::usage::budgets;
use crate::problem::Problem;

const DAY: Duration = Duration::from_secs(86_400);
/// The selectable periods and their labels.
const PERIODS: [(&str, u32, &str); 3] = [("1", 1, "a day"), ("30", 30, "30 days"), ("90", 90, "90 days")];
/// Maximum number of groups shown, most expensive first; days are all shown.
const MAX_GROUPS: usize = 100;

pub(super) async fn page(req: &PageRequest) -> Result<Markup, Problem> {
    let asked = req.query.get("days").map_or("30", String::as_str);
    let (chosen, days, _) = PERIODS.into_iter().find(|(text, ..)| *text == asked).unwrap_or(PERIODS[1]);
    let since = req.app.now() - DAY * days;
    let filter = UsageFilter { since: Some(since), ..UsageFilter::default() };
    let (ledger, scope) = (&req.app.ledger, &req.caller.scope);
    let by_day = ledger.usage(scope, &filter, UsageBy::Day).await?;
    let by_model = ledger.usage(scope, &filter, UsageBy::Model).await?;
    let by_tenant = ledger.usage(scope, &filter, UsageBy::Tenant).await?;
    let months = budgets(req.app.as_ref(), &req.caller).await?;
    let profiles = profiles::page(req.app.as_ref(), scope, None, 100).await?;
    let main = html! {
        h1 { "AI usage" }
        div.filter { @for (text, _, words) in PERIODS {
            a href={ "/usage?days=" (text) } aria-current=[(text == chosen).then_some("true")] { (words) }
        } }
        (tiles(&by_tenant))
        (groups("day", by_day.into_iter().rev().collect()))
        (groups("model", most_expensive(by_model)))
        (groups("tenant", most_expensive(by_tenant)))
        (budgets_of(&months))
        (limits(&profiles.items))
    };
    Ok(layout(&req.caller, "/usage", "AI usage", main))
}

fn most_expensive(mut groups: Vec<Usage>) -> Vec<Usage> {
    groups.sort_by_key(|group| std::cmp::Reverse(group.cost_picos));
    groups.truncate(MAX_GROUPS);
    groups
}

fn tiles(groups: &[Usage]) -> Markup {
    let sum = |of: fn(&Usage) -> u64| number(groups.iter().map(of).sum());
    let cost: Cost = groups.iter().map(|group| Cost(group.cost_picos)).sum();
    let doubtful: u64 = groups.iter().map(|group| group.maybe_billed).sum();
    html! {
        div.tiles {
            div.tile { b { (cost) } span { "cost" } }
            div.tile { b { (sum(|group| group.calls)) } span { "calls" } }
            div.tile { b { (sum(|group| group.tokens_in)) } span { "tokens in" } }
            div.tile { b { (sum(|group| group.tokens_out)) } span { "tokens out" } }
            div.tile { b { (sum(|group| group.errors)) } span { "errors" } }
            @if doubtful > 0 { div class="tile bad" { b { (number(doubtful)) } span { "maybe billed" } } }
        }
    }
}

fn groups(name: &str, groups: Vec<Usage>) -> Markup {
    let most = groups.iter().map(|group| group.cost_picos).max().unwrap_or(0).max(1);
    html! {
        h2 { "By " (name) }
        (table_or_empty(groups.len(), html! { "No calls." br; code { "longshore ai ask --profile NAME 'Hello?'" } }, html! {
            table {
                thead { tr {
                    th { (name) } th.n { "Cost" } th { "" } th.n { "Calls" } th.n.less { "Errors" }
                    th.n { "Tokens in" } th.n { "Out" } th.n.less { "Cached" }
                } }
                tbody { @for group in &groups {
                    tr {
                        td { (if group.name.is_empty() { "(none)" } else { &group.name }) }
                        td.n { (Cost(group.cost_picos)) }
                        td.bar { progress value=(group.cost_picos) max=(most) title="share of the most expensive" {} }
                        td.n { (number(group.calls)) }
                        td.n.less { (number(group.errors)) }
                        td.n { (number(group.tokens_in)) }
                        td.n { (number(group.tokens_out)) }
                        td.n.less { (number(group.tokens_cached)) }
                    }
                } }
            }
        }))
    }
}

fn budgets_of(months: &[BudgetState]) -> Markup {
    html! {
        h2 { "Budgets this month" }
        (table_or_empty(months.len(), html! { "No tenant has a budget or has spent anything." }, html! {
            table {
                thead { tr {
                    th { "Tenant" } th { "Used" } th.n { "Spent" } th.n { "Of" } th.n.less { "Reserved" }
                    th.n { "Tokens" } th.n { "Of" }
                } }
                tbody { @for month in months {
                    @let budget = month.budget.as_ref();
                    tr {
                        td { (month.tenant) }
                        td {
                            @if let Some(used) = used(month) { (super::batches::bar(used)) }
                            @if let Some(warning) = warning(month) { " " (pill(warning)) }
                        }
                        td.n { (Cost(month.spent_picos)) }
                        td.n { (budget.and_then(|budget| budget.cost_picos).map_or("∞".to_owned(), |most| Cost(most).to_string())) }
                        td.n.less { (Cost(month.reserved_picos)) }
                        td.n { (number(month.spent_tokens)) }
                        td.n { (budget.and_then(|budget| budget.tokens).map_or("∞".to_owned(), number)) }
                    }
                } }
            }
        }))
    }
}

/// What a tenant's clients are warned of: the budget is used up, or to its `warn_at`.
fn warning(month: &BudgetState) -> Option<&'static str> {
    let used_up = month.is_used_up().then_some("used up");
    used_up.or(month.warned_share().map(|_| "near limit"))
}

/// The used share of a budget, of money or tokens, whichever is larger.
#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn used(month: &BudgetState) -> Option<f64> {
    let budget = month.budget.as_ref()?;
    let money = budget.cost_picos.map(|most| month.spent_picos as f64 / (most as f64).max(1.0));
    let tokens = budget.tokens.map(|most| month.spent_tokens as f64 / (most as f64).max(1.0));
    money.into_iter().chain(tokens).reduce(f64::max).map(|used| used.min(1.0))
}

fn limits(profiles: &[ProfileView]) -> Markup {
    let limit = |profile: &ProfileView, name: &str| match profile.limits.get(name) {
        Some(serde_json::Value::Number(most)) => most.to_string(),
        _ => "∞".to_owned(),
    };
    let nothing = html! { "No profiles." br;
    code { "longshore profile add NAME --provider anthropic --model MODEL" } };
    html! {
        h2 { "Profiles and their limits" }
        (table_or_empty(profiles.len(), nothing, html! {
            table {
                thead { tr {
                    th { "Profile" } th.less { "Tenant" } th { "State" } th { "Provider" } th { "Model" }
                    th.n { "Requests/min" } th.n { "Tokens/min" } th.n.less { "At once" }
                } }
                tbody { @for profile in profiles {
                    tr {
                        td { (profile.name) }
                        td.less { (profile.tenant) }
                        td { (pill(if profile.suspended { "suspended" } else { "open" })) }
                        td { (profile.provider) }
                        td { (profile.model) }
                        td.n { (limit(profile, "requests")) }
                        td.n { (limit(profile, "tokens")) }
                        td.n.less { (limit(profile, "in_flight")) }
                    }
                } }
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use longshore::TenantId;
    use longshore::accounts::Budget;

    use super::*;

    #[test]
    fn the_scarcer_part_of_a_budget_counts() {
        let budget = Budget { tokens: Some(100), cost_picos: Some(1_000), warn_at: 0.8 };
        let month = BudgetState {
            spent_tokens: 50,
            spent_picos: 900,
            ..BudgetState::new(TenantId::default(), "2026-11".into(), Some(budget))
        };
        assert_eq!(used(&month), Some(0.9));
        assert_eq!(used(&BudgetState { budget: None, ..month.clone() }), None);
        assert_eq!(used(&BudgetState { spent_picos: 5_000, ..month.clone() }), Some(1.0));
        let spent = |spent_picos| warning(&BudgetState { spent_picos, ..month.clone() });
        assert_eq!([790, 800, 1_000].map(spent), [None, Some("near limit"), Some("used up")]);
    }
}
