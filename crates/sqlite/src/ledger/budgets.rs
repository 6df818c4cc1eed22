//! Monthly budgets, and what each month has taken of them.
//!
//! Verbs say which calls count ([`MonthMoves`]); the months move once per verb, when it is flushed.

use longshore_core::ledger::{Budget, BudgetState, CallEnd, NewCall};
use longshore_core::store::in_charge_of_tenants;
use longshore_core::{Error, Result, Scope, TenantId, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use crate::error::Translate;
use crate::tx::Tx;

/// How the months of tenants move.
#[derive(Debug, Default)]
pub(crate) struct MonthMoves {
    /// Few: the calls of a verb are of one month, or of two.
    moves: Vec<(TenantId, String, Weight)>,
    /// The month of an hour, in hours since the epoch: writing it anew costs more than adding.
    last: Option<(i64, String)>,
}

/// What a call, or some, have in a month.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weight {
    spent_tokens: i64,
    spent_picos: i64,
    reserved_tokens: i64,
    reserved_picos: i64,
}

impl Weight {
    /// What a call came to, or may come to.
    pub(crate) fn of(call: &NewCall, end: Option<&CallEnd>) -> Self {
        end.map_or_else(|| Self::reserved(call.reserve_tokens, call.reserve_picos), Self::spent)
    }

    fn spent(end: &CallEnd) -> Self {
        let spent_tokens = i64::try_from(end.tokens()).unwrap_or(i64::MAX);
        Self { spent_tokens, spent_picos: end.cost_picos, ..Self::default() }
    }

    /// What a call may come to.
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

const HOUR: i64 = 3_600_000_000;

impl MonthMoves {
    /// Counts a call in the month it was opened in.
    pub(crate) fn count(&mut self, tenant: &TenantId, opened_at: Timestamp, weight: Weight) {
        self.month(tenant, opened_at).add(weight, 1);
    }

    /// Takes back what was counted.
    pub(crate) fn discount(&mut self, tenant: &TenantId, opened_at: Timestamp, weight: Weight) {
        self.month(tenant, opened_at).add(weight, -1);
    }

    fn month(&mut self, tenant: &TenantId, time: Timestamp) -> &mut Weight {
        let hour = time.as_micros().div_euclid(HOUR);
        let month = match &self.last {
            Some((last, month)) if *last == hour => month,
            _ => &self.last.insert((hour, BudgetState::month_of(time))).1,
        };
        let same =
            |(other, moved, _): &(TenantId, String, Weight)| other == tenant && moved == month;
        let place = self.moves.iter().position(same).unwrap_or_else(|| {
            self.moves.push((tenant.clone(), month.clone(), Weight::default()));
            self.moves.len() - 1
        });
        &mut self.moves[place].2
    }

    /// Moves the months.
    pub(crate) fn write(&mut self, db: &Connection) -> Result<()> {
        for (tenant, month, by) in std::mem::take(&mut self.moves) {
            let Weight { spent_tokens, spent_picos, reserved_tokens, reserved_picos } = by;
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

/// Beyond the largest integer SQLite would go on as REAL; the casts stop there. What is then taken
/// back stops at zero: sums that no longer fit are for `verify` to tell, not for a finish to fail by.
const MOVE: &str = "UPDATE longshore_month SET
    spent_tokens = max(0, CAST(spent_tokens + ?3 AS INTEGER)),
    spent_picos = max(0, CAST(spent_picos + ?4 AS INTEGER)),
    reserved_tokens = max(0, CAST(reserved_tokens + ?5 AS INTEGER)),
    reserved_picos = max(0, CAST(reserved_picos + ?6 AS INTEGER))
    WHERE tenant = ?1 AND month = ?2";

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
    month(tx.db, tenant, budget, tx.now)
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
    month(db, tenant, budget(db, tenant)?, now)
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
