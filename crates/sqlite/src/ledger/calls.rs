//! Calls: admitted before they are made, settled after, given up with who made them.

use std::collections::HashMap;

use longshore_core::ledger::budget::Verdict;
use longshore_core::ledger::{
    Admission, BudgetState, Call, CallEnd, CallRecord, CallStatus, NewCall, Recost,
};
use longshore_core::{CallId, Error, Result, Scope, SessionId, TenantId, Timestamp, UnitId};

use super::budgets::{self, Weight};
use super::call_row;
use crate::error::{Translate, damaged};
use crate::hot::Hot;
use crate::session;
use crate::tx::Tx;

/// Journals calls and reserves what they may use, each seeing those before it.
pub(crate) fn admit(tx: &mut Tx<'_>, calls: &[NewCall]) -> Result<Vec<Admission>> {
    let mut seen = None;
    for call in calls {
        call.check()?;
        // A worker's calls come together: one look for all of them.
        if let Some(session) = call.session.filter(|session| seen != Some(*session)) {
            session::number(tx.db, session)?;
            seen = Some(session);
        }
    }
    let mut months = Months::default();
    calls.iter().map(|call| admit_one(tx, &mut months, call)).collect()
}

fn admit_one(tx: &mut Tx<'_>, months: &mut Months, call: &NewCall) -> Result<Admission> {
    if !matches!(find(tx, call.id)?, Found::Nothing) {
        return Ok(Admission::Admitted);
    }
    if let Some(found) = duplicated_by(tx, call)? {
        return Ok(Admission::Duplicate(Box::new(found)));
    }
    let NewCall { reserve_tokens, reserve_picos, .. } = *call;
    let mut admission = Admission::Admitted;
    if let Some(month) = months.of(tx, &call.tenant)? {
        match month.admit(reserve_tokens, reserve_picos) {
            Verdict::Over => return Ok(Admission::OverBudget(month.clone())),
            Verdict::FitsNearly(part) => admission = Admission::NearBudget(part),
            Verdict::Fits => {}
        }
        month.reserved_tokens = month.reserved_tokens.saturating_add(reserve_tokens);
        month.reserved_picos = month.reserved_picos.saturating_add(reserve_picos);
    }
    open(tx, call, None)?;
    Ok(admission)
}

/// Writes a call and counts it, if it is not there yet; whether it was not.
fn open(tx: &mut Tx<'_>, call: &NewCall, end: Option<&CallEnd>) -> Result<bool> {
    if !call_row::insert(tx, call, end)? {
        return Ok(false);
    }
    if end.is_none() {
        tx.known.journalled(call.id);
    }
    let now = tx.now;
    tx.months.count(&call.tenant, now, Weight::of(call, end));
    Ok(true)
}

/// The months of tenants that have a budget, as they are after the calls so far.
#[derive(Default)]
struct Months(HashMap<TenantId, Option<BudgetState>>);

impl Months {
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

/// Who asks the same for another unit, or did and was answered.
fn duplicated_by(tx: &mut Tx<'_>, call: &NewCall) -> Result<Option<Call>> {
    let unit = call.unit.as_ref().map(UnitId::as_bytes);
    let mut rows = tx
        .hot(Hot::DuplicateCall)?
        .query((&call.request_id, call.tenant.as_str(), unit))
        .or_translate()?;
    rows.next().or_translate()?.map(call_row::read).transpose()
}

/// Writes what calls came to. Nothing of it if one of them makes no sense.
pub(crate) fn record(tx: &mut Tx<'_>, records: &[CallRecord]) -> Result<()> {
    records.iter().try_for_each(CallRecord::check)?;
    // Calls that ended before their intent was written are written without a look whether they are there.
    let (new, others): (Vec<_>, Vec<_>) = records.iter().partition(|record| is_new(tx, record));
    new.chunks(call_row::TOGETHER).try_for_each(|some| open_some(tx, some))?;
    others.into_iter().try_for_each(|record| settle(tx, &record.call, record.end.as_ref()))
}

/// Whether a call ends of which nothing was written, as far as is known. An intent counts as written: what
/// comes after it in the same list is of a known call.
fn is_new(tx: &mut Tx<'_>, record: &CallRecord) -> bool {
    if record.end.is_none() {
        tx.known.journalled(record.call.id);
    }
    !tx.known.is_journalled(record.call.id)
}

/// Writes calls that are not there yet, as far as is known.
fn open_some(tx: &mut Tx<'_>, some: &[&CallRecord]) -> Result<()> {
    if some.len() == call_row::TOGETHER && call_row::insert_together(tx, some)? {
        let now = tx.now;
        for CallRecord { call, end } in some {
            tx.months.count(&call.tenant, now, Weight::of(call, end.as_ref()));
        }
        return Ok(());
    }
    for CallRecord { call, end } in some {
        if !open(tx, call, end.as_ref())? {
            settle(tx, call, end.as_ref())?;
        }
    }
    Ok(())
}

fn settle(tx: &mut Tx<'_>, call: &NewCall, end: Option<&CallEnd>) -> Result<()> {
    if end.is_some() {
        tx.known.forget(call.id);
    }
    match find(tx, call.id)? {
        Found::Nothing => {
            let lost = end.is_none() && is_gone(tx, call.session)?;
            let billed = lost.then(|| call.maybe_billed());
            open(tx, call, billed.as_ref().or(end)).map(drop)
        }
        Found::Open { tenant, opened_at, weight } => {
            call_row::update(tx, call, end)?;
            // Who pays is who was said to pay first.
            tx.months.discount(&tenant, opened_at, weight);
            tx.months.count(&tenant, opened_at, Weight::of(call, end));
            Ok(())
        }
        Found::Ended => Ok(()),
    }
}

fn is_gone(tx: &Tx<'_>, session: Option<SessionId>) -> Result<bool> {
    session.map_or(Ok(false), |session| Ok(session::find(tx.db, session)?.is_none()))
}

/// What is known of a call.
enum Found {
    Nothing,
    /// It holds this of its month.
    Open {
        tenant: TenantId,
        opened_at: Timestamp,
        weight: Weight,
    },
    Ended,
}

fn find(tx: &mut Tx<'_>, id: CallId) -> Result<Found> {
    let mut rows = tx.hot(Hot::FindCall)?.query([id.as_bytes()]).or_translate()?;
    let Some(row) = rows.next().or_translate()? else { return Ok(Found::Nothing) };
    if row.get::<_, u8>(0).or_translate()? != call_row::code(CallStatus::Open) {
        return Ok(Found::Ended);
    }
    let tenant = row.get_ref(1).and_then(|text| Ok(text.as_str()?)).or_translate()?;
    Ok(Found::Open {
        tenant: TenantId::new(tenant).map_err(damaged)?,
        opened_at: Timestamp::from_micros(row.get(2).or_translate()?),
        weight: Weight::reserved(row.get(3).or_translate()?, row.get(4).or_translate()?),
    })
}

/// Whoever made these calls is gone: they may have been billed.
pub(crate) fn give_up(tx: &mut Tx<'_>, session: SessionId) -> Result<()> {
    let rest = "INDEXED BY longshore_call_open WHERE session = ?1 AND status = 0
        AND session IS NOT NULL";
    for open in call_row::select(tx.db, rest, [session.as_bytes()])? {
        settle(tx, &open.call, Some(&open.call.maybe_billed()))?;
    }
    Ok(())
}

/// Corrects what calls cost, and with it their months.
pub(crate) fn recost(tx: &mut Tx<'_>, scope: &Scope, recosts: &[Recost]) -> Result<()> {
    for recost in recosts {
        recost.check()?;
        let found = call_row::select(tx.db, "WHERE id = ?1", [recost.id.as_bytes()])?.pop();
        let found = found.filter(|call| scope.covers(&call.call.tenant));
        let Call { call, end, opened_at, .. } =
            found.ok_or_else(|| Error::not_found("call", recost.id))?;
        let before = end.ok_or_else(|| recost.is_open())?;
        let after = CallEnd { cost_picos: recost.cost_picos, ..before.clone() };
        tx.months.discount(&call.tenant, opened_at, Weight::of(&call, Some(&before)));
        tx.months.count(&call.tenant, opened_at, Weight::of(&call, Some(&after)));
        tx.db
            .prepare_cached("UPDATE longshore_call SET cost_picos = ?2 WHERE id = ?1")
            .or_translate()?
            .execute((recost.id.as_bytes(), recost.cost_picos))
            .or_translate()?;
    }
    Ok(())
}
