//! Administration: cancel, retry, pause, resume.

use longshore_core::admission::UnitDependencies;
use longshore_core::batch::BatchAction;
use longshore_core::store::{
    Capacity, LaneChange, QueueChange, SettingsChange, UnitAction, UnitActionResult,
};
use longshore_core::unit_state::{DEPENDENCY_FAILURE, Event, transition};
use longshore_core::{BatchId, Error, Policy, QueueName, Result, Scope, TenantId, UnitId, UnitState};
use rusqlite::{Connection, OptionalExtension};

use crate::error::Translate;
use crate::finish::{apply, apply_blocked, find, load};
use crate::queries::{stream_names, tenant_filter};
use crate::row::{UnitAttributes, UnitRow, decode_state, flag, state_codes};
use crate::tx::Tx;
use crate::{batch, send, session};

/// Most units changed in one transaction.
pub(crate) const MAX_CHUNK: u32 = 5_000;

/// Applies an action to units, all or none.
pub(crate) fn units(
    tx: &mut Tx<'_>,
    scope: &Scope,
    ids: &[UnitId],
    action: UnitAction,
) -> Result<UnitActionResult> {
    let mut result = UnitActionResult::default();
    for id in ids {
        let row = load(tx, *id)?;
        if !scope.covers(&stream_names(tx.db, row.stream)?.tenant) {
            return Err(Error::not_found("unit", id));
        }
        apply_one(tx, &row, action, &mut result)?;
    }
    Ok(result)
}

/// Applies an action to the units that still exist.
pub(crate) fn apply_to_existing(
    tx: &mut Tx<'_>,
    ids: &[UnitId],
    action: UnitAction,
) -> Result<UnitActionResult> {
    let mut result = UnitActionResult::default();
    for id in ids {
        if let Some(row) = find(tx, *id)? {
            apply_one(tx, &row, action, &mut result)?;
        }
    }
    Ok(result)
}

/// The units of a queue in one state.
pub(crate) fn units_in_queue(
    db: &Connection,
    scope: &Scope,
    queue: &QueueName,
    state: UnitState,
) -> Result<Vec<UnitId>> {
    let mut ids = Vec::new();
    for code in state_codes(state) {
        let mut statement = db
            .prepare_cached(
                "SELECT u.id FROM longshore_queue q JOIN longshore_lane l ON l.queue = q.num
                 JOIN longshore_stream s ON s.lane = l.num
                 JOIN longshore_unit u INDEXED BY longshore_unit_sort
                 ON u.stream = s.num AND u.state = ?3
                 WHERE q.name = ?1 AND (?2 IS NULL OR l.tenant = ?2)",
            )
            .or_translate()?;
        let rows = statement
            .query_map((queue.as_str(), tenant_filter(scope), code), |row| {
                Ok(UnitId::from_bytes(row.get(0)?))
            })
            .or_translate()?;
        for row in rows {
            ids.push(row.or_translate()?);
        }
    }
    Ok(ids)
}

fn apply_one(
    tx: &mut Tx<'_>,
    row: &UnitRow,
    action: UnitAction,
    result: &mut UnitActionResult,
) -> Result<()> {
    let state = row.state()?;
    if action == UnitAction::Cancel && state == UnitState::Leased {
        session::request_cancel(tx, row)?;
        result.requested += 1;
        return Ok(());
    }
    match transition(&row.transition_input()?, &action.event(), &Policy::default(), tx.now) {
        Err(_) => result.skipped += 1,
        Ok(step) => {
            if action == UnitAction::Retry && state.is_final() {
                if !reclaim_dedup_key(tx, row)? {
                    result.skipped += 1;
                    return Ok(());
                }
                let mut row = row.clone();
                if let Some(generation) = reopen_batch(tx, row.stream)? {
                    row.enter_generation(generation)?;
                }
                apply(tx, &row, &step, row.fence, None)?;
            } else {
                apply(tx, row, &step, row.fence, None)?;
            }
            result.changed += 1;
        }
    }
    Ok(())
}

/// Gives a retried unit its dedup key back; false if another unit has it now.
fn reclaim_dedup_key(tx: &Tx<'_>, row: &UnitRow) -> Result<bool> {
    let released = row.has(flag::KEY_WHILE_LIVE) || row.has(flag::KEY_SINCE);
    let Some(key) = UnitAttributes::parse(row.spec.as_deref())?.key.filter(|_| released) else {
        return Ok(true);
    };
    let lane: i64 = tx
        .db
        .query_row("SELECT lane FROM longshore_stream WHERE num = ?1", [row.stream], |row| row.get(0))
        .or_translate()?;
    let taken = tx
        .db
        .execute(
            "UPDATE OR IGNORE longshore_unit SET dedup_key = ?2 WHERE id = ?1",
            (row.id.as_bytes(), send::lane_key(lane, &key)),
        )
        .or_translate()?;
    Ok(taken > 0)
}

/// Opens a new generation of an ended batch, because a unit of it runs again. Returns the batch's
/// generation.
fn reopen_batch(tx: &mut Tx<'_>, stream: i64) -> Result<Option<u32>> {
    let Some(id) = stream_names(tx.db, stream)?.batch.clone() else { return Ok(None) };
    // Write pending counter changes first.
    tx.flush()?;
    let num = batch::number(tx.db, &Scope::All, &id)?;
    if batch::load(tx.db, num)?.status.is_final() {
        batch::reopen(tx, &id)?;
    }
    Ok(Some(batch::load(tx.db, num)?.generation))
}

/// Position of a retry within the units of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryCursor {
    batch: i64,
    stream: i64,
    sort_key: i64,
    unit: UnitId,
    /// Units that ended after this time are not retried.
    until: i64,
    /// The generation that they enter.
    generation: u32,
    pass: RetryPass,
}

/// What a retry of a batch looks for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum RetryPass {
    /// Failed units.
    Failed,
    /// Units that were cancelled because a dependency failed. Each that waits again may make others
    /// possible: there are passes until one has `changed` nothing.
    Dependants { changed: bool },
}

impl RetryCursor {
    /// Whether it still has to find a failed unit that can be retried.
    fn finds_failed(self, retried: usize) -> bool {
        retried == 0 && self.pass == RetryPass::Failed
    }

    /// The beginning of a pass.
    fn first(self, pass: RetryPass) -> Self {
        Self { stream: 0, sort_key: i64::MIN, unit: UnitId::from_bytes([0; 16]), pass, ..self }
    }

    /// Where to continue after a chunk that ended with `last`, if it was full.
    fn next(self, last: Option<Self>, retried: usize) -> Option<Self> {
        let pass = match self.pass {
            RetryPass::Failed => RetryPass::Failed,
            RetryPass::Dependants { changed } => RetryPass::Dependants { changed: changed || retried > 0 },
        };
        match (last, pass) {
            (Some(last), pass) => Some(Self { pass, ..last }),
            (None, RetryPass::Failed | RetryPass::Dependants { changed: true }) => {
                Some(self.first(RetryPass::Dependants { changed: false }))
            }
            (None, RetryPass::Dependants { changed: false }) => None,
        }
    }
}

/// Applies an action to a batch's record. For a retry it also makes the first chunk of failed units
/// ready, and returns where the next begins. Waiting units of a batch that failed or was cancelled
/// are cancelled afterwards, in chunks too.
pub(crate) fn batch(
    tx: &mut Tx<'_>,
    scope: &Scope,
    id: &BatchId,
    action: &BatchAction,
) -> Result<Option<RetryCursor>> {
    if *action == BatchAction::Seal {
        return batch::seal(tx, scope, id).map(|()| None);
    }
    let before = batch::load(tx.db, batch::number(tx.db, scope, id)?)?;
    let num = batch::act(tx, scope, id, action)?;
    if *action != BatchAction::RetryFailed {
        return Ok(None);
    }
    let batch = batch::load(tx.db, num)?;
    let (unit, until, pass) = (UnitId::from_bytes([0; 16]), tx.now.as_micros(), RetryPass::Failed);
    let generation = batch.generation;
    let first = RetryCursor { batch: num, stream: 0, sort_key: i64::MIN, unit, until, generation, pass };
    if batch.status.is_final() {
        before.check_retried(0)?;
        // Its failed units have run again, one by one; the units that were cancelled because of them have not.
        return match batch.status.is_aborted() || batch.counts.cancelled == 0 {
            true => Ok(None),
            false => {
                let pass = RetryPass::Dependants { changed: false };
                continue_retry(tx, RetryCursor { pass, ..first })
            }
        };
    }
    let (mut seen, mut retried, mut left) = (0, 0, Some(first));
    // Few units in one transaction, so that the batch cannot end in between. A unit does not count if
    // another has its key.
    while let Some(cursor) = left.filter(|cursor| seen < MAX_CHUNK as usize || cursor.finds_failed(retried)) {
        let chunk = retry_chunk(tx, cursor)?;
        (seen, retried, left) = (seen + chunk.seen, retried + chunk.retried, chunk.next);
    }
    before.check_retried(retried)?;
    Ok(left)
}

/// Retries the next chunk of a batch's failed units. A batch that completed in the meantime is
/// reopened; one that failed or was cancelled is left alone.
pub(crate) fn continue_retry(tx: &mut Tx<'_>, cursor: RetryCursor) -> Result<Option<RetryCursor>> {
    let Some(batch) = batch::find(tx.db, cursor.batch)?.filter(|batch| !batch.status.is_aborted()) else {
        return Ok(None);
    };
    // If the batch has ended meanwhile, this chunk opens its next generation.
    let generation = batch.generation + u32::from(batch.status.is_final());
    let chunk = retry_chunk(tx, RetryCursor { generation, ..cursor })?;
    if chunk.retried > 0 && batch.status.is_final() {
        batch::reopen(tx, &batch.id)?;
    }
    tx.touch_batch(cursor.batch);
    Ok(chunk.next)
}

/// What one chunk of a retry did.
struct RetriedChunk {
    /// Units that it looked at.
    seen: usize,
    /// Units that run again.
    retried: usize,
    /// Where the next chunk begins.
    next: Option<RetryCursor>,
}

/// Makes one chunk of a batch's failed units ready, or lets cancelled dependants wait again, unless
/// another unit has their dedup key now.
fn retry_chunk(tx: &mut Tx<'_>, cursor: RetryCursor) -> Result<RetriedChunk> {
    let units = retried_units(tx.db, cursor)?;
    let mut retried = 0;
    for at in &units {
        let mut row = load(tx, at.unit)?;
        let open = match cursor.pass {
            RetryPass::Failed => Vec::new(),
            RetryPass::Dependants { .. } => match open_dependencies(tx.db, &row)? {
                Some(open) => open,
                None => continue,
            },
        };
        if reclaim_dedup_key(tx, &row)? {
            row.enter_generation(cursor.generation)?;
            let event = if open.is_empty() { Event::Retry } else { Event::RetryBlocked };
            let step = transition(&row.transition_input()?, &event, &Policy::default(), tx.now)?;
            send::write_edges(tx, row.id, &open)?;
            apply_blocked(tx, &row, &step, row.fence, None, open.len())?;
            retried += 1;
        }
    }
    let last = units.last().copied().filter(|_| units.len() >= MAX_CHUNK as usize);
    Ok(RetriedChunk { seen: units.len(), retried, next: cursor.next(last, retried) })
}

/// The dependencies for which a cancelled unit would wait; `None` if it cannot run.
fn open_dependencies(db: &Connection, row: &UnitRow) -> Result<Option<Vec<UnitId>>> {
    let after = UnitAttributes::parse(row.spec.as_deref())?.after;
    if after.is_empty() {
        return Ok(None);
    }
    UnitDependencies::reopened(after, |needs| {
        let state: Option<u8> = db
            .prepare_cached("SELECT state FROM longshore_unit WHERE id = ?1")
            .or_translate()?
            .query_row([needs.as_bytes()], |row| row.get(0))
            .optional()
            .or_translate()?;
        state.map(decode_state).transpose()
    })
}

/// The next chunk of the units that a pass looks for, as positions.
fn retried_units(db: &Connection, after: RetryCursor) -> Result<Vec<RetryCursor>> {
    let RetryCursor { batch, stream, sort_key, unit, until, .. } = after;
    let which = match after.pass {
        RetryPass::Failed => "u.state = 5".to_owned(),
        RetryPass::Dependants { .. } => {
            format!("u.state = 6 AND u.failure ->> 'code' = '{DEPENDENCY_FAILURE}'")
        }
    };
    db.prepare_cached(&format!(
        "SELECT s.num, u.sort_key, u.id
         FROM longshore_stream s JOIN longshore_unit u INDEXED BY longshore_unit_sort
         ON u.stream = s.num AND {which} AND u.sort_key <= ?5
         WHERE s.batch = ?1 AND s.batch <> 0 AND s.num >= ?2
         AND (s.num > ?2 OR (u.sort_key, u.id) > (?3, ?4))
         ORDER BY s.num, u.sort_key, u.id LIMIT ?6"
    ))
    .or_translate()?
    .query_map((batch, stream, sort_key, unit.as_bytes(), until, MAX_CHUNK), |row| {
        let unit = UnitId::from_bytes(row.get(2)?);
        Ok(RetryCursor { stream: row.get(0)?, sort_key: row.get(1)?, unit, ..after })
    })
    .or_translate()?
    .collect::<rusqlite::Result<_>>()
    .or_translate()
}

/// Changes the settings of a queue or a lane.
pub(crate) fn settings(
    tx: &mut Tx<'_>,
    scope: &Scope,
    name: &QueueName,
    change: &SettingsChange,
) -> Result<()> {
    match change {
        SettingsChange::Queue(change) => queue(tx, scope, name, *change),
        SettingsChange::Lane(tenant, change) => lane(tx, scope, name, tenant, *change),
    }
}

/// Changes a queue, which need not exist yet.
fn queue(tx: &mut Tx<'_>, scope: &Scope, name: &QueueName, change: QueueChange) -> Result<()> {
    let owner = scope.check_queue_change(name)?;
    // Create a lane too, so that the queue is listed before its first unit.
    send::lane(tx, name.as_str(), owner.as_str())?;
    let num = send::queue(tx, name.as_str())?;
    update_settings(tx, "longshore_queue", num, change.paused, change.capacity)?;
    // Only the tenants with a lane may learn the queue's name.
    let mut lanes =
        tx.db.prepare_cached("SELECT tenant FROM longshore_lane WHERE queue = ?1").or_translate()?;
    let tenants = lanes.query_map([num], |row| row.get::<_, String>(0)).or_translate()?;
    for tenant in tenants {
        tx.announce("queue", name.as_str(), Some(&tenant.or_translate()?));
    }
    Ok(())
}

/// Changes one tenant's lane.
fn lane(
    tx: &mut Tx<'_>,
    scope: &Scope,
    name: &QueueName,
    tenant: &TenantId,
    change: LaneChange,
) -> Result<()> {
    scope.check_lane_change(name, tenant, &change)?;
    let num = send::lane(tx, name.as_str(), tenant.as_str())?;
    update_settings(tx, "longshore_lane", num, change.paused, change.capacity)?;
    if let Some(weight) = change.weight {
        let sql = "UPDATE longshore_lane SET weight = ?2 WHERE num = ?1";
        tx.db.execute(sql, (num, weight)).or_translate()?;
    }
    if let Some(cap) = change.cap {
        let sql = "UPDATE longshore_lane SET cap = ?2 WHERE num = ?1";
        tx.db.execute(sql, (num, cap)).or_translate()?;
    }
    tx.announce("queue", name.as_str(), Some(tenant.as_str()));
    Ok(())
}

fn update_settings(
    tx: &mut Tx<'_>,
    table: &str,
    num: i64,
    paused: Option<bool>,
    capacity: Option<Capacity>,
) -> Result<()> {
    if let Some(paused) = paused {
        let sql = format!("UPDATE {table} SET paused = ?2 WHERE num = ?1");
        tx.db.execute(&sql, (num, paused)).or_translate()?;
    }
    if let Some(Capacity { units, bytes }) = capacity {
        let sql = format!("UPDATE {table} SET max_units = ?2, max_bytes = ?3 WHERE num = ?1");
        tx.db.execute(&sql, (num, units, bytes)).or_translate()?;
    }
    tx.wake_workers = true;
    Ok(())
}
