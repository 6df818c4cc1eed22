//! Operator actions: cancel, retry, pause, resume.
//!
//! Batches are locked before their units, here as everywhere.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use longshore_core::batch::BatchAction;
use longshore_core::store::{
    Capacity, LaneChange, QueueChange, SettingsChange, UnitAction, UnitActionResult,
};
use longshore_core::unit_state::{DEPENDENCY_FAILURE, Event, Transition, transition};
use longshore_core::{BatchId, Error, Policy, QueueName, Result, Scope, TenantId, UnitId, UnitState};
use uuid::Uuid;

use crate::advisory_lock::{self, AdvisoryLock};
use crate::error::{conflict, is_unique_violation};
use crate::finish::{UnitChange, apply, lock_rows, reopened_dependencies};
use crate::queries::tenant;
use crate::row::{Columns, UnitAttributes, UnitRow, flag, state_code, state_codes, value};
use crate::streams::{self, Stream};
use crate::tenants::too_large;
use crate::tx::Tx;
use crate::typed_params::{unit_id, uuid, uuids};
use crate::{batch, send, session};

/// Units changed in one transaction.
pub(crate) const MAX_CHUNK_UNITS: u32 = 5_000;

/// Cancels, wakes or retries units, all or none.
pub(crate) async fn units(
    tx: &mut Tx<'_>,
    scope: &Scope,
    ids: &[UnitId],
    action: UnitAction,
) -> Result<UnitActionResult> {
    let mut selected = LockedUnits::lock(tx, ids, action).await?;
    for id in ids {
        let owner = selected.owner(id).filter(|owner| scope.covers(owner));
        owner.ok_or_else(|| Error::not_found("unit", id))?;
    }
    selected.operate(tx, ids, action).await
}

/// Cancels, wakes or retries those of the units that still exist.
pub(crate) async fn apply_to_existing(
    tx: &mut Tx<'_>,
    ids: &[UnitId],
    action: UnitAction,
) -> Result<UnitActionResult> {
    LockedUnits::lock(tx, ids, action).await?.operate(tx, ids, action).await
}

/// The units of a queue in one state.
pub(crate) async fn units_in_queue(
    tx: &mut Tx<'_>,
    scope: &Scope,
    queue: &QueueName,
    state: UnitState,
) -> Result<Vec<UnitId>> {
    let mut ids = Vec::new();
    for code in state_codes(state) {
        // The code is part of the text, so that the planner can choose the partial index.
        let rows = format!("SELECT u.id FROM longshore_unit u WHERE u.stream = s.num AND u.state = {code}");
        let units = match state {
            UnitState::Ready if *code == state_code(state) => {
                "SELECT r.id FROM longshore_ready r WHERE r.stream = s.num".to_owned()
            }
            UnitState::Leased => format!(
                "{rows} AND u.session IS NOT NULL
                 UNION ALL SELECT unnest(g.units) FROM longshore_lease_group g WHERE g.stream = s.num"
            ),
            UnitState::Done => format!(
                "{rows} UNION ALL SELECT unnest(g.units) FROM longshore_done_group g WHERE g.stream = s.num"
            ),
            _ => rows,
        };
        let sql = format!(
            "SELECT u.id FROM longshore_queue q JOIN longshore_lane l ON l.queue = q.num
             JOIN longshore_stream s ON s.lane = l.num CROSS JOIN LATERAL ({units}) u
             WHERE q.name = $1 AND ($2 IS NULL OR l.tenant = $2)"
        );
        for row in tx.query(&sql, &[&queue.as_str(), &tenant(scope)]).await? {
            ids.push(unit_id(value(&row, 0)?));
        }
    }
    Ok(ids)
}

/// Locked units and their streams.
struct LockedUnits {
    rows: HashMap<UnitId, UnitRow>,
    streams: HashMap<i64, Arc<Stream>>,
}

impl LockedUnits {
    async fn lock(tx: &mut Tx<'_>, ids: &[UnitId], action: UnitAction) -> Result<Self> {
        if action == UnitAction::Retry {
            lock_batches(tx, ids).await?;
        }
        let rows = lock_rows(tx, ids).await?;
        let cache = Arc::clone(&tx.streams);
        let streams = cache.by_num(tx, rows.values().map(|row| row.stream)).await?;
        Ok(Self { rows, streams })
    }

    fn owner(&self, id: &UnitId) -> Option<&TenantId> {
        let row = self.rows.get(id)?;
        self.streams.get(&row.stream).map(|stream| &stream.tenant)
    }

    async fn operate(
        &mut self,
        tx: &mut Tx<'_>,
        ids: &[UnitId],
        action: UnitAction,
    ) -> Result<UnitActionResult> {
        let mut operated = UnitActionResult::default();
        let (mut steps, mut running) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for id in ids {
            let Some(row) = self.rows.get(id) else { continue };
            if action == UnitAction::Cancel && row.state()? == UnitState::Leased {
                running.push(row.clone());
                continue;
            }
            match transition(&row.transition_input()?, &action.event(), &Policy::default(), tx.now) {
                // A unit that is named twice counts as skipped the second time.
                Ok(step) if seen.insert(*id) => steps.push((row.clone(), step)),
                _ => operated.skipped += 1,
            }
        }
        operated.requested = running.len() as u64;
        if !running.is_empty() {
            session::request_cancels(tx, &running).await?;
        }
        let before = steps.len();
        let steps =
            if action == UnitAction::Retry { self.reclaim_keys_and_reopen(tx, steps).await? } else { steps };
        operated.changed = steps.len() as u64;
        operated.skipped += (before - steps.len()) as u64;
        apply(tx, steps.into_iter().map(|(row, step)| UnitChange::step(row, step)).collect()).await?;
        Ok(operated)
    }

    /// Drops transitions where another unit has taken the dedup key, and reopens the ended batches
    /// of the other units.
    async fn reclaim_keys_and_reopen(
        &self,
        tx: &mut Tx<'_>,
        steps: Vec<(UnitRow, Transition)>,
    ) -> Result<Vec<(UnitRow, Transition)>> {
        let mut steps = reclaim_dedup_keys(tx, steps, &self.streams).await?;
        let mut batches: BTreeMap<i64, &BatchId> = BTreeMap::new();
        for (row, _) in &steps {
            if row.state()?.is_final()
                && let Some(stream) = self.streams.get(&row.stream)
                && let Some(id) = &stream.batch
            {
                batches.insert(stream.batch_num, id);
            }
        }
        let mut generations = HashMap::new();
        for (num, id) in batches {
            if batch::load(tx, num).await?.status.is_final() {
                batch::reopen(tx, id).await?;
            }
            generations.insert(num, batch::load(tx, num).await?.generation);
            tx.touch_batch(num);
        }
        for (row, _) in &mut steps {
            let stream = self.streams.get(&row.stream).filter(|stream| stream.batch.is_some());
            if let Some(generation) = stream.and_then(|stream| generations.get(&stream.batch_num)) {
                row.enter_generation(*generation)?;
            }
        }
        Ok(steps)
    }
}

/// Locks the batches that units belong to, in the order of their numbers.
async fn lock_batches(tx: &mut Tx<'_>, ids: &[UnitId]) -> Result<()> {
    tx.query(
        "SELECT 1 FROM longshore_batch WHERE num IN (SELECT s.batch FROM longshore_unit u
           JOIN longshore_stream s ON s.num = u.stream WHERE u.id = ANY($1) AND s.batch <> 0)
         ORDER BY num FOR UPDATE",
        &[&uuids(ids)],
    )
    .await?;
    Ok(())
}

/// Gives retried units their dedup keys back. If another unit has taken the key, the transition is
/// dropped.
async fn reclaim_dedup_keys(
    tx: &mut Tx<'_>,
    mut steps: Vec<(UnitRow, Transition)>,
    streams: &HashMap<i64, Arc<Stream>>,
) -> Result<Vec<(UnitRow, Transition)>> {
    let mut wanted: BTreeMap<Vec<u8>, UnitId> = BTreeMap::new();
    let mut with_key = HashSet::new();
    for (row, _) in &steps {
        let temporary = row.has(flag::KEY_WHILE_LIVE) || row.has(flag::KEY_SINCE);
        if !temporary || !row.state()?.is_final() {
            continue;
        }
        let (Some(key), Some(stream)) =
            (UnitAttributes::parse(row.spec.as_deref())?.key, streams.get(&row.stream))
        else {
            continue;
        };
        with_key.insert(row.id);
        wanted.entry(send::lane_key(stream.lane, &key)).or_insert(row.id);
    }
    if with_key.is_empty() {
        return Ok(steps);
    }
    let taken = assign_free_keys(tx, wanted).await?;
    steps.retain(|(row, _)| !with_key.contains(&row.id) || taken.contains(&row.id));
    Ok(steps)
}

/// Gives units the keys that are free. If another transaction takes one at the same time, the
/// operation is retried.
async fn assign_free_keys(tx: &mut Tx<'_>, wanted: BTreeMap<Vec<u8>, UnitId>) -> Result<HashSet<UnitId>> {
    let ids = uuids(wanted.values());
    let keys: Vec<Vec<u8>> = wanted.into_keys().collect();
    let taken = tx
        .query(
            "UPDATE longshore_unit u SET dedup_key = f.key FROM unnest($1, $2) AS f (id, key)
             WHERE u.id = f.id AND NOT EXISTS (SELECT 1 FROM longshore_unit o
               WHERE o.dedup_key = f.key AND o.id <> f.id) RETURNING u.id",
            &[&ids, &keys],
        )
        .await
        .map_err(|error| if is_unique_violation(&error) { conflict() } else { error })?;
    taken.iter().map(|row| Ok(unit_id(value(row, 0)?))).collect()
}

/// Position of a retry within the units of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryCursor {
    batch: i64,
    stream: i64,
    sort_key: i64,
    unit: Uuid,
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
        Self { stream: 0, sort_key: i64::MIN, unit: Uuid::nil(), pass, ..self }
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

/// What one chunk of a retry did.
struct RetriedChunk {
    /// Units that it looked at.
    seen: usize,
    /// Units that run again.
    retried: usize,
    /// Where the next chunk begins.
    next: Option<RetryCursor>,
}

/// Applies an action to a batch's record. For a retry it also makes the first chunk of failed units
/// ready, and returns where the next begins. Waiting units of an abandoned batch are cancelled
/// afterwards, in chunks too.
pub(crate) async fn batch(
    tx: &mut Tx<'_>,
    scope: &Scope,
    id: &BatchId,
    action: &BatchAction,
) -> Result<Option<RetryCursor>> {
    if *action == BatchAction::Seal {
        return batch::seal(tx, scope, id).await.map(|()| None);
    }
    let num = batch::number(tx, scope, id).await?;
    let before = batch::lock(tx, num).await?.ok_or_else(|| Error::not_found("batch", id))?;
    batch::act(tx, scope, id, action).await?;
    if *action != BatchAction::RetryFailed {
        return Ok(None);
    }
    let batch = batch::load(tx, num).await?;
    let (unit, until, pass) = (Uuid::nil(), tx.now.as_micros(), RetryPass::Failed);
    let generation = batch.generation;
    let first = RetryCursor { batch: num, stream: 0, sort_key: i64::MIN, unit, until, generation, pass };
    if batch.status.is_final() {
        before.check_retried(0)?;
        // Its failed units have run again, one by one; the units that were cancelled because of them have not.
        return match batch.status.is_aborted() || batch.counts.cancelled == 0 {
            true => Ok(None),
            false => {
                let pass = RetryPass::Dependants { changed: false };
                continue_retry(tx, id, RetryCursor { pass, ..first }).await
            }
        };
    }
    let (mut seen, mut retried, mut left) = (0, 0, Some(first));
    // Few units in one transaction, so that the batch cannot end in between. A unit does not count if
    // another has taken its key.
    while let Some(cursor) =
        left.filter(|cursor| seen < MAX_CHUNK_UNITS as usize || cursor.finds_failed(retried))
    {
        let chunk = retry_chunk(tx, cursor).await?;
        (seen, retried, left) = (seen + chunk.seen, retried + chunk.retried, chunk.next);
    }
    before.check_retried(retried)?;
    Ok(left)
}

/// Retries the next chunk of a batch's failed units. A batch that completed in the meantime is
/// reopened; an abandoned one is left alone.
pub(crate) async fn continue_retry(
    tx: &mut Tx<'_>,
    id: &BatchId,
    cursor: RetryCursor,
) -> Result<Option<RetryCursor>> {
    let Some(batch) = batch::lock(tx, cursor.batch).await? else { return Ok(None) };
    if batch.status.is_aborted() {
        return Ok(None);
    }
    // If the batch has ended meanwhile, this chunk opens its next generation.
    let generation = batch.generation + u32::from(batch.status.is_final());
    let chunk = retry_chunk(tx, RetryCursor { generation, ..cursor }).await?;
    if chunk.retried > 0 && batch.status.is_final() {
        batch::reopen(tx, id).await?;
    }
    tx.touch_batch(cursor.batch);
    Ok(chunk.next)
}

/// Makes one chunk of a batch's failed units ready, or lets cancelled dependants wait again. If
/// another unit has taken a unit's key, that unit stays as it is.
async fn retry_chunk(tx: &mut Tx<'_>, cursor: RetryCursor) -> Result<RetriedChunk> {
    let which = match cursor.pass {
        RetryPass::Failed => "u.state = 5".to_owned(),
        RetryPass::Dependants { .. } => {
            format!("u.state = 6 AND u.failure::json ->> 'code' = '{DEPENDENCY_FAILURE}'")
        }
    };
    let sql = format!(
        "SELECT {columns} FROM longshore_stream s CROSS JOIN LATERAL (
           SELECT {columns} FROM longshore_unit u WHERE u.stream = s.num AND {which}
           AND u.sort_key <= $5
           AND (u.sort_key, u.id) > (CASE WHEN s.num > $2 THEN -9223372036854775808 ELSE $3 END, $4)
           ORDER BY u.sort_key, u.id LIMIT {MAX_CHUNK_UNITS} FOR UPDATE) u
         WHERE s.batch = $1 AND s.batch <> 0 AND s.num >= $2
         ORDER BY s.num, u.sort_key, u.id LIMIT {MAX_CHUNK_UNITS}",
        columns = UnitRow::COLUMNS
    );
    let RetryCursor { batch, stream, sort_key, unit, until, generation, pass } = cursor;
    let mut rows = Vec::new();
    for row in tx.query(&sql, &[&batch, &stream, &sort_key, &unit, &until]).await? {
        rows.push(UnitRow::read(&Columns(&row))?);
    }
    let last = rows.last().filter(|_| rows.len() >= MAX_CHUNK_UNITS as usize);
    let last = last.map(|row| RetryCursor {
        stream: row.stream,
        sort_key: row.sort_key,
        unit: uuid(row.id),
        ..cursor
    });
    let seen = rows.len();
    let mut open = match pass {
        RetryPass::Failed => HashMap::new(),
        RetryPass::Dependants { .. } => reopened_dependencies(tx, &rows).await?,
    };
    let mut steps = Vec::new();
    for mut row in rows {
        let event = match open.get(&row.id) {
            _ if pass == RetryPass::Failed => Event::Retry,
            Some(open) if open.is_empty() => Event::Retry,
            Some(_) => Event::RetryBlocked,
            None => continue,
        };
        row.enter_generation(generation)?;
        let step = transition(&row.transition_input()?, &event, &Policy::default(), tx.now)?;
        steps.push((row, step));
    }
    let cache = Arc::clone(&tx.streams);
    let streams = cache.by_num(tx, steps.iter().map(|(row, _)| row.stream)).await?;
    let steps = reclaim_dedup_keys(tx, steps, &streams).await?;
    let retried = steps.len();
    let (mut edges, mut changes) = (Vec::new(), Vec::new());
    for (row, step) in steps {
        let open = open.remove(&row.id).unwrap_or_default();
        edges.extend(open.iter().map(|needs| (*needs, row.id)));
        changes.push(UnitChange { waits_for: open.len(), ..UnitChange::step(row, step) });
    }
    apply(tx, changes).await?;
    send::write_edges(tx, &edges).await?;
    Ok(RetriedChunk { seen, retried, next: cursor.next(last, retried) })
}

/// Changes the settings of a queue or a lane.
pub(crate) async fn settings(
    tx: &mut Tx<'_>,
    scope: &Scope,
    name: &QueueName,
    change: &SettingsChange,
) -> Result<()> {
    match change {
        SettingsChange::Queue(change) => queue(tx, scope, name, *change).await,
        SettingsChange::Lane(tenant, change) => lane(tx, scope, name, tenant, *change).await,
    }
}

/// Changes a queue, and creates it if it does not exist.
async fn queue(tx: &mut Tx<'_>, scope: &Scope, name: &QueueName, change: QueueChange) -> Result<()> {
    let owner = scope.check_queue_change(name)?;
    // Create a lane as well, so that the queue is listed before its first unit.
    let (_, num) = streams::lane(tx, name, &owner).await?;
    advisory_lock::acquire(tx, &[AdvisoryLock::QueueCapacity(num)]).await?;
    set(tx, "longshore_queue", num, change.paused, change.capacity).await?;
    // Only the tenants with a lane may learn the queue's name.
    for row in tx.query("SELECT tenant FROM longshore_lane WHERE queue = $1", &[&num]).await? {
        tx.announce("queue", name.as_str(), Some(value(&row, 0)?));
    }
    Ok(())
}

/// Changes one tenant's lane.
async fn lane(
    tx: &mut Tx<'_>,
    scope: &Scope,
    name: &QueueName,
    tenant: &TenantId,
    change: LaneChange,
) -> Result<()> {
    scope.check_lane_change(name, tenant, &change)?;
    let (num, _) = streams::lane(tx, name, tenant).await?;
    // Transactions that count under the old limits must commit before the limits change.
    advisory_lock::acquire(tx, &[AdvisoryLock::LaneCapacity(num), AdvisoryLock::LaneCap(num)]).await?;
    set(tx, "longshore_lane", num, change.paused, change.capacity).await?;
    let number = |number: u32| i32::try_from(number).map_err(|_| too_large(number));
    if let Some(weight) = change.weight {
        let sql = "UPDATE longshore_lane SET weight = $2 WHERE num = $1";
        tx.execute(sql, &[&num, &number(weight)?]).await?;
    }
    if let Some(cap) = change.cap {
        let sql = "UPDATE longshore_lane SET cap = $2 WHERE num = $1";
        tx.execute(sql, &[&num, &cap.map(number).transpose()?]).await?;
    }
    tx.announce("queue", name.as_str(), Some(tenant.as_str()));
    Ok(())
}

async fn set(
    tx: &mut Tx<'_>,
    table: &str,
    num: i64,
    paused: Option<bool>,
    capacity: Option<Capacity>,
) -> Result<()> {
    if let Some(paused) = paused {
        let sql = format!("UPDATE {table} SET paused = $2 WHERE num = $1");
        tx.execute(&sql, &[&num, &paused]).await?;
    }
    if let Some(Capacity { units, bytes }) = capacity {
        let bound = |bound: Option<u64>| bound.map(|bound| i64::try_from(bound).unwrap_or(i64::MAX));
        let sql = format!("UPDATE {table} SET max_units = $2, max_bytes = $3 WHERE num = $1");
        tx.execute(&sql, &[&num, &bound(units), &bound(bytes)]).await?;
    }
    tx.after.wake_workers = true;
    Ok(())
}
