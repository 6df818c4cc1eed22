//! What AI calls came to, and what may be spent.

use std::time::Duration;

use longshore::ledger::{BudgetState, Usage, UsageBy, UsageFilter};
use longshore::store::Page;
use longshore::{Scope, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::call::{Call, json};
use crate::door::Caller;
use crate::house::House;
use crate::problem::Problem;
use crate::table::Answer;

const DAY: Duration = Duration::from_secs(86_400);
/// Tenants whose months are told at once.
const TENANTS: usize = 1_000;

/// Some calls, with their cost in dollars beside the exact one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// What they came to.
    #[serde(flatten)]
    pub usage: Usage,
    /// Dollars.
    pub cost: f64,
}

pub(super) async fn list(call: Call) -> Answer {
    let by = match call.query::<String>("by")?.as_deref() {
        Some("tenant") => UsageBy::Tenant,
        Some("model") => UsageBy::Model,
        Some("batch") => UsageBy::Batch,
        Some("profile") => UsageBy::Profile,
        _ => UsageBy::Day,
    };
    let days = call.query::<u32>("days")?.unwrap_or(30);
    let filter = UsageFilter {
        batch: call.query("batch")?,
        profile: call.query("profile")?,
        since: Some(time(&call, "since")?.unwrap_or(call.house.now() - DAY * days)),
        until: time(&call, "until")?,
        ..UsageFilter::default()
    };
    let sums = call.house.ledger.usage(&call.scope()?, &filter, by).await?;
    let shown =
        |usage: Usage| Shown { cost: longshore_ai::Cost(usage.cost_picos).dollars(), usage };
    let items: Vec<Shown> = sums.into_iter().map(shown).collect();
    json(&Page { items, next: None })
}

fn time(call: &Call, name: &str) -> Result<Option<Timestamp>, Problem> {
    let given = call.query::<String>(name)?.map(|text| Timestamp::parse(&text));
    given.transpose().map_err(|error| Problem::bad(format!("`{name}`: {error}")))
}

pub(super) async fn months(call: Call) -> Answer {
    json(&Page { items: budgets(&call.house, &call.caller).await?, next: None })
}

/// This month of every tenant that the caller sees: their own, or of all that have a record or
/// have spent something.
pub(crate) async fn budgets(house: &House, caller: &Caller) -> Result<Vec<BudgetState>, Problem> {
    let tenants: Vec<TenantId> = match &caller.scope {
        Scope::Tenant(own) => vec![own.clone()],
        Scope::All => known(house).await?,
    };
    let mut months = Vec::new();
    for tenant in tenants.into_iter().take(TENANTS) {
        let month = house.ledger.budget(&caller.scope, &tenant).await?;
        if month.budget.is_some() || month.spent_tokens > 0 || month.reserved_tokens > 0 {
            months.push(month);
        }
    }
    Ok(months)
}

async fn known(house: &House) -> Result<Vec<TenantId>, Problem> {
    let filter = UsageFilter { since: Some(house.now() - DAY * 31), ..UsageFilter::default() };
    let spent = house.ledger.usage(&Scope::All, &filter, UsageBy::Tenant).await?;
    let mut all: Vec<TenantId> =
        spent.into_iter().filter_map(|sum| TenantId::new(sum.name).ok()).collect();
    all.extend(house.store.tenants(&Scope::All).await?.into_iter().map(|tenant| tenant.id));
    all.sort();
    all.dedup();
    Ok(all)
}
