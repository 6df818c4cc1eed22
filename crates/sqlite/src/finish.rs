//! Writes the ends of runs: the transition, effects and calls, all or nothing.

use longshore_core::outcome::{KEPT_FAILURES, KeptFailures};
use longshore_core::store::{FinishRequest, FinishResult};
use longshore_core::unit_state::{Event, Transition, transition};
use longshore_core::{Error, Failure, Outcome, Payload, Policy, Result, SessionId, UnitId, UnitState};
use rusqlite::OptionalExtension;

use crate::effects::EffectRuns;
use crate::error::Translate;
use crate::ledger::calls;
use crate::overflow_values::{self, ValueKind};
use crate::prepared::PreparedSql;
use crate::row::{Columns, UnitRow, entry_code, flag, to_json};
use crate::session::Policies;
use crate::tx::Tx;

/// Records the ends of runs, independently of each other.
pub(crate) fn finish(
    tx: &mut Tx<'_>,
    session: SessionId,
    finishes: &[FinishRequest],
    effects: &mut EffectRuns,
) -> Result<Vec<FinishResult>> {
    effects.restart();
    let mut policies = Policies::default();
    let holder = crate::session::find(tx.db, session)?;
    finishes
        .iter()
        .map(|end| match try_fast_finish(tx, holder, end)? {
            true => {
                calls::record(tx, &end.calls)?;
                Ok(FinishResult::Recorded(UnitState::Done))
            }
            false => finish_one(tx, session, holder, &mut policies, effects, end),
        })
        .collect()
}

/// Finishes a successful run in one statement if this process claimed the unit and nothing else
/// depends on it, as for most units: no effects, no large result, no waiting client or dependant,
/// no dedup key, no cap.
fn try_fast_finish(tx: &mut Tx<'_>, holder: Option<i64>, end: &FinishRequest) -> Result<bool> {
    let Outcome::Done(result) = &end.outcome else { return Ok(false) };
    let small = result.as_ref().is_none_or(overflow_values::fits_in_row);
    let (Some(holder), true) = (holder, end.effects.is_empty() && end.checkpoint.is_none() && small) else {
        return Ok(false);
    };
    let Some(cached) = tx.claim_cache.take(end.lease.unit) else { return Ok(false) };
    let now = tx.now.as_micros();
    let result = result.as_ref().map(Payload::as_bytes);
    let ended = tx
        .prepared(PreparedSql::FinishFast)?
        .execute((end.lease.unit.as_bytes(), now, holder, end.lease.fence, result))
        .or_translate()?;
    if ended == 1 {
        tx.count_transition(cached.stream, Some(UnitState::Leased), Some(UnitState::Done), cached.bytes);
    }
    Ok(ended == 1)
}

fn finish_one(
    tx: &mut Tx<'_>,
    session: SessionId,
    holder: Option<i64>,
    policies: &mut Policies,
    effects: &mut EffectRuns,
    end: &FinishRequest,
) -> Result<FinishResult> {
    let Some(mut row) = find(tx, end.lease.unit)? else { return Ok(FinishResult::LeaseLost) };
    if let Some(answer) = end.answer_without_write(holder, row.fence, row.state()?, row.session) {
        return Ok(answer);
    }
    end.check_sizes()?;
    if effects.defers(end) {
        return Ok(FinishResult::Deferred);
    }
    if let Some(failure) = effects.run(tx, end.lease, &end.effects)? {
        return Ok(FinishResult::EffectFailed(failure));
    }
    let policy = match end.outcome {
        // Most runs succeed, and a success needs no policy.
        Outcome::Done(_) => Policy::default(),
        _ => policies.of(tx, &row)?,
    };
    row.count_attempt(tx.now);
    let step = transition(&row.transition_input()?, &Event::Finished(&end.outcome), &policy, tx.now)?;
    if let Some(state) = end.checkpoint.as_ref().filter(|_| step.state != UnitState::Done) {
        save_checkpoint(tx, &row, state)?;
        row.flags |= CHECKPOINT_FLAGS;
    }
    apply(tx, &row, &step, row.fence, Some(session))?;
    if let Outcome::Done(Some(result)) = &end.outcome {
        save_result(tx, row.id, result)?;
    }
    calls::record(tx, &end.calls)?;
    Ok(FinishResult::Recorded(step.state))
}

/// The flags of a unit with a checkpoint.
const CHECKPOINT_FLAGS: i64 = flag::CHECKPOINTED | flag::OVERFLOW[ValueKind::Checkpoint as usize];

/// Stores a checkpoint.
pub(crate) fn save_checkpoint(tx: &Tx<'_>, row: &UnitRow, state: &Payload) -> Result<()> {
    overflow_values::store(tx.db, row.id, ValueKind::Checkpoint, state)?;
    if row.flags & CHECKPOINT_FLAGS == CHECKPOINT_FLAGS {
        return Ok(());
    }
    tx.db
        .prepare_cached("UPDATE longshore_unit SET flags = flags | ?2 WHERE id = ?1")
        .or_translate()?
        .execute((row.id.as_bytes(), CHECKPOINT_FLAGS))
        .or_translate()?;
    Ok(())
}

/// Stores the result of a unit that is done.
fn save_result(tx: &Tx<'_>, unit: UnitId, result: &Payload) -> Result<()> {
    let (inline, overflow) = overflow_values::store(tx.db, unit, ValueKind::Result, result)?;
    tx.db
        .prepare_cached("UPDATE longshore_unit SET result = ?2, flags = flags | ?3 WHERE id = ?1")
        .or_translate()?
        .execute((unit.as_bytes(), inline, overflow))
        .or_translate()?;
    Ok(())
}

/// The row of a unit; an error if it does not exist.
pub(crate) fn load(tx: &mut Tx<'_>, id: UnitId) -> Result<UnitRow> {
    find(tx, id)?.ok_or_else(|| Error::not_found("unit", id))
}

/// The row of a unit, if it exists.
pub(crate) fn find(tx: &mut Tx<'_>, id: UnitId) -> Result<Option<UnitRow>> {
    let mut rows = tx.prepared(PreparedSql::Find)?.query([id.as_bytes()]).or_translate()?;
    rows.next().or_translate()?.map(|row| UnitRow::read(&Columns(row))).transpose()
}

/// Writes a transition: the row, its counters, and the consequences for dependants. `fence` is the
/// unit's fence from now on; `by` is the session that ran it.
pub(crate) fn apply(
    tx: &mut Tx<'_>,
    row: &UnitRow,
    step: &Transition,
    fence: u64,
    by: Option<SessionId>,
) -> Result<()> {
    apply_blocked(tx, row, step, fence, by, 0)
}

/// [`apply`] for a unit that waits for `waits_for` units then.
pub(crate) fn apply_blocked(
    tx: &mut Tx<'_>,
    row: &UnitRow,
    step: &Transition,
    fence: u64,
    by: Option<SessionId>,
    waits_for: usize,
) -> Result<()> {
    let (from, to) = (row.state()?, step.state);
    let failure = step.failure.as_ref().map(to_json).transpose()?;
    let mut flags = row.flags & !flag::CANCEL_REQUESTED;
    if to == UnitState::Done && row.has(flag::CHECKPOINTED) {
        // A unit that is done does not run again.
        overflow_values::delete_checkpoint(tx.db, row.id)?;
        flags &= !CHECKPOINT_FLAGS;
    }
    tx.prepared(PreparedSql::Apply)?
        .execute((
            row.id.as_bytes(),
            entry_code(to, step.lost),
            step.sort_key.as_micros(),
            step.attempt,
            step.lost,
            fence,
            flags,
            failure,
            row.spec_after(step)?,
            waits_for,
        ))
        .or_translate()?;
    if to.is_final() && row.has(flag::KEY_WHILE_LIVE) {
        release_dedup_key(tx, row.id)?;
    }
    tx.count_transition(row.stream, Some(from), Some(to), row.bytes);
    if let Some(failure) = &step.failure {
        log_failure(tx, row, failure, by)?;
    }
    if to.is_final() && row.has(flag::HAS_DEPENDANTS) {
        tx.record_end(row.id, to == UnitState::Done);
    }
    if to.is_final() && row.has(flag::AWAITED) {
        let names = crate::queries::stream_names(tx.db, row.stream)?;
        tx.announce("unit", row.id.to_string(), Some(names.tenant.as_str()));
    }
    if from == UnitState::Blocked {
        delete_dependencies(tx, row.id)?;
    }
    if let Some(key) = &row.cap_key {
        unpark(tx, key)?;
    }
    Ok(())
}

/// Deletes the dependencies of a unit that is not blocked any more: it may be pruned before they
/// end.
fn delete_dependencies(tx: &Tx<'_>, unit: UnitId) -> Result<()> {
    tx.db
        .prepare_cached("DELETE FROM longshore_dependency WHERE unit = ?1")
        .or_translate()?
        .execute([unit.as_bytes()])
        .or_translate()?;
    Ok(())
}

pub(crate) fn release_dedup_key(tx: &Tx<'_>, unit: UnitId) -> Result<()> {
    tx.db
        .prepare_cached("UPDATE longshore_unit SET dedup_key = NULL WHERE id = ?1")
        .or_translate()?
        .execute([unit.as_bytes()])
        .or_translate()?;
    Ok(())
}

fn log_failure(tx: &Tx<'_>, row: &UnitRow, failure: &Failure, by: Option<SessionId>) -> Result<()> {
    tx.db
        .prepare_cached(
            "INSERT INTO longshore_failure (unit, attempt, failed_at, session, code, message)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )
        .or_translate()?
        .execute((
            row.id.as_bytes(),
            row.attempt,
            tx.now.as_micros(),
            by.as_ref().map(SessionId::as_bytes),
            &failure.code,
            &failure.message,
        ))
        .or_translate()?;
    let KeptFailures { first, last } = KEPT_FAILURES;
    tx.db
        .prepare_cached(
            "DELETE FROM longshore_failure WHERE num = (SELECT num FROM longshore_failure
               WHERE unit = ?1 ORDER BY num LIMIT 1 OFFSET ?2)
             AND (SELECT count(*) FROM longshore_failure WHERE unit = ?1) > ?2 + ?3",
        )
        .or_translate()?
        .execute((row.id.as_bytes(), first, last))
        .or_translate()?;
    Ok(())
}

/// Makes the next unit of each stream with a cap key claimable again. A stream may have no worker, or
/// its batch may be paused, so one unit of all streams would not do. A claim parks the units that it
/// cannot take.
pub(crate) fn unpark(tx: &mut Tx<'_>, key: &str) -> Result<()> {
    let woken = tx
        .db
        .prepare_cached(
            "WITH RECURSIVE head (stream) AS (
               SELECT min(stream) FROM longshore_unit INDEXED BY longshore_unit_cap
               WHERE cap_key = ?1 AND state = 7 AND state IN (3, 7)
               UNION ALL SELECT (SELECT min(u.stream) FROM longshore_unit u
                 INDEXED BY longshore_unit_cap WHERE u.cap_key = ?1 AND u.state = 7
                 AND u.state IN (3, 7) AND u.stream > head.stream)
               FROM head WHERE head.stream IS NOT NULL)
             UPDATE longshore_unit SET state = 2 WHERE id IN (SELECT (SELECT u.id
               FROM longshore_unit u INDEXED BY longshore_unit_cap WHERE u.cap_key = ?1
               AND u.state = 7 AND u.state IN (3, 7) AND u.stream = head.stream
               ORDER BY u.sort_key LIMIT 1) FROM head WHERE head.stream IS NOT NULL)",
        )
        .or_translate()?
        .execute([key])
        .or_translate()?;
    tx.wake_workers |= woken > 0;
    Ok(())
}

/// Unblocks or cancels the units that depend on `needs`, which has ended. What exceeds
/// [`Tx::dependants_left`] is left to the outbox.
pub(crate) fn resolve_dependants(tx: &mut Tx<'_>, needs: UnitId, succeeded: bool) -> Result<()> {
    let waiting: Vec<[u8; 16]> = tx
        .db
        .prepare_cached(
            "DELETE FROM longshore_dependency WHERE depends_on = ?1 AND unit IN (SELECT unit FROM
             longshore_dependency WHERE depends_on = ?1 LIMIT ?2) RETURNING unit",
        )
        .or_translate()?
        .query_map((needs.as_bytes(), tx.dependants_left), |row| row.get(0))
        .or_translate()?
        .collect::<rusqlite::Result<_>>()
        .or_translate()?;
    tx.dependants_left -= waiting.len();
    if tx.dependants_left == 0 {
        tx.outbox = true;
        tx.db
            .prepare_cached(
                "INSERT INTO longshore_dependency_outbox (unit, succeeded)
                 VALUES (?1, ?2) ON CONFLICT (unit) DO UPDATE SET succeeded = excluded.succeeded",
            )
            .or_translate()?
            .execute((needs.as_bytes(), succeeded))
            .or_translate()?;
    }
    for id in waiting {
        let Some(row) = find(tx, UnitId::from_bytes(id))? else { continue };
        if row.state()? != UnitState::Blocked {
            continue;
        }
        if succeeded || row.has(flag::RELEASED_BY_FAILURE) {
            unblock(tx, &row)?;
        } else {
            let event = Event::DependencyFailed(needs);
            let step = transition(&row.transition_input()?, &event, &Policy::default(), tx.now)?;
            apply(tx, &row, &step, row.fence, None)?;
        }
    }
    Ok(())
}

fn unblock(tx: &mut Tx<'_>, row: &UnitRow) -> Result<()> {
    let left: Option<i64> = tx
        .db
        .prepare_cached("SELECT open_dependencies - 1 FROM longshore_unit WHERE id = ?1")
        .or_translate()?
        .query_row([row.id.as_bytes()], |row| row.get(0))
        .optional()
        .or_translate()?;
    if left.is_some_and(|left| left > 0) {
        tx.db
            .prepare_cached("UPDATE longshore_unit SET open_dependencies = ?2 WHERE id = ?1")
            .or_translate()?
            .execute((row.id.as_bytes(), left))
            .or_translate()?;
        return Ok(());
    }
    let step = transition(&row.transition_input()?, &Event::Unblocked, &Policy::default(), tx.now)?;
    apply(tx, row, &step, row.fence, None)
}
