//! Monthly budgets, and what each month has taken of them.
//!
//! Verbs say which calls count ([`MonthMoves`]); the months move once per verb, when it is flushed.

use std::collections::BTreeMap;

use longshore_core::ledger::{Budget, BudgetState, Call};
use longshore_core::store::in_charge_of_tenants;
use longshore_core::{Error, Result, Scope, TenantId, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use crate::error::Translate;
use crate::tx::Tx;

/// How the months of tenants move.
#[derive(Debug, Default)]
pub(crate) struct MonthMoves(BTreeMap<(TenantId, String), Move>);

#[derive(Debug, Default)]
struct Move {
    spent_tokens: i64,
    spent_picos: i64,
    reserved_tokens: i64,
    reserved_picos: i64,
}

impl MonthMoves {
    /// Counts a call: what it came to, or may come to.
    pub(crate) fn count(&mut self, call: &Call) {
        self.add(call, 1);
    }

    /// Takes back what was counted.
    pub(crate) fn discount(&mut self, call: &Call) {
        self.add(call, -1);
    }

    fn add(&mut self, call: &Call, sign: i64) {
        let key = (call.call.tenant.clone(), BudgetState::month_of(call.opened_at));
        let month = self.0.entry(key).or_default();
        let signed = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX).saturating_mul(sign);
        let grow = |sum: &mut i64, by: i64| *sum = sum.saturating_add(by);
        match &call.end {
            Some(end) => {
                grow(&mut month.spent_tokens, signed(end.tokens()));
                grow(&mut month.spent_picos, end.cost_picos.saturating_mul(sign));
            }
            None => {
                grow(&mut month.reserved_tokens, signed(call.call.reserve_tokens));
                grow(&mut month.reserved_picos, call.call.reserve_picos.saturating_mul(sign));
            }
        }
    }

    /// Moves the months.
    pub(crate) fn write(&mut self, db: &Connection) -> Result<()> {
        for ((tenant, month), by) in std::mem::take(&mut self.0) {
            let Move { spent_tokens, spent_picos, reserved_tokens, reserved_picos } = by;
            let moves = (
                tenant.as_str(),
                month.as_str(),
                spent_tokens,
                spent_picos,
                reserved_tokens,
                reserved_picos,
            );
            if db.prepare_cached(MOVE).or_translate()?.execute(moves).or_translate()? == 0 {
                db.prepare_cached(BEGIN).or_translate()?.execute(moves).or_translate()?;
            }
        }
        Ok(())
    }
}

/// Beyond the largest integer SQLite would go on as REAL; the casts stop there.
const MOVE: &str = "UPDATE longshore_month SET spent_tokens = CAST(spent_tokens + ?3 AS INTEGER),
    spent_picos = CAST(spent_picos + ?4 AS INTEGER),
    reserved_tokens = CAST(reserved_tokens + ?5 AS INTEGER),
    reserved_picos = CAST(reserved_picos + ?6 AS INTEGER) WHERE tenant = ?1 AND month = ?2";

const BEGIN: &str = "INSERT INTO longshore_month
    (tenant, month, spent_tokens, spent_picos, reserved_tokens, reserved_picos)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// Sets or lifts a budget.
pub(crate) fn put(
    tx: &mut Tx<'_>,
    scope: &Scope,
    tenant: &TenantId,
    budget: Option<Budget>,
) -> Result<BudgetState> {
    in_charge_of_tenants(scope, tenant)?;
    budget.as_ref().map_or(Ok(()), Budget::check)?;
    match budget {
        Some(Budget { tokens, cost_picos, warn_at }) => tx
            .db
            .execute(
                "INSERT OR REPLACE INTO longshore_budget (tenant, tokens, cost_picos, warn_at)
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
    month(tx.db, tenant, tx.now)
}

/// A tenant's budget and this month, within the scope.
pub(crate) fn show(
    db: &Connection,
    scope: &Scope,
    tenant: &TenantId,
    now: Timestamp,
) -> Result<BudgetState> {
    if !scope.covers(tenant) {
        return Err(Error::not_found("tenant", tenant));
    }
    month(db, tenant, now)
}

/// A tenant's budget, if it has one.
pub(super) fn budget(db: &Connection, tenant: &TenantId) -> Result<Option<Budget>> {
    db.prepare_cached("SELECT tokens, cost_picos, warn_at FROM longshore_budget WHERE tenant = ?1")
        .or_translate()?
        .query_row([tenant.as_str()], |row| {
            Ok(Budget { tokens: row.get(0)?, cost_picos: row.get(1)?, warn_at: row.get(2)? })
        })
        .optional()
        .or_translate()
}

/// A tenant's month as the last flush left it.
pub(super) fn month(db: &Connection, tenant: &TenantId, now: Timestamp) -> Result<BudgetState> {
    let fresh = BudgetState::new(tenant.clone(), BudgetState::month_of(now), budget(db, tenant)?);
    let found = db
        .prepare_cached(
            "SELECT spent_tokens, spent_picos, reserved_tokens, reserved_picos
             FROM longshore_month WHERE tenant = ?1 AND month = ?2",
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
