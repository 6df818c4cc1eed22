//! Finishing runs: writes what the state machine decided, together with all effects, or nothing.

use std::collections::HashMap;

use longshore_accounts::CallRecord;
use longshore_core::effect_budget::EffectBudget;
use longshore_core::store::{FinishRequest, FinishResult};
use longshore_core::unit_state::{Event, transition};
use longshore_core::worker_session::Lease;
use longshore_core::{Outcome, Policy, Result, SessionId, UnitId, UnitState};

use crate::effects;
use crate::ledger::calls::record_with;
use crate::row::{UnitAttributes, UnitRow, state_code};
use crate::session::{self, PolicyCache};
use crate::store::StoreInner;
use crate::tx::Tx;

mod dependants;
mod fast_path;
mod unpark;
mod write;

pub(crate) use dependants::{release_dependants, reopened_dependencies};
pub(crate) use fast_path::{EndedLeases, try_fast_path};
pub(crate) use unpark::{unpark, unpark_counted};
pub(crate) use write::{UnitChange, apply, lock_rows, lock_rows_where, settle};

/// Rejects calls with amounts that cannot be added up.
pub(crate) fn check_calls(finishes: &[FinishRequest]) -> Result<()> {
    finishes.iter().flat_map(|end| &end.calls).try_for_each(CallRecord::check)
}

/// Settles the leases of finishes that the fast path does not handle, in a transaction of its own. Otherwise effects, or
/// a caller's transaction, would keep other units of the same lease group from ending.
pub(crate) async fn settle_slow(
    inner: &StoreInner,
    session: SessionId,
    finishes: &[FinishRequest],
    all: bool,
) -> Result<()> {
    // Effects run after the fast path, in the same transaction.
    let all = all || finishes.iter().any(|end| !end.effects.is_empty());
    let slow = finishes.iter().filter(|end| all || !fast_path::may_use_fast_path(end));
    let leases: Vec<Lease> = slow.map(|end| end.lease).collect();
    session::settle_leases(inner, session, &leases).await
}

/// Records finishes, each independently of the others.
pub(crate) async fn finish(
    tx: &mut Tx<'_>,
    session: SessionId,
    finishes: &[FinishRequest],
    budget: &mut EffectBudget,
) -> Result<Vec<FinishResult>> {
    let ended = fast_path::finish(tx, session, finishes).await?;
    let calls = finishes.iter().filter(|end| ended.contains(end)).flat_map(|end| &end.calls);
    let calls: Vec<&CallRecord> = calls.collect();
    finish_others(tx, session, finishes, &ended, calls, budget).await
}

/// Records the finishes that `ended` does not contain.
pub(crate) async fn finish_rest(
    tx: &mut Tx<'_>,
    session: SessionId,
    finishes: &[FinishRequest],
    ended: &EndedLeases,
) -> Result<Vec<FinishResult>> {
    // The fast path has no effects.
    finish_others(tx, session, finishes, ended, Vec::new(), &mut EffectBudget::unlimited()).await
}

/// Records the finishes that `ended` does not contain, then writes `calls` and the calls of these
/// finishes in one statement. Units come before calls, as when a session ends, so that locks are
/// taken in one order.
async fn finish_others<'f>(
    tx: &mut Tx<'_>,
    session: SessionId,
    finishes: &'f [FinishRequest],
    ended: &EndedLeases,
    mut calls: Vec<&'f CallRecord>,
    budget: &mut EffectBudget,
) -> Result<Vec<FinishResult>> {
    let rest: Vec<&FinishRequest> = finishes.iter().filter(|end| !ended.contains(end)).collect();
    let (holder, rows) = match rest.is_empty() {
        true => (None, HashMap::new()),
        false => {
            let holder = session::find(tx, session).await?;
            (holder, lock_rows(tx, rest.iter().map(|end| &end.lease.unit)).await?)
        }
    };
    let (policies, changes) = (PolicyCache::default(), Vec::new());
    let mut slow = SlowFinish { session, holder, rows, policies, changes };
    let mut answers = Vec::with_capacity(finishes.len());
    for end in finishes {
        let before = slow.changes.len();
        answers.push(match ended.contains(end) {
            true => FinishResult::Recorded(UnitState::Done),
            false => slow.finish(tx, end, budget).await?,
        });
        // Not for a repeat: its calls are written.
        if slow.changes.len() > before {
            calls.extend(&end.calls);
        }
    }
    apply(tx, slow.changes).await?;
    record_with(tx, calls.into_iter());
    Ok(answers)
}

/// Finishes that the fast path does not handle.
struct SlowFinish {
    session: SessionId,
    holder: Option<i64>,
    rows: HashMap<UnitId, UnitRow>,
    policies: PolicyCache,
    changes: Vec<UnitChange>,
}

impl SlowFinish {
    async fn finish(
        &mut self,
        tx: &mut Tx<'_>,
        end: &FinishRequest,
        budget: &mut EffectBudget,
    ) -> Result<FinishResult> {
        let Some(row) = self.rows.get(&end.lease.unit) else { return Ok(FinishResult::LeaseLost) };
        let (fence, state) = (row.fence, row.state()?);
        if let Some(answer) = end.answer_without_write(self.holder, fence, state, row.session) {
            return Ok(answer);
        }
        end.check_sizes()?;
        if budget.defers(&end.effects) {
            return Ok(FinishResult::Deferred);
        }
        if let Some(result) = effects::run(tx, &end.effects, budget).await? {
            return Ok(result);
        }
        let policy = match end.outcome {
            // Most runs succeed, and their transition needs no policy.
            Outcome::Done(_) => Policy::default(),
            _ => self.policies.of(tx, row).await?,
        };
        let mut row = row.clone();
        row.count_attempt(tx.now);
        let step = transition(&row.transition_input()?, &Event::Finished(&end.outcome), &policy, tx.now)?;
        let (state, fence) = (step.state, row.fence);
        let mut change = UnitChange::new(row, step, fence, Some(self.session));
        if let Outcome::Done(Some(result)) = &end.outcome {
            change.result = Some(result.clone());
        }
        change.checkpoint.clone_from(&end.checkpoint);
        self.changes.push(change);
        if let Some(row) = self.rows.get_mut(&end.lease.unit) {
            // A second finish of the same lease in this call is a repeat.
            (row.session, row.code) = (None, state_code(state));
        }
        Ok(FinishResult::Recorded(state))
    }
}

/// The unit's own policy, if its sender set one.
pub(crate) fn own_policy(row: &UnitRow) -> Result<Option<Policy>> {
    Ok(UnitAttributes::parse(row.spec.as_deref())?.policy)
}
