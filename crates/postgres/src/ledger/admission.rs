//! Admission: calls are journalled before they are made, and checked against budgets.
//!
//! Most calls need no check: their tenant has no budget and their request is new. One statement in
//! autocommit mode journals those (see [`crate::single_statement`]). For a tenant with a budget the
//! server journals all calls under the budget's lock, and returns the month's totals before them.
//! `BudgetState::admit` decides, and refused calls are deleted before the commit.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use longshore_accounts::budget::BudgetDecision;
use longshore_accounts::rows::{CALL_COLUMNS, read_call};
use longshore_accounts::{BudgetState, Call, CallAdmission, NewCall};
use longshore_core::{CallId, Error, Result, TenantId, Timestamp};
use tokio_postgres::Row;
use uuid::Uuid;

use super::budgets::read_state;
use super::call_row::{CallIntentColumns, OwnedParams, borrow_params};
use crate::advisory_lock::{AdvisoryLock, sorted_keys};
use crate::error::damaged;
use crate::row::{Columns, count, value};
use crate::store::StoreInner;
use crate::tx::Tx;
use crate::typed_params::{call_id, call_uuid};

const ADMIT: &str = "SELECT * FROM longshore_admit_calls($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
                     $11,
    $12, $13, $14, $15, $16, $17)";

/// Tenants that had a budget at this process's last admission: their calls skip the fast path.
#[derive(Debug, Default)]
pub(crate) struct BudgetedTenants(Mutex<HashSet<TenantId>>);

impl BudgetedTenants {
    fn has_any_of(&self, calls: &[NewCall]) -> bool {
        let journalled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter().any(|call| journalled.contains(&call.tenant))
    }

    /// Records which of the calls' tenants have a budget.
    fn record(&self, calls: &[NewCall], with_budget: &HashSet<TenantId>) {
        let mut journalled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for call in calls {
            match with_budget.contains(&call.tenant) {
                true => journalled.insert(call.tenant.clone()),
                false => journalled.remove(&call.tenant),
            };
        }
    }
}

/// The locks for a list of calls: budgets, then requests, in this order in every transaction.
struct AdmissionLocks {
    budgets: Vec<i64>,
    requests: Vec<i64>,
}

impl AdmissionLocks {
    fn of(calls: &[NewCall]) -> Self {
        Self {
            budgets: sorted_keys(calls.iter().map(|call| AdvisoryLock::Budget(call.tenant.as_str()))),
            requests: sorted_keys(
                calls.iter().map(|call| AdvisoryLock::Request(call.tenant.as_str(), &call.request_id)),
            ),
        }
    }
}

/// The server's reply for a list of calls.
#[derive(Default)]
struct AdmissionReply {
    needs_decision: bool,
    session_gone: Option<usize>,
    months: HashMap<TenantId, BudgetState>,
    journalled: HashSet<usize>,
    duplicates: HashMap<usize, CallId>,
}

impl AdmissionReply {
    fn read(rows: &[Row], month: &str) -> Result<Self> {
        let mut reply = Self::default();
        for row in rows {
            match value::<i32>(row, 0)? {
                0 => reply.needs_decision = true,
                1 => reply.session_gone = Some(call_index(row)?),
                2 => {
                    let state = read_state(row, 3, month.to_owned())?;
                    reply.months.insert(state.tenant.clone(), state);
                }
                3 => drop(reply.journalled.insert(call_index(row)?)),
                4 => {
                    let original = call_id(value::<Uuid>(row, 2)?);
                    reply.duplicates.insert(call_index(row)?, original);
                }
                other => return Err(damaged(format!("the unknown admission code {other}"))),
            }
        }
        Ok(reply)
    }

    fn check(&self, calls: &[NewCall]) -> Result<()> {
        match self.session_gone.and_then(|at| calls.get(at)).and_then(|call| call.session) {
            Some(session) => Err(Error::SessionGone(session)),
            None => Ok(()),
        }
    }
}

/// The index of the call that a row is about. The server counts from one.
fn call_index(row: &Row) -> Result<usize> {
    count::<usize>(row, 1)?.checked_sub(1).ok_or_else(|| damaged("a call index below one"))
}

/// Journals calls in autocommit mode, or returns `None` if a check is needed.
pub(crate) async fn try_fast_path(
    inner: &Arc<StoreInner>,
    calls: &Arc<Vec<NewCall>>,
) -> Result<Option<Vec<CallAdmission>>> {
    if inner.budgeted_tenants.has_any_of(calls) || first_repeat(calls) < calls.len() {
        return Ok(None);
    }
    let (store, calls) = (Arc::clone(inner), Arc::clone(calls));
    let task = async move {
        let now = store.now();
        let params = params(&calls, &AdmissionLocks::of(&calls), now, true);
        let rows = store.query_autocommit(ADMIT, &borrow_params(&params)).await?;
        let reply = AdmissionReply::read(&rows, &BudgetState::month_of(now))?;
        reply.check(&calls)?;
        if reply.needs_decision {
            return Ok(None);
        }
        store.count_spend();
        Ok(Some(vec![CallAdmission::Admitted; calls.len()]))
    };
    inner.run_to_completion(task).await
}

/// Journals calls, and checks them against budgets.
pub(crate) async fn admit(
    tx: &mut Tx<'_>,
    budgeted_tenants: &BudgetedTenants,
    calls: &[NewCall],
) -> Result<Vec<CallAdmission>> {
    let locks = AdmissionLocks::of(calls);
    let (mut answers, mut rest) = (Vec::with_capacity(calls.len()), calls);
    let mut with_budget = HashSet::new();
    // Each call must see those before it, so each statement ends before the first call that repeats
    // an id or request of the list.
    while !rest.is_empty() {
        let (part, others) = rest.split_at(first_repeat(rest));
        let reply = journal(tx, &locks, part).await?;
        reply.check(part)?;
        with_budget.extend(reply.months.keys().cloned());
        let admissions = decide(tx, part, reply).await?;
        remove_refused(tx, part, &admissions, others).await?;
        answers.extend(admissions);
        rest = others;
    }
    budgeted_tenants.record(calls, &with_budget);
    Ok(answers)
}

/// The index of the first call that repeats a request or id of an earlier one; else the length of
/// the list.
fn first_repeat<'c>(calls: &'c [NewCall]) -> usize {
    let (mut requests, mut ids) = (HashSet::new(), HashSet::new());
    let mut is_new =
        |call: &'c NewCall| requests.insert((&call.tenant, &call.request_id)) & ids.insert(call.id);
    calls.iter().position(|call| !is_new(call)).unwrap_or(calls.len())
}

async fn journal(tx: &mut Tx<'_>, locks: &AdmissionLocks, calls: &[NewCall]) -> Result<AdmissionReply> {
    let params = params(calls, locks, tx.now, false);
    let rows = tx.query(ADMIT, &borrow_params(&params)).await?;
    AdmissionReply::read(&rows, &BudgetState::month_of(tx.now))
}

fn params(calls: &[NewCall], locks: &AdmissionLocks, now: Timestamp, autocommit: bool) -> OwnedParams {
    let mut params = CallIntentColumns::of(calls.iter()).params();
    params.push(Box::new(now.as_micros()));
    params.push(Box::new(BudgetState::month_of(now)));
    params.push(Box::new(locks.budgets.clone()));
    params.push(Box::new(locks.requests.clone()));
    params.push(Box::new(autocommit));
    params
}

/// Decides on journalled calls, in their order.
async fn decide(tx: &mut Tx<'_>, calls: &[NewCall], mut reply: AdmissionReply) -> Result<Vec<CallAdmission>> {
    let originals = duplicated_calls(tx, &reply).await?;
    let mut answers = Vec::with_capacity(calls.len());
    for (at, call) in calls.iter().enumerate() {
        let duplicate = reply.duplicates.get(&at).and_then(|id| originals.get(id));
        answers.push(match (duplicate, reply.months.get_mut(&call.tenant)) {
            (Some(other), _) => CallAdmission::Duplicate(Box::new(other.clone())),
            (None, Some(month)) if !reply.journalled.contains(&at) => admit_to_month(month, call),
            (None, _) => CallAdmission::Admitted,
        });
    }
    Ok(answers)
}

fn admit_to_month(month: &mut BudgetState, call: &NewCall) -> CallAdmission {
    let verdict = month.admit(call.reserve_tokens, call.reserve_picos);
    if verdict == BudgetDecision::Exceeded {
        return CallAdmission::OverBudget(month.clone());
    }
    month.reserved_tokens = month.reserved_tokens.saturating_add(call.reserve_tokens);
    month.reserved_picos = month.reserved_picos.saturating_add(call.reserve_picos);
    match verdict {
        BudgetDecision::NearLimit(part) => CallAdmission::NearBudget(part),
        _ => CallAdmission::Admitted,
    }
}

/// Deletes refused calls: with the commit, or at once if `others` are journalled after them.
async fn remove_refused(
    tx: &mut Tx<'_>,
    calls: &[NewCall],
    answers: &[CallAdmission],
    others: &[NewCall],
) -> Result<()> {
    let is_over = |reply: &CallAdmission| matches!(reply, CallAdmission::OverBudget(_));
    let refused = calls.iter().zip(answers).filter(|(_, reply)| is_over(reply));
    let refused: Vec<Uuid> = refused.map(|(call, _)| call_uuid(call.id)).collect();
    let sql = "SELECT longshore_retract_calls($1)";
    if refused.is_empty() {
        return Ok(());
    }
    match others.is_empty() {
        true => tx.pipeline_with_commit(sql, vec![Box::new(refused)]),
        false => drop(tx.query(sql, &[&refused]).await?),
    }
    Ok(())
}

/// Loads the calls that the duplicates repeat.
async fn duplicated_calls(tx: &mut Tx<'_>, reply: &AdmissionReply) -> Result<HashMap<CallId, Call>> {
    if reply.duplicates.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<Uuid> = reply.duplicates.values().map(|id| call_uuid(*id)).collect();
    let sql = format!("SELECT {CALL_COLUMNS} FROM longshore_call c WHERE c.id = ANY($1)");
    let rows = tx.query(&sql, &[&ids]).await?;
    rows.iter().map(|row| read_call(&Columns(row)).map(|call| (call.call.id, call))).collect()
}
