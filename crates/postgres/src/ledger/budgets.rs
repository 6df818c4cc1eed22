//! Monthly budgets, and the totals of months.

use longshore_accounts::{Budget, BudgetState};
use longshore_core::store::require_admin_scope;
use longshore_core::{Result, Scope, TenantId};
use tokio_postgres::Row;

use super::check_scope;
use crate::advisory_lock::{self, AdvisoryLock};
use crate::error::damaged;
use crate::row::{count, value};
use crate::tx::Tx;

/// Sets or removes a tenant's budget, under its lock: concurrent admissions without a budget commit
/// first and are counted.
pub(crate) async fn put(
    tx: &mut Tx<'_>,
    scope: &Scope,
    tenant: &TenantId,
    budget: Option<Budget>,
) -> Result<BudgetState> {
    require_admin_scope(scope, tenant)?;
    advisory_lock::acquire(tx, &[AdvisoryLock::Budget(tenant.as_str())]).await?;
    match budget {
        Some(budget) => write(tx, tenant, &budget).await?,
        None => {
            let sql = "DELETE FROM longshore_budget WHERE tenant = $1";
            tx.execute(sql, &[&tenant.as_str()]).await?;
        }
    }
    tx.announce("setting", "budget", Some(tenant.as_str()));
    state(tx, tenant).await
}

async fn write(tx: &mut Tx<'_>, tenant: &TenantId, budget: &Budget) -> Result<()> {
    budget.check()?;
    let Budget { tokens, cost_picos, warn_at } = budget;
    let tokens = tokens.map(|tokens| i64::try_from(tokens).unwrap_or(i64::MAX));
    tx.execute(
        "INSERT INTO longshore_budget (tenant, max_tokens, max_cost_picos, warn_at)
         VALUES ($1, $2, $3, $4) ON CONFLICT (tenant) DO UPDATE
         SET max_tokens = $2, max_cost_picos = $3, warn_at = $4",
        &[&tenant.as_str(), &tokens, cost_picos, warn_at],
    )
    .await?;
    Ok(())
}

/// A tenant's budget and the totals of its current month.
pub(crate) async fn show(tx: &mut Tx<'_>, scope: &Scope, tenant: &TenantId) -> Result<BudgetState> {
    check_scope(scope, tenant)?;
    state(tx, tenant).await
}

async fn state(tx: &mut Tx<'_>, tenant: &TenantId) -> Result<BudgetState> {
    let month = BudgetState::month_of(tx.now);
    let row = tx
        .query_one(
            "SELECT $1, b.max_tokens, b.max_cost_picos, b.warn_at,
             longshore_clamp_bigint(m.spent_tokens),
             longshore_clamp_bigint(m.spent_picos), longshore_clamp_bigint(m.reserved_tokens),
             longshore_clamp_bigint(m.reserved_picos)
             FROM (SELECT 1) one LEFT JOIN longshore_budget b ON b.tenant = $1
             LEFT JOIN longshore_monthly_spend_total m ON m.tenant = $1 AND m.month = $2",
            &[&tenant.as_str(), &month],
        )
        .await?;
    read_state(&row, 0, month)
}

/// Reads a month from eight columns that begin at `at`: tenant, the budget's three columns, spent
/// and reserved amounts. The budget is set if its `warn_at` is not NULL.
pub(super) fn read_state(row: &Row, at: usize, month: String) -> Result<BudgetState> {
    let tenant = TenantId::new(value::<&str>(row, at)?).map_err(damaged)?;
    let tokens = value::<Option<i64>>(row, at + 1)?.map(i64::unsigned_abs);
    let cost_picos = value(row, at + 2)?;
    let budget = value::<Option<f64>>(row, at + 3)?;
    Ok(BudgetState {
        tenant,
        month,
        budget: budget.map(|warn_at| Budget { tokens, cost_picos, warn_at }),
        spent_tokens: count(row, at + 4)?,
        spent_picos: value(row, at + 5)?,
        reserved_tokens: count(row, at + 6)?,
        reserved_picos: value(row, at + 7)?,
    })
}
