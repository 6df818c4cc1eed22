//! Calls: admitted before they are made, settled after, and marked as lost when their session dies.

use std::collections::HashMap;

use longshore_accounts::budget::BudgetDecision;
use longshore_accounts::rows::{call_status_code, read_call};
use longshore_accounts::{
    BudgetState, Call, CallAdmission, CallEnd, CallRecord, CallStatus, CostCorrection, NewCall,
};
use longshore_core::{CallId, Error, Result, Scope, SessionId, TenantId, Timestamp, UnitId};

use super::budgets::{self, MonthAmounts};
use super::call_row;
use crate::error::{Translate, damaged};
use crate::prepared::PreparedSql;
use crate::row::Columns;
use crate::session;
use crate::tx::Tx;

/// Writes intents and reserves what the calls may use, each call seeing the ones before it.
pub(crate) fn admit(tx: &mut Tx<'_>, calls: &[NewCall]) -> Result<Vec<CallAdmission>> {
    let mut checked = None;
    for call in calls {
        call.check()?;
        // The calls of a request usually have one session: check it once.
        if let Some(session) = call.session.filter(|session| checked != Some(*session)) {
            session::number(tx.db, session)?;
            checked = Some(session);
        }
    }
    let mut months = BudgetCache::default();
    calls.iter().map(|call| admit_one(tx, &mut months, call)).collect()
}

fn admit_one(tx: &mut Tx<'_>, months: &mut BudgetCache, call: &NewCall) -> Result<CallAdmission> {
    if !matches!(find(tx, call.id)?, StoredCall::Missing) {
        return Ok(CallAdmission::Admitted);
    }
    if let Some(found) = find_duplicate(tx, call)? {
        return Ok(CallAdmission::Duplicate(Box::new(found)));
    }
    let NewCall { reserve_tokens, reserve_picos, .. } = *call;
    let mut admission = CallAdmission::Admitted;
    if let Some(month) = months.of(tx, &call.tenant)? {
        match month.admit(reserve_tokens, reserve_picos) {
            BudgetDecision::Exceeded => return Ok(CallAdmission::OverBudget(month.clone())),
            BudgetDecision::NearLimit(part) => admission = CallAdmission::NearBudget(part),
            BudgetDecision::Within => {}
        }
        month.reserved_tokens = month.reserved_tokens.saturating_add(reserve_tokens);
        month.reserved_picos = month.reserved_picos.saturating_add(reserve_picos);
    }
    open(tx, call, None)?;
    Ok(admission)
}

/// Inserts a call and counts it, if it does not exist; whether it was inserted.
fn open(tx: &mut Tx<'_>, call: &NewCall, end: Option<&CallEnd>) -> Result<bool> {
    if !call_row::insert(tx, call, end)? {
        return Ok(false);
    }
    if end.is_none() {
        tx.claim_cache.insert_call(call.id);
    }
    let now = tx.now;
    tx.months.count(&call.tenant, now, MonthAmounts::of(call, end));
    Ok(true)
}

/// The months of tenants with a budget, including the calls admitted so far.
#[derive(Default)]
struct BudgetCache(HashMap<TenantId, Option<BudgetState>>);

impl BudgetCache {
    fn of(&mut self, tx: &Tx<'_>, tenant: &TenantId) -> Result<Option<&mut BudgetState>> {
        if !self.0.contains_key(tenant) {
            let month = match budgets::budget(tx.db, tenant)? {
                None => None,
                budget => Some(budgets::month(tx.db, tenant, budget, tx.now)?),
            };
            self.0.insert(tenant.clone(), month);
        }
        Ok(self.0.get_mut(tenant).and_then(Option::as_mut))
    }
}

/// The call of another unit for the same request that is open or was answered.
fn find_duplicate(tx: &mut Tx<'_>, call: &NewCall) -> Result<Option<Call>> {
    let unit = call.unit.as_ref().map(UnitId::as_bytes);
    let mut rows = tx
        .prepared(PreparedSql::DuplicateCall)?
        .query((&call.request_id, call.tenant.as_str(), unit))
        .or_translate()?;
    rows.next().or_translate()?.map(|row| read_call(&Columns(row))).transpose()
}

/// Writes calls and their ends. Writes nothing if a record is invalid.
pub(crate) fn record(tx: &mut Tx<'_>, records: &[CallRecord]) -> Result<()> {
    records.iter().try_for_each(CallRecord::check)?;
    // Calls that end without a written intent are inserted without checking whether they exist.
    let (new, others): (Vec<_>, Vec<_>) = records.iter().partition(|record| is_new(tx, record));
    new.chunks(call_row::INSERT_BATCH).try_for_each(|chunk| insert_chunk(tx, chunk))?;
    others.into_iter().try_for_each(|record| settle(tx, &record.call, record.end.as_ref()))
}

/// Whether a call ends of which nothing was written, as far as is known. An intent counts as
/// written, so that later records of the same list update it.
fn is_new(tx: &mut Tx<'_>, record: &CallRecord) -> bool {
    if record.end.is_none() {
        tx.claim_cache.insert_call(record.call.id);
    }
    !tx.claim_cache.has_call(record.call.id)
}

/// Inserts calls that do not exist, as far as is known.
fn insert_chunk(tx: &mut Tx<'_>, chunk: &[&CallRecord]) -> Result<()> {
    if chunk.len() == call_row::INSERT_BATCH && call_row::insert_batch(tx, chunk)? {
        let now = tx.now;
        for CallRecord { call, end } in chunk {
            tx.months.count(&call.tenant, now, MonthAmounts::of(call, end.as_ref()));
        }
        return Ok(());
    }
    for CallRecord { call, end } in chunk {
        if !open(tx, call, end.as_ref())? {
            settle(tx, call, end.as_ref())?;
        }
    }
    Ok(())
}

fn settle(tx: &mut Tx<'_>, call: &NewCall, end: Option<&CallEnd>) -> Result<()> {
    if end.is_some() {
        tx.claim_cache.remove_call(call.id);
    }
    match find(tx, call.id)? {
        StoredCall::Missing => {
            let lost = end.is_none() && session_ended(tx, call.session)?;
            let billed = lost.then(|| call.lost_end());
            open(tx, call, billed.as_ref().or(end)).map(drop)
        }
        StoredCall::Open { tenant, opened_at, amounts } => {
            call_row::update(tx, call, end)?;
            // The tenant of the first write pays.
            tx.months.subtract(&tenant, opened_at, amounts);
            tx.months.count(&tenant, opened_at, MonthAmounts::of(call, end));
            Ok(())
        }
        StoredCall::Ended => Ok(()),
    }
}

fn session_ended(tx: &Tx<'_>, session: Option<SessionId>) -> Result<bool> {
    session.map_or(Ok(false), |session| Ok(session::find(tx.db, session)?.is_none()))
}

/// The stored state of a call.
enum StoredCall {
    Missing,
    /// It reserves these amounts in its month.
    Open {
        tenant: TenantId,
        opened_at: Timestamp,
        amounts: MonthAmounts,
    },
    Ended,
}

fn find(tx: &mut Tx<'_>, id: CallId) -> Result<StoredCall> {
    let mut rows = tx.prepared(PreparedSql::FindCall)?.query([id.as_bytes()]).or_translate()?;
    let Some(row) = rows.next().or_translate()? else { return Ok(StoredCall::Missing) };
    if row.get::<_, u8>(0).or_translate()? != call_status_code(CallStatus::Open) {
        return Ok(StoredCall::Ended);
    }
    let tenant = row.get_ref(1).and_then(|text| Ok(text.as_str()?)).or_translate()?;
    Ok(StoredCall::Open {
        tenant: TenantId::new(tenant).map_err(damaged)?,
        opened_at: Timestamp::from_micros(row.get(2).or_translate()?),
        amounts: MonthAmounts::reserved(row.get(3).or_translate()?, row.get(4).or_translate()?),
    })
}

/// Marks the open calls of a session that has ended as possibly billed.
pub(crate) fn mark_lost(tx: &mut Tx<'_>, session: SessionId) -> Result<()> {
    let rest = "INDEXED BY longshore_call_open WHERE session = ?1 AND status = 0
        AND session IS NOT NULL";
    for open in call_row::select(tx.db, rest, [session.as_bytes()])? {
        settle(tx, &open.call, Some(&open.call.lost_end()))?;
    }
    Ok(())
}

/// Corrects the cost of calls, and their months.
pub(crate) fn recost(tx: &mut Tx<'_>, scope: &Scope, recosts: &[CostCorrection]) -> Result<()> {
    for recost in recosts {
        recost.check()?;
        let found = call_row::select(tx.db, "WHERE id = ?1", [recost.id.as_bytes()])?.pop();
        let found = found.filter(|call| scope.covers(&call.call.tenant));
        let Call { call, end, opened_at, .. } = found.ok_or_else(|| Error::not_found("call", recost.id))?;
        let before = end.ok_or_else(|| recost.open_call_error())?;
        let after = CallEnd { cost_picos: recost.cost_picos, ..before.clone() };
        tx.months.subtract(&call.tenant, opened_at, MonthAmounts::of(&call, Some(&before)));
        tx.months.count(&call.tenant, opened_at, MonthAmounts::of(&call, Some(&after)));
        tx.db
            .prepare_cached("UPDATE longshore_call SET cost_picos = ?2 WHERE id = ?1")
            .or_translate()?
            .execute((recost.id.as_bytes(), recost.cost_picos))
            .or_translate()?;
    }
    Ok(())
}

/// Removes calls that ended and were opened until a time, from their months too.
pub(crate) fn prune(tx: &mut Tx<'_>, until: Timestamp, limit: u32) -> Result<u64> {
    let rest = "INDEXED BY longshore_call_opened WHERE opened_at <= ?1 AND status <> 0
        ORDER BY opened_at LIMIT ?2";
    let old = call_row::select(tx.db, rest, (until.as_micros(), limit))?;
    for Call { call, end, opened_at, .. } in &old {
        tx.months.subtract(&call.tenant, *opened_at, MonthAmounts::of(call, end.as_ref()));
        tx.db
            .prepare_cached("DELETE FROM longshore_call WHERE id = ?1")
            .or_translate()?
            .execute([call.id.as_bytes()])
            .or_translate()?;
    }
    Ok(old.len() as u64)
}
