//! Locks units, and writes their transitions: rows, counts, failures, and what depends on them.

use std::collections::HashMap;

use longshore_core::outcome::{KEPT_FAILURES, KeptFailures};
use longshore_core::unit_state::Transition;
use longshore_core::{Payload, Result, SessionId, UnitId, UnitState};
use tokio_postgres::Row;
use uuid::Uuid;

use super::unpark;
use crate::error::damaged;
use crate::row::{BULK, Columns, UnitRow, entry_code, flag, state_code, to_json};
use crate::tx::Tx;
use crate::typed_params::{SqlParam, replace_nul, session_uuid, uuid, uuids};

/// A transition of the state machine to be written.
pub(crate) struct UnitChange {
    pub(crate) row: UnitRow,
    pub(crate) step: Transition,
    /// The unit's new fence.
    pub(crate) fence: u64,
    /// The session that ran the unit.
    pub(crate) session: Option<SessionId>,
    /// The result of the run.
    pub(crate) result: Option<Payload>,
    /// The checkpoint for the next run.
    pub(crate) checkpoint: Option<Payload>,
    /// How many units it waits for.
    pub(crate) waits_for: usize,
}

impl UnitChange {
    /// A transition without result and checkpoint.
    pub(crate) fn new(row: UnitRow, step: Transition, fence: u64, session: Option<SessionId>) -> Self {
        Self { row, step, fence, session, result: None, checkpoint: None, waits_for: 0 }
    }

    /// A transition that keeps the fence.
    pub(crate) fn step(row: UnitRow, step: Transition) -> Self {
        let fence = row.fence;
        Self::new(row, step, fence, None)
    }
}

/// Locks units in the order of their ids, and reads the columns that decisions need.
pub(crate) async fn lock_rows<'u>(
    tx: &mut Tx<'_>,
    units: impl IntoIterator<Item = &'u UnitId>,
) -> Result<HashMap<UnitId, UnitRow>> {
    let rows = lock_rows_where(tx, "u.id = ANY($1) ORDER BY u.id FOR UPDATE", &[&uuids(units)]).await?;
    Ok(rows.into_iter().map(|row| (row.id, row)).collect())
}

/// Reads the columns that decisions need of the units that `which` selects and locks. It settles bulk units first.
pub(crate) async fn lock_rows_where(
    tx: &mut Tx<'_>,
    which: &str,
    params: &[&dyn SqlParam],
) -> Result<Vec<UnitRow>> {
    let columns = UnitRow::COLUMNS;
    let read = |row: &Row| UnitRow::read(&Columns(row));
    let rows = tx.query(&format!("SELECT {columns} FROM longshore_unit u WHERE {which}"), params).await?;
    let mut rows: Vec<UnitRow> = rows.iter().map(read).collect::<Result<_>>()?;
    let bulk = |row: &&mut UnitRow| row.code == BULK;
    let mut bulk: HashMap<UnitId, &mut UnitRow> =
        rows.iter_mut().filter(bulk).map(|row| (row.id, row)).collect();
    if bulk.is_empty() {
        return Ok(rows);
    }
    let ids = uuids(bulk.keys());
    settle(tx, &ids).await?;
    let sql = format!("SELECT {columns} FROM longshore_unit u WHERE u.id = ANY($1)");
    for row in tx.query(&sql, &[&ids]).await? {
        let settled = read(&row)?;
        if let Some(row) = bulk.remove(&settled.id) {
            *row = settled;
        }
    }
    Ok(rows)
}

/// Writes the state of the bulk units among `ids` into their rows, which must be locked.
pub(crate) async fn settle(tx: &mut Tx<'_>, ids: &Vec<Uuid>) -> Result<()> {
    tx.query("SELECT longshore_settle_units($1, NULL, NULL)", &[ids]).await?;
    Ok(())
}

/// Writes transitions: the rows, their counts, and what depends on them. The rows must be locked.
pub(crate) async fn apply(tx: &mut Tx<'_>, changes: Vec<UnitChange>) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    write_rows(tx, &changes).await?;
    log_failures(tx, &changes).await?;
    for change in &changes {
        let (row, to) = (&change.row, change.step.state);
        tx.count_transition(row.stream, Some(row.state()?), Some(to), row.bytes);
        if to.is_final() && row.has(flag::HAS_DEPENDANTS) {
            tx.note_ended(row.id, to == UnitState::Done);
        }
    }
    announce_awaited(tx, &changes).await?;
    forget_dependencies(tx, &changes).await?;
    unpark(tx, changes.iter().filter_map(|change| change.row.cap_key.as_deref())).await
}

async fn write_rows(tx: &mut Tx<'_>, changes: &[UnitChange]) -> Result<()> {
    let mut columns = ChangeColumns::default();
    for change in changes {
        columns.push(change)?;
    }
    let ChangeColumns {
        id,
        state,
        sort_key,
        attempt,
        lost,
        fence,
        flags,
        failure,
        free,
        result,
        checkpoint,
        stream,
        rank,
        spec,
        waits_for,
    } = &columns;
    // Claims find ready units in a table of their own.
    let was_ready = if rank.iter().any(Option::is_some) { NOT_READY } else { "" };
    let is_ready = if columns.is_ready() { READY } else { "" };
    let with = [was_ready, is_ready].join(if was_ready.is_empty() || is_ready.is_empty() { "" } else { "," });
    let with = if with.is_empty() { with } else { format!("WITH {with} ") };
    tx.query(
        &format!(
            "{with}UPDATE longshore_unit u SET state = f.state, sort_key = f.sort_key, attempt = f.attempt,
         lost = f.lost, fence = f.fence, session = NULL, started_at = NULL, open_dependencies = f.waits_for,
         progress = NULL, flags = f.flags,
         failure = CASE WHEN f.state = 4 THEN NULL ELSE coalesce(f.failure, u.failure) END,
         dedup_key = CASE WHEN f.free THEN NULL ELSE u.dedup_key END,
         result = coalesce(f.result, u.result),
         checkpoint = CASE WHEN f.state <> 4 THEN coalesce(f.checkpoint, u.checkpoint) END,
         spec = coalesce(f.spec, u.spec)
         FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $14, $15)
         AS f (id, state, sort_key, attempt, lost, fence, flags, failure, free, result, checkpoint, spec,
           waits_for)
         WHERE u.id = f.id"
        ),
        &[
            id, state, sort_key, attempt, lost, fence, flags, failure, free, result, checkpoint, stream,
            rank, spec, waits_for,
        ],
    )
    .await?;
    Ok(())
}

const NOT_READY: &str =
    "gone AS (DELETE FROM longshore_ready r USING unnest($1, $12, $13) AS f (id, stream, rank)
    WHERE r.stream = f.stream AND r.sort_key = f.rank AND r.id = f.id)";

const READY: &str = "entered AS (INSERT INTO longshore_ready (stream, sort_key, id, claim)
    SELECT f.stream, f.sort_key, f.id, 1 + (f.flags & 1)
    FROM unnest($1, $2, $3, $7, $12) AS f (id, state, sort_key, flags, stream) WHERE f.state = 2)";

/// Changes as arrays, one per column.
#[derive(Default)]
struct ChangeColumns<'c> {
    id: Vec<Uuid>,
    state: Vec<i16>,
    sort_key: Vec<i64>,
    attempt: Vec<i32>,
    lost: Vec<i32>,
    fence: Vec<i64>,
    flags: Vec<i64>,
    failure: Vec<Option<String>>,
    free: Vec<bool>,
    result: Vec<Option<&'c [u8]>>,
    checkpoint: Vec<Option<&'c [u8]>>,
    stream: Vec<i64>,
    /// The rank of a unit that was ready.
    rank: Vec<Option<i64>>,
    /// The rare attributes, if they change.
    spec: Vec<Option<String>>,
    waits_for: Vec<i32>,
}

impl<'c> ChangeColumns<'c> {
    fn push(&mut self, change: &'c UnitChange) -> Result<()> {
        let UnitChange { row, step, .. } = change;
        let checkpointed = if change.checkpoint.is_some() { flag::CHECKPOINTED } else { 0 };
        self.id.push(uuid(row.id));
        self.state.push(i16::from(entry_code(step.state, step.lost)));
        self.sort_key.push(step.sort_key.as_micros());
        self.attempt.push(i32::try_from(step.attempt).map_err(damaged)?);
        self.lost.push(i32::try_from(step.lost).map_err(damaged)?);
        self.fence.push(change.fence.cast_signed());
        self.flags.push(row.flags & !flag::CANCEL_REQUESTED | checkpointed);
        self.failure.push(step.failure.as_ref().map(to_json).transpose()?);
        self.free.push(step.state.is_final() && row.has(flag::KEY_WHILE_LIVE));
        self.result.push(change.result.as_ref().map(Payload::as_bytes));
        self.checkpoint.push(change.checkpoint.as_ref().map(Payload::as_bytes));
        self.stream.push(row.stream);
        self.rank.push((row.code == state_code(UnitState::Ready)).then_some(row.sort_key));
        self.spec.push(row.spec_after(step)?);
        self.waits_for.push(i32::try_from(change.waits_for).map_err(damaged)?);
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.state.contains(&i16::from(state_code(UnitState::Ready)))
    }
}

async fn log_failures(tx: &mut Tx<'_>, changes: &[UnitChange]) -> Result<()> {
    let (mut units, mut attempts, mut sessions) = (Vec::new(), Vec::new(), Vec::new());
    let (mut codes, mut messages) = (Vec::new(), Vec::new());
    for change in changes {
        let Some(failure) = &change.step.failure else { continue };
        units.push(uuid(change.row.id));
        attempts.push(i32::try_from(change.row.attempt).map_err(damaged)?);
        sessions.push(change.session.map(session_uuid));
        codes.push(replace_nul(&failure.code));
        messages.push(replace_nul(&failure.message));
    }
    if units.is_empty() {
        return Ok(());
    }
    tx.query(
        "INSERT INTO longshore_failure (unit, attempt, failed_at, session, code, message)
         SELECT f.unit, f.attempt, $6, f.session, f.code, f.message
         FROM unnest($1, $2, $3, $4, $5) AS f (unit, attempt, session, code, message)",
        &[&units, &attempts, &sessions, &codes, &messages, &tx.now.as_micros()],
    )
    .await?;
    drop_middle_failures(tx, &units).await
}

/// Deletes the failures that [`KEPT_FAILURES`] does not keep.
async fn drop_middle_failures(tx: &mut Tx<'_>, units: &Vec<Uuid>) -> Result<()> {
    let KeptFailures { first, last } = KEPT_FAILURES;
    let sql = "DELETE FROM longshore_failure WHERE num IN (SELECT num FROM (
           SELECT num, row_number() OVER (PARTITION BY unit ORDER BY num) AS nth,
             count(*) OVER (PARTITION BY unit) AS total
           FROM longshore_failure WHERE unit = ANY($1)) f
         WHERE nth > $2 AND nth <= total - $3)";
    let (first, last) = (i64::try_from(first).map_err(damaged)?, i64::try_from(last).map_err(damaged)?);
    tx.execute(sql, &[units, &first, &last]).await?;
    Ok(())
}

async fn announce_awaited(tx: &mut Tx<'_>, changes: &[UnitChange]) -> Result<()> {
    for change in changes {
        if change.step.state.is_final() && change.row.has(flag::AWAITED) {
            let cache = std::sync::Arc::clone(&tx.streams);
            let stream = cache.one(tx, change.row.stream).await?;
            tx.announce("unit", change.row.id.to_string(), Some(stream.tenant.as_str()));
        }
    }
    Ok(())
}

/// Deletes the dependencies of units that are no longer blocked. Otherwise the end of a dependency
/// would find units that may be pruned by then.
async fn forget_dependencies(tx: &mut Tx<'_>, changes: &[UnitChange]) -> Result<()> {
    let blocked = state_code(UnitState::Blocked);
    let units: Vec<Uuid> = changes
        .iter()
        .filter(|change| change.row.code == blocked)
        .map(|change| uuid(change.row.id))
        .collect();
    if !units.is_empty() {
        tx.query("DELETE FROM longshore_dependency WHERE unit = ANY($1)", &[&units]).await?;
    }
    Ok(())
}
