//! Admission: calls are journalled before they are made, and weighed against budgets.
//!
//! Most calls have nothing to be weighed: their tenant has no budget and their request is new. One
//! statement journals those and is its own transaction (see [`crate::lone`]). Where a budget is to be
//! kept, the server journals all under the budget's lock and tells what the month had come to before;
//! `BudgetState::admit` decides, and what does not fit is taken back before the commit.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use longshore_core::ledger::budget::Verdict;
use longshore_core::ledger::{Admission, BudgetState, Call, NewCall};
use longshore_core::{CallId, Error, Result, TenantId, Timestamp};
use tokio_postgres::Row;
use uuid::Uuid;

use super::budgets::read_state;
use super::call_row::{COLUMNS, Intents, Params, borrowed, read};
use crate::error::damaged;
use crate::lock::{Lock, in_order};
use crate::param::{call_id, call_uuid};
use crate::row::{count, value};
use crate::store::Shared;
use crate::tx::Tx;

const ADMIT: &str = "SELECT * FROM longshore_admit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
    $12, $13, $14, $15, $16, $17)";

/// Tenants that had a budget when this process last looked: theirs go the long way at once.
#[derive(Debug, Default)]
pub(crate) struct Budgeted(Mutex<HashSet<TenantId>>);

impl Budgeted {
    fn has_any_of(&self, calls: &[NewCall]) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter().any(|call| known.contains(&call.tenant))
    }

    /// Notes which of the callers have one.
    fn note(&self, calls: &[NewCall], having: &HashSet<TenantId>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for call in calls {
            match having.contains(&call.tenant) {
                true => known.insert(call.tenant.clone()),
                false => known.remove(&call.tenant),
            };
        }
    }
}

/// The locks that a list of calls needs: budgets, then requests; everybody takes them so.
struct Locks {
    budgets: Vec<i64>,
    requests: Vec<i64>,
}

impl Locks {
    fn of(calls: &[NewCall]) -> Self {
        Self {
            budgets: in_order(calls.iter().map(|call| Lock::Budget(call.tenant.as_str()))),
            requests: in_order(
                calls.iter().map(|call| Lock::Request(call.tenant.as_str(), &call.request_id)),
            ),
        }
    }
}

/// What the server says of a list of calls.
#[derive(Default)]
struct Answer {
    more: bool,
    gone: Option<usize>,
    months: HashMap<TenantId, BudgetState>,
    known: HashSet<usize>,
    duplicates: HashMap<usize, CallId>,
}

impl Answer {
    fn read(rows: &[Row], month: &str) -> Result<Self> {
        let mut answer = Self::default();
        for row in rows {
            match value::<i32>(row, 0)? {
                0 => answer.more = true,
                1 => answer.gone = Some(place(row)?),
                2 => {
                    let state = read_state(row, 3, month.to_owned())?;
                    answer.months.insert(state.tenant.clone(), state);
                }
                3 => drop(answer.known.insert(place(row)?)),
                4 => drop(answer.duplicates.insert(place(row)?, call_id(value::<Uuid>(row, 2)?))),
                other => return Err(damaged(format!("the word {other} on a call"))),
            }
        }
        Ok(answer)
    }

    fn check(&self, calls: &[NewCall]) -> Result<()> {
        match self.gone.and_then(|at| calls.get(at)).and_then(|call| call.session) {
            Some(session) => Err(Error::SessionGone(session)),
            None => Ok(()),
        }
    }
}

/// Which call a row speaks of; the server counts from one.
fn place(row: &Row) -> Result<usize> {
    count::<usize>(row, 1)?.checked_sub(1).ok_or_else(|| damaged("a call before the first"))
}

/// Journals calls as a transaction of its own, if nothing is to be weighed.
pub(crate) async fn shortly(
    shared: &Arc<Shared>,
    calls: &Arc<Vec<NewCall>>,
) -> Result<Option<Vec<Admission>>> {
    if shared.budgeted.has_any_of(calls) || first_repeat(calls) < calls.len() {
        return Ok(None);
    }
    let (store, calls) = (Arc::clone(shared), Arc::clone(calls));
    let errand = async move {
        let now = store.options.clock.now();
        let params = params(&calls, &Locks::of(&calls), now, true);
        let rows = store.ask(ADMIT, &borrowed(&params)).await?;
        let answer = Answer::read(&rows, &BudgetState::month_of(now))?;
        answer.check(&calls)?;
        if answer.more {
            return Ok(None);
        }
        store.spent();
        Ok(Some(vec![Admission::Admitted; calls.len()]))
    };
    shared.see_to(errand).await
}

/// Journals calls, and weighs them.
pub(crate) async fn admit(
    tx: &mut Tx<'_>,
    budgeted: &Budgeted,
    calls: &[NewCall],
) -> Result<Vec<Admission>> {
    let locks = Locks::of(calls);
    let (mut answers, mut rest) = (Vec::with_capacity(calls.len()), calls);
    let mut having = HashSet::new();
    // Each sees those before it: a list goes up to the first that meets one of its own.
    while !rest.is_empty() {
        let (part, others) = rest.split_at(first_repeat(rest));
        let answer = ask(tx, &locks, part).await?;
        answer.check(part)?;
        having.extend(answer.months.keys().cloned());
        let weighed = weigh(tx, part, answer).await?;
        take_back(tx, part, &weighed, others).await?;
        answers.extend(weighed);
        rest = others;
    }
    budgeted.note(calls, &having);
    Ok(answers)
}

/// The first call with a request, or an id, that one before it has; else how many there are.
fn first_repeat<'c>(calls: &'c [NewCall]) -> usize {
    let (mut requests, mut ids) = (HashSet::new(), HashSet::new());
    let mut is_new =
        |call: &'c NewCall| requests.insert((&call.tenant, &call.request_id)) & ids.insert(call.id);
    calls.iter().position(|call| !is_new(call)).unwrap_or(calls.len())
}

async fn ask(tx: &mut Tx<'_>, locks: &Locks, calls: &[NewCall]) -> Result<Answer> {
    let params = params(calls, locks, tx.now, false);
    let rows = tx.query(ADMIT, &borrowed(&params)).await?;
    Answer::read(&rows, &BudgetState::month_of(tx.now))
}

fn params(calls: &[NewCall], locks: &Locks, now: Timestamp, lone: bool) -> Params {
    let mut params = Intents::of(calls.iter()).params();
    params.push(Box::new(now.as_micros()));
    params.push(Box::new(BudgetState::month_of(now)));
    params.push(Box::new(locks.budgets.clone()));
    params.push(Box::new(locks.requests.clone()));
    params.push(Box::new(lone));
    params
}

/// Decides on calls that are journalled already, in their order.
async fn weigh(tx: &mut Tx<'_>, calls: &[NewCall], mut answer: Answer) -> Result<Vec<Admission>> {
    let others = others(tx, &answer).await?;
    let mut answers = Vec::with_capacity(calls.len());
    for (at, call) in calls.iter().enumerate() {
        let duplicate = answer.duplicates.get(&at).and_then(|other| others.get(other));
        answers.push(match (duplicate, answer.months.get_mut(&call.tenant)) {
            (Some(other), _) => Admission::Duplicate(Box::new(other.clone())),
            (None, Some(month)) if !answer.known.contains(&at) => fit(month, call),
            (None, _) => Admission::Admitted,
        });
    }
    Ok(answers)
}

fn fit(month: &mut BudgetState, call: &NewCall) -> Admission {
    let verdict = month.admit(call.reserve_tokens, call.reserve_picos);
    if verdict == Verdict::Over {
        return Admission::OverBudget(month.clone());
    }
    month.reserved_tokens = month.reserved_tokens.saturating_add(call.reserve_tokens);
    month.reserved_picos = month.reserved_picos.saturating_add(call.reserve_picos);
    match verdict {
        Verdict::FitsNearly(part) => Admission::NearBudget(part),
        _ => Admission::Admitted,
    }
}

/// Takes back those that do not fit; not later than with the commit, and before `others` are asked.
async fn take_back(
    tx: &mut Tx<'_>,
    calls: &[NewCall],
    answers: &[Admission],
    others: &[NewCall],
) -> Result<()> {
    let is_over = |answer: &Admission| matches!(answer, Admission::OverBudget(_));
    let refused = calls.iter().zip(answers).filter(|(_, answer)| is_over(answer));
    let refused: Vec<Uuid> = refused.map(|(call, _)| call_uuid(call.id)).collect();
    let sql = "SELECT longshore_refuse($1)";
    if refused.is_empty() {
        return Ok(());
    }
    match others.is_empty() {
        true => tx.close_with(sql, vec![Box::new(refused)]),
        false => drop(tx.query(sql, &[&refused]).await?),
    }
    Ok(())
}

/// The calls that others are duplicates of.
async fn others(tx: &mut Tx<'_>, answer: &Answer) -> Result<HashMap<CallId, Call>> {
    if answer.duplicates.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<Uuid> = answer.duplicates.values().map(|id| call_uuid(*id)).collect();
    let sql = format!("SELECT {COLUMNS} FROM longshore_call c WHERE c.id = ANY($1)");
    let rows = tx.query(&sql, &[&ids]).await?;
    rows.iter().map(|row| read(row).map(|call| (call.call.id, call))).collect()
}
