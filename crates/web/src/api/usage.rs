//! Usage and budgets of AI calls.

use std::time::Duration;

use longshore::accounts::{BudgetState, Usage, UsageBy, UsageFilter};
use longshore::{BatchId, Scope, TenantId, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::app_state::AppState;
use crate::auth::Caller;
use crate::endpoints::ApiResult;
use crate::problem::Problem;
use crate::request_context::RequestContext;

const DAY: Duration = Duration::from_secs(86_400);
/// Maximum number of tenants in the budget list.
const MAX_TENANTS: usize = 1_000;

/// A group of calls, with the cost in dollars.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageView {
    /// Sums of the calls.
    #[serde(flatten)]
    pub usage: Usage,
    /// Cost in dollars.
    pub cost: f64,
}

pub(super) async fn list(ctx: RequestContext) -> ApiResult {
    let by = match ctx.query::<String>("by")?.as_deref() {
        Some("tenant") => UsageBy::Tenant,
        Some("model") => UsageBy::Model,
        Some("batch") => UsageBy::Batch,
        Some("profile") => UsageBy::Profile,
        _ => UsageBy::Day,
    };
    let days = ctx.query::<u32>("days")?.unwrap_or(30);
    let scope = ctx.scope()?;
    let filter = UsageFilter {
        batch: ctx.query::<BatchId>("batch")?.map(|id| scope.batch_id(&id)),
        profile: ctx.query("profile")?,
        since: Some(time(&ctx, "since")?.unwrap_or(ctx.app.now() - DAY * days)),
        until: time(&ctx, "until")?,
        ..UsageFilter::default()
    };
    let sums = ctx.app.ledger.usage(&scope, &filter, by).await?;
    let shown = |usage: Usage| UsageView { cost: longshore_ai::Cost(usage.cost_picos).dollars(), usage };
    let items: Vec<UsageView> = sums.into_iter().map(shown).collect();
    ctx.page(items, |sum| sum.usage.name.clone())
}

fn time(ctx: &RequestContext, name: &str) -> Result<Option<Timestamp>, Problem> {
    let given = ctx.query::<String>(name)?.map(|text| Timestamp::parse(&text));
    given.transpose().map_err(|error| Problem::bad_request(format!("`{name}`: {error}")))
}

pub(super) async fn months(ctx: RequestContext) -> ApiResult {
    ctx.page(budgets(&ctx.app, &ctx.caller).await?, |month| month.tenant.to_string())
}

/// This month's budgets that the caller sees: its own, or those of all tenants with a record or with
/// spending.
pub(crate) async fn budgets(app: &AppState, caller: &Caller) -> Result<Vec<BudgetState>, Problem> {
    let tenants: Vec<TenantId> = match &caller.scope {
        Scope::Tenant(own) => vec![own.clone()],
        Scope::All => known_tenants(app).await?,
    };
    let mut months = Vec::new();
    for tenant in tenants.into_iter().take(MAX_TENANTS) {
        let month = app.ledger.budget(&caller.scope, &tenant).await?;
        if month.budget.is_some() || month.spent_tokens > 0 || month.reserved_tokens > 0 {
            months.push(month);
        }
    }
    Ok(months)
}

async fn known_tenants(app: &AppState) -> Result<Vec<TenantId>, Problem> {
    let filter = UsageFilter { since: Some(app.now() - DAY * 31), ..UsageFilter::default() };
    let spent = app.ledger.usage(&Scope::All, &filter, UsageBy::Tenant).await?;
    let mut all: Vec<TenantId> = spent.into_iter().filter_map(|sum| TenantId::new(sum.name).ok()).collect();
    all.extend(app.store.tenants(&Scope::All).await?.into_iter().map(|tenant| tenant.id));
    all.sort();
    all.dedup();
    Ok(all)
}
