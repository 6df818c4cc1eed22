//! Monthly budgets, and the usage of each month.
//!
//! Operations collect changes in [`MonthDeltas`], which are written once per operation.

use longshore_accounts::{Budget, BudgetState, CallEnd, NewCall};
use longshore_core::store::require_admin_scope;
use longshore_core::{Error, Result, Scope, TenantId, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use crate::error::Translate;
use crate::tx::Tx;

/// Changes of tenants' months.
#[derive(Debug, Default)]
pub(crate) struct MonthDeltas {
    /// Few: the calls of an operation belong to one month, or to two.
    deltas: Vec<(TenantId, String, MonthAmounts)>,
    /// The month of an hour (in hours since the epoch), cached: formatting it costs more than
    /// adding.
    last: Option<(i64, String)>,
}

/// Spent and reserved amounts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MonthAmounts {
    spent_tokens: i64,
    spent_picos: i64,
    reserved_tokens: i64,
    reserved_picos: i64,
}

impl MonthAmounts {
    /// The usage of a call that ended, or what an open call reserves.
    pub(crate) fn of(call: &NewCall, end: Option<&CallEnd>) -> Self {
        end.map_or_else(|| Self::reserved(call.reserve_tokens, call.reserve_picos), Self::spent)
    }

    fn spent(end: &CallEnd) -> Self {
        let spent_tokens = i64::try_from(end.tokens()).unwrap_or(i64::MAX);
        Self { spent_tokens, spent_picos: end.cost_picos, ..Self::default() }
    }

    /// What an open call reserves.
    pub(crate) fn reserved(tokens: u64, reserved_picos: i64) -> Self {
        let reserved_tokens = i64::try_from(tokens).unwrap_or(i64::MAX);
        Self { reserved_tokens, reserved_picos, ..Self::default() }
    }

    fn add(&mut self, other: Self, sign: i64) {
        let grow = |sum: &mut i64, by: i64| *sum = sum.saturating_add(by.saturating_mul(sign));
        grow(&mut self.spent_tokens, other.spent_tokens);
        grow(&mut self.spent_picos, other.spent_picos);
        grow(&mut self.reserved_tokens, other.reserved_tokens);
        grow(&mut self.reserved_picos, other.reserved_picos);
    }
}

const HOUR_MICROS: i64 = 3_600_000_000;

impl MonthDeltas {
    /// Adds a call to the month in which it was opened.
    pub(crate) fn count(&mut self, tenant: &TenantId, opened_at: Timestamp, amounts: MonthAmounts) {
        self.month(tenant, opened_at).add(amounts, 1);
    }

    /// Subtracts what [`Self::count`] added.
    pub(crate) fn subtract(&mut self, tenant: &TenantId, opened_at: Timestamp, amounts: MonthAmounts) {
        self.month(tenant, opened_at).add(amounts, -1);
    }

    fn month(&mut self, tenant: &TenantId, time: Timestamp) -> &mut MonthAmounts {
        let hour = time.as_micros().div_euclid(HOUR_MICROS);
        let month = match &self.last {
            Some((last, month)) if *last == hour => month,
            _ => &self.last.insert((hour, BudgetState::month_of(time))).1,
        };
        let same = |(other, moved, _): &(TenantId, String, MonthAmounts)| other == tenant && moved == month;
        let index = self.deltas.iter().position(same).unwrap_or_else(|| {
            self.deltas.push((tenant.clone(), month.clone(), MonthAmounts::default()));
            self.deltas.len() - 1
        });
        &mut self.deltas[index].2
    }

    /// Writes the changes.
    pub(crate) fn write(&mut self, db: &Connection) -> Result<()> {
        for (tenant, month, by) in std::mem::take(&mut self.deltas) {
            let MonthAmounts { spent_tokens, spent_picos, reserved_tokens, reserved_picos } = by;
            let deltas =
                (tenant.as_str(), month.as_str(), spent_tokens, spent_picos, reserved_tokens, reserved_picos);
            if db.prepare_cached(UPDATE_MONTH).or_translate()?.execute(deltas).or_translate()? == 0 {
                db.prepare_cached(INSERT_MONTH).or_translate()?.execute(deltas).or_translate()?;
            }
        }
        Ok(())
    }
}

/// Above the largest integer SQLite would switch to REAL; the casts saturate. Subtracting stops at
/// zero: `verify` reports sums that saturated, and no finish fails because of them.
const UPDATE_MONTH: &str = "UPDATE longshore_monthly_spend SET
    spent_tokens = max(0, CAST(spent_tokens + ?3 AS INTEGER)),
    spent_picos = max(0, CAST(spent_picos + ?4 AS INTEGER)),
    reserved_tokens = max(0, CAST(reserved_tokens + ?5 AS INTEGER)),
    reserved_picos = max(0, CAST(reserved_picos + ?6 AS INTEGER))
    WHERE tenant = ?1 AND month = ?2";

const INSERT_MONTH: &str = "INSERT INTO longshore_monthly_spend
    (tenant, month, spent_tokens, spent_picos, reserved_tokens, reserved_picos)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// Sets or removes a budget.
pub(crate) fn put(
    tx: &mut Tx<'_>,
    scope: &Scope,
    tenant: &TenantId,
    budget: Option<Budget>,
) -> Result<BudgetState> {
    require_admin_scope(scope, tenant)?;
    budget.as_ref().map_or(Ok(()), Budget::check)?;
    match budget {
        Some(Budget { tokens, cost_picos, warn_at }) => tx
            .db
            .execute(
                "INSERT OR REPLACE INTO longshore_budget (tenant, max_tokens, max_cost_picos,
                 warn_at)
                 VALUES (?1, ?2, ?3, ?4)",
                (tenant.as_str(), tokens, cost_picos, warn_at),
            )
            .or_translate()?,
        None => tx
            .db
            .execute("DELETE FROM longshore_budget WHERE tenant = ?1", [tenant.as_str()])
            .or_translate()?,
    };
    tx.announce("setting", "budget", Some(tenant.as_str()));
    month(tx.db, tenant, budget, tx.now)
}

/// A tenant's budget and this month's usage, within the scope.
pub(crate) fn show(db: &Connection, scope: &Scope, tenant: &TenantId, now: Timestamp) -> Result<BudgetState> {
    if !scope.covers(tenant) {
        return Err(Error::not_found("tenant", tenant));
    }
    month(db, tenant, budget(db, tenant)?, now)
}

/// A tenant's budget, if it has one.
pub(super) fn budget(db: &Connection, tenant: &TenantId) -> Result<Option<Budget>> {
    db.prepare_cached(
        "SELECT max_tokens, max_cost_picos, warn_at FROM longshore_budget WHERE
                       tenant = ?1",
    )
    .or_translate()?
    .query_row([tenant.as_str()], |row| {
        Ok(Budget { tokens: row.get(0)?, cost_picos: row.get(1)?, warn_at: row.get(2)? })
    })
    .optional()
    .or_translate()
}

/// A tenant's month as of the last flush.
pub(super) fn month(
    db: &Connection,
    tenant: &TenantId,
    budget: Option<Budget>,
    now: Timestamp,
) -> Result<BudgetState> {
    let fresh = BudgetState::new(tenant.clone(), BudgetState::month_of(now), budget);
    let found = db
        .prepare_cached(
            "SELECT spent_tokens, spent_picos, reserved_tokens, reserved_picos
             FROM longshore_monthly_spend WHERE tenant = ?1 AND month = ?2",
        )
        .or_translate()?
        .query_row((tenant.as_str(), &fresh.month), |row| {
            Ok(BudgetState {
                spent_tokens: row.get(0)?,
                spent_picos: row.get(1)?,
                reserved_tokens: row.get(2)?,
                reserved_picos: row.get(3)?,
                ..fresh.clone()
            })
        })
        .optional()
        .or_translate()?;
    Ok(found.unwrap_or(fresh))
}
