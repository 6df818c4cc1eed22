//! Calls: admitted before they are made, settled after, given up with who made them.

use std::collections::HashMap;

use longshore_core::ledger::budget::Verdict;
use longshore_core::ledger::{
    Admission, BudgetState, Call, CallRecord, CallStatus, NewCall, Recost,
};
use longshore_core::{CallId, Error, Result, Scope, SessionId, TenantId, UnitId};
use rusqlite::Row;

use super::{budgets, call_row};
use crate::error::Translate;
use crate::hot::Hot;
use crate::session;
use crate::tx::Tx;

/// Journals calls and reserves what they may use, each seeing those before it.
pub(crate) fn admit(tx: &mut Tx<'_>, calls: &[NewCall]) -> Result<Vec<Admission>> {
    let mut seen = None;
    for call in calls {
        call.check()?;
        // A worker's calls come together: one look for all of them.
        if call.session.is_some() && call.session != seen {
            call.session.map_or(Ok(0), |session| session::number(tx.db, session))?;
            seen = call.session;
        }
    }
    let mut months = Months::default();
    calls.iter().map(|call| admit_one(tx, &mut months, call)).collect()
}

fn admit_one(tx: &mut Tx<'_>, months: &mut Months, call: &NewCall) -> Result<Admission> {
    if find(tx, call.id)?.is_some() {
        return Ok(Admission::Admitted);
    }
    if let Some(found) = duplicated_by(tx, call)? {
        return Ok(Admission::Duplicate(Box::new(found)));
    }
    let opened = Call::new(CallRecord { call: call.clone(), end: None }, tx.now, tx.now);
    let admission = match months.of(tx, &call.tenant)? {
        None => Admission::Admitted,
        Some(month) => match month.admit(call.reserve_tokens, call.reserve_picos) {
            Verdict::Over => return Ok(Admission::OverBudget(month.clone())),
            verdict => {
                month.count(&opened);
                match verdict {
                    Verdict::FitsNearly(part) => Admission::NearBudget(part),
                    _ => Admission::Admitted,
                }
            }
        },
    };
    call_row::insert(tx, &opened)?;
    tx.months.count(&opened);
    Ok(admission)
}

/// The months of tenants that have a budget, as they are after the calls so far.
#[derive(Default)]
struct Months(HashMap<TenantId, Option<BudgetState>>);

impl Months {
    fn of(&mut self, tx: &Tx<'_>, tenant: &TenantId) -> Result<Option<&mut BudgetState>> {
        if !self.0.contains_key(tenant) {
            let month = match budgets::budget(tx.db, tenant)? {
                Some(_) => Some(budgets::month(tx.db, tenant, tx.now)?),
                None => None,
            };
            self.0.insert(tenant.clone(), month);
        }
        Ok(self.0.get_mut(tenant).and_then(Option::as_mut))
    }
}

/// Who asks the same for another unit, or did and was answered.
fn duplicated_by(tx: &Tx<'_>, call: &NewCall) -> Result<Option<Call>> {
    let rest = "INDEXED BY longshore_call_request WHERE request_id = ?1 AND tenant = ?2
        AND status IN (0, 1) AND unit IS NOT ?3 ORDER BY opened_at DESC, id DESC LIMIT 1";
    let unit = call.unit.as_ref().map(UnitId::as_bytes);
    let found = call_row::select(tx.db, rest, (&call.request_id, call.tenant.as_str(), unit))?;
    Ok(found.into_iter().next())
}

/// Writes what calls came to. Nothing of it if one of them makes no sense.
pub(crate) fn record(tx: &mut Tx<'_>, records: &[CallRecord]) -> Result<()> {
    records.iter().try_for_each(CallRecord::check)?;
    records.iter().try_for_each(|record| settle(tx, record))
}

fn settle(tx: &mut Tx<'_>, record: &CallRecord) -> Result<()> {
    let Some(before) = find(tx, record.call.id)? else {
        let record = CallRecord { call: record.call.clone(), end: end_of(tx, record)? };
        let call = Call::new(record, tx.now, tx.now);
        call_row::insert(tx, &call)?;
        tx.months.count(&call);
        return Ok(());
    };
    if before.end.is_some() {
        return Ok(());
    }
    let call = Call::new(record.clone(), before.opened_at, tx.now);
    call_row::update(tx, &call)?;
    tx.months.discount(&before);
    // Who pays is who was said to pay first.
    let tenant = before.call.tenant;
    tx.months.count(&Call { call: NewCall { tenant, ..call.call }, ..call });
    Ok(())
}

/// The end of a call that is not there yet: whoever made it may be gone.
fn end_of(tx: &Tx<'_>, record: &CallRecord) -> Result<Option<longshore_core::ledger::CallEnd>> {
    let CallRecord { call, end } = record;
    match call.session {
        Some(session) if end.is_none() && session::find(tx.db, session)?.is_none() => {
            Ok(Some(call.maybe_billed()))
        }
        _ => Ok(end.clone()),
    }
}

fn find(tx: &mut Tx<'_>, id: CallId) -> Result<Option<Call>> {
    let mut rows = tx.hot(Hot::FindCall)?.query([id.as_bytes()]).or_translate()?;
    rows.next().or_translate()?.map(|row: &Row<'_>| call_row::read(row)).transpose()
}

/// Whoever made these calls is gone: they may have been billed.
pub(crate) fn give_up(tx: &mut Tx<'_>, session: SessionId) -> Result<()> {
    let rest = "INDEXED BY longshore_call_open WHERE session = ?1 AND status = 0
        AND session IS NOT NULL";
    for open in call_row::select(tx.db, rest, [session.as_bytes()])? {
        let end = Some(open.call.maybe_billed());
        settle(tx, &CallRecord { call: open.call, end })?;
    }
    Ok(())
}

/// Corrects what calls cost, and with it their months.
pub(crate) fn recost(tx: &mut Tx<'_>, scope: &Scope, recosts: &[Recost]) -> Result<()> {
    for recost in recosts {
        recost.check()?;
        let found = find(tx, recost.id)?.filter(|call| scope.covers(&call.call.tenant));
        let mut call = found.ok_or_else(|| Error::not_found("call", recost.id))?;
        if call.status == CallStatus::Open {
            return Err(recost.is_open());
        }
        tx.months.discount(&call);
        if let Some(end) = &mut call.end {
            end.cost_picos = recost.cost_picos;
        }
        tx.months.count(&call);
        tx.db
            .prepare_cached("UPDATE longshore_call SET cost_picos = ?2 WHERE id = ?1")
            .or_translate()?
            .execute((recost.id.as_bytes(), recost.cost_picos))
            .or_translate()?;
    }
    Ok(())
}
