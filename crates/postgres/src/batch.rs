//! Batches: their records, their cursor, and their state machine.
//!
//! Concurrent transactions may be adding deltas to a batch's counters. So a batch advances after
//! the commit that changed its counters ([`advance`]): the last of the concurrent finishes sees the
//! counts of all.

use std::collections::BTreeSet;

use longshore_core::batch::{self as machine, BatchAction, BatchRevision};
use longshore_core::sql_row::{BATCH_COLUMNS, read_batch, read_counts};
use longshore_core::store::{AddChunkResult, BatchChunk, OpenBatchResult, SendResult};
use longshore_core::unit::check_size;
use longshore_core::{Batch, BatchId, Error, NewBatch, Payload, Result, Scope, TenantId, Timestamp};
use tokio_postgres::Row;

use crate::error::damaged;
use crate::row::{Columns, count, readable, to_json, value};
use crate::send::{LimitPolicy, send};
use crate::store::{StoreInner, retry_transaction};
use crate::tx::{PostCommit, Tx};
use crate::typed_params::replace_nul;
use crate::{checkpoint, tenants};

/// Creates a batch's record, or returns the existing one.
pub(crate) async fn open(tx: &mut Tx<'_>, scope: &Scope, new: &NewBatch) -> Result<OpenBatchResult> {
    scope.require(&new.tenant)?;
    new.check()?;
    let id = new.full_id();
    match number(tx, &Scope::All, &id).await {
        Ok(num) => return Ok(OpenBatchResult::Existing(show(tx, num).await?)),
        Err(Error::NotFound { .. }) => {}
        Err(error) => return Err(error),
    }
    let suspended = tenants::is_suspended(tx, &new.tenant).await?;
    let existing = if scope.tenant().is_some() { count_of(tx, &new.tenant).await? } else { 0 };
    scope.check_new_batch(&new.tenant, suspended, existing)?;
    let made = tx
        .query(
            "INSERT INTO longshore_batch (name, tenant, kind, status, initiated_by, initiated_at,
             workers, notes, threshold, callback, definition, expected)
             VALUES ($1, $2, $3, 'queued', $4, $5, $6, $7, $8, $9, $10, $11)
             ON CONFLICT (name) DO NOTHING RETURNING num",
            &[
                &id.as_str(),
                &new.tenant.as_str(),
                &replace_nul(&new.kind),
                &replace_nul(&new.initiated_by),
                &tx.now.as_micros(),
                &new.workers.map(number_for_column).transpose()?,
                &replace_nul(&new.notes),
                &new.threshold.as_ref().map(to_json).transpose()?,
                &new.callback.as_ref().map(to_json).transpose()?,
                &new.definition.as_ref().map(Payload::as_bytes),
                &new.expected.map(|units| i64::try_from(units).unwrap_or(i64::MAX)),
            ],
        )
        .await?;
    if let Some(row) = made.first() {
        tx.announce("batch", id.as_str(), Some(new.tenant.as_str()));
        return Ok(OpenBatchResult::Created(load(tx, value(row, 0)?).await?));
    }
    let num = number(tx, &Scope::All, &id).await?;
    Ok(OpenBatchResult::Existing(show(tx, num).await?))
}

fn number_for_column(number: u32) -> Result<i32> {
    i32::try_from(number).map_err(|_| Error::Invalid(format!("{number} workers are too many")))
}

/// Adds a chunk and moves the cursor, both or neither.
pub(crate) async fn add(
    tx: &mut Tx<'_>,
    scope: &Scope,
    id: &BatchId,
    chunk: &BatchChunk,
) -> Result<AddChunkResult> {
    if chunk.next.contains('\0') {
        return Err(Error::Invalid("a cursor cannot hold a zero character".to_owned()));
    }
    let num = number(tx, scope, id).await?;
    let batch = lock(tx, num).await?.ok_or_else(|| Error::not_found("batch", id))?;
    if let Some(moved) = batch.check_chunk(chunk)? {
        return Ok(moved);
    }
    let answers = send(tx, scope, &chunk.units, num, LimitPolicy::Enforce).await?;
    if answers.iter().any(SendResult::keeps_chunk_out) {
        tx.abandon = true;
        return Ok(AddChunkResult::Committed(answers));
    }
    let sql = "UPDATE longshore_batch SET cursor = $2 WHERE num = $1";
    tx.execute(sql, &[&num, &chunk.next]).await?;
    Ok(AddChunkResult::Committed(answers))
}

/// Seals a batch, so that no more units can be added. Returns its number, to read it after it has
/// advanced.
pub(crate) async fn seal(tx: &mut Tx<'_>, scope: &Scope, id: &BatchId) -> Result<()> {
    let num = number(tx, scope, id).await?;
    let sql = "UPDATE longshore_batch SET sealed = true WHERE num = $1 AND NOT sealed
        RETURNING tenant";
    for row in tx.query(sql, &[&num]).await? {
        tx.announce("batch", scope.batch_id(id).as_str(), Some(value(&row, 0)?));
    }
    tx.touch_batch(num);
    Ok(())
}

/// Applies an operator's action to the record.
pub(crate) async fn act(tx: &mut Tx<'_>, scope: &Scope, id: &BatchId, action: &BatchAction) -> Result<i64> {
    let num = number(tx, scope, id).await?;
    let mut batch = lock(tx, num).await?.ok_or_else(|| Error::not_found("batch", id))?;
    machine::apply_action(&mut batch, action)?;
    write(tx, num, &batch).await?;
    if let BatchAction::Revise(revision) = action {
        revise(tx, num, id, revision).await?;
    }
    tx.announce("batch", batch.id.as_str(), Some(batch.tenant.as_str()));
    // Workers release units of a paused batch, and claim those of a resumed one.
    tx.after.wake_workers = true;
    tx.touch_batch(num);
    Ok(num)
}

/// Replaces a batch's definition, unless another client did so meanwhile.
async fn revise(tx: &mut Tx<'_>, num: i64, id: &BatchId, revision: &BatchRevision) -> Result<()> {
    check_size("definition", &revision.definition)?;
    let workers = revision.workers.map(i32::try_from).transpose().map_err(damaged)?;
    let changed = tx
        .execute(
            "UPDATE longshore_batch SET definition = $2, threshold = $3, workers = $4
             WHERE num = $1 AND definition IN ($2, $5)",
            &[
                &num,
                &revision.definition.as_bytes(),
                &revision.threshold.as_ref().map(to_json).transpose()?,
                &workers,
                &revision.expected.as_bytes(),
            ],
        )
        .await?;
    if changed == 1 { Ok(()) } else { Err(BatchRevision::conflict(id)) }
}

/// Advances batches after the commit that changed their counters or seal. Returns the post-commit
/// work.
pub(crate) async fn advance(store: &StoreInner, batches: BTreeSet<i64>) -> Result<PostCommit> {
    let nums: Vec<i64> = batches.into_iter().collect();
    let (due, mut after) = retry_transaction!(store, Relaxed, tx => find_due(&mut tx, &nums)).await?;
    for chunk in due.chunks(MAX_ADVANCED) {
        match retry_transaction!(store, Durable, tx => advance_all(&mut tx, chunk)).await {
            Ok(((), more)) => after.merge(more),
            Err(error) if error.is_retryable() => return Err(error),
            // One batch that fails to advance must not block the others.
            Err(_) => advance_each(store, chunk, &mut after).await?,
        }
    }
    Ok(after)
}

/// Batches that advance in one transaction at most: each transaction waits for the disk.
const MAX_ADVANCED: usize = 100;

async fn advance_all(tx: &mut Tx<'_>, nums: &[i64]) -> Result<()> {
    for num in nums {
        advance_one(tx, *num).await?;
    }
    Ok(())
}

/// Advances each batch in a transaction of its own.
async fn advance_each(store: &StoreInner, nums: &[i64], after: &mut PostCommit) -> Result<()> {
    for num in nums {
        match retry_transaction!(store, Durable, tx => advance_one(&mut tx, *num)).await {
            Ok(((), more)) => after.merge(more),
            Err(error) if error.is_retryable() => return Err(error),
            Err(error) => tracing::error!(%error, batch = num, "cannot advance a batch"),
        }
    }
    Ok(())
}

/// The batches that can advance: usually none, and then nothing is locked.
async fn find_due(tx: &mut Tx<'_>, nums: &Vec<i64>) -> Result<Vec<i64>> {
    let mut due = Vec::new();
    for row in tx.query(&select("WHERE b.num = ANY($1)"), &[nums]).await? {
        let Some(mut batch) = readable("a batch", read(&row)) else { continue };
        let step = machine::advance(&mut batch, tx.now);
        if step.changed || step.callback_due {
            due.push(value(&row, 0)?);
        }
    }
    // The order in which every transaction locks batches.
    due.sort_unstable();
    Ok(due)
}

async fn advance_one(tx: &mut Tx<'_>, num: i64) -> Result<()> {
    // Another transaction may have advanced it already.
    let Some(mut batch) = lock(tx, num).await? else { return Ok(()) };
    let step = machine::advance(&mut batch, tx.now);
    if step.changed {
        write(tx, num, &batch).await?;
        tx.announce("batch", batch.id.as_str(), Some(batch.tenant.as_str()));
    }
    if step.callback_due
        && let Some(unit) = batch.callback_unit()
    {
        send(tx, &Scope::All, &[unit], 0, LimitPolicy::Exempt).await?;
    }
    Ok(())
}

/// How many batches a tenant has.
pub(crate) async fn count_of(tx: &mut Tx<'_>, tenant: &TenantId) -> Result<u64> {
    let sql = "SELECT count(*) FROM longshore_batch WHERE tenant = $1";
    count(&tx.query_one(sql, &[&tenant.as_str()]).await?, 0)
}

async fn write(tx: &mut Tx<'_>, num: i64, batch: &Batch) -> Result<()> {
    let forgiven = i64::try_from(batch.forgiven).map_err(damaged)?;
    tx.execute(
        "UPDATE longshore_batch SET status = $2, reason = $3, started_at = $4, completed_at = $5,
         sealed = $6, generation = $7, forgiven = $8, announced = $9, paused_at = $10,
         paused_ms = $11 WHERE num = $1",
        &[
            &num,
            &batch.status.as_str(),
            &batch.reason.as_deref().map(replace_nul),
            &batch.started_at.map(Timestamp::as_micros),
            &batch.completed_at.map(Timestamp::as_micros),
            &batch.sealed,
            &i32::try_from(batch.generation).map_err(damaged)?,
            &forgiven,
            &i32::try_from(batch.announced).map_err(damaged)?,
            &batch.paused_at.map(Timestamp::as_micros),
            &i64::try_from(batch.paused_ms).map_err(damaged)?,
        ],
    )
    .await?;
    Ok(())
}

/// A batch's number, if it exists within the scope.
pub(crate) async fn number(tx: &mut Tx<'_>, scope: &Scope, id: &BatchId) -> Result<i64> {
    let sql = "SELECT num, tenant FROM longshore_batch WHERE name = $1";
    let Some(row) = tx.query_opt(sql, &[&scope.batch_id(id).as_str()]).await? else {
        return Err(Error::not_found("batch", id));
    };
    if !scope.covers(&TenantId::new(value::<&str>(&row, 1)?).map_err(damaged)?) {
        return Err(Error::not_found("batch", id));
    }
    value(&row, 0)
}

/// The batch that a query names: by its name, or by its number if no batch has that name.
pub(crate) async fn number_of_query(tx: &mut Tx<'_>, scope: &Scope, id: &BatchId) -> Result<i64> {
    let not_found = match number(tx, scope, id).await {
        Err(error @ Error::NotFound { .. }) => error,
        found => return found,
    };
    let Some(num) = scope.batch_number(id) else { return Err(not_found) };
    let sql = "SELECT tenant FROM longshore_batch WHERE num = $1";
    let Some(row) = tx.query_opt(sql, &[&num]).await? else { return Err(not_found) };
    let tenant = TenantId::new(value::<&str>(&row, 0)?).map_err(damaged)?;
    if scope.covers(&tenant) { Ok(num) } else { Err(not_found) }
}

/// The columns that [`read`] reads: the record in the first 22, then the counts. `rest` follows
/// `FROM longshore_batch b`.
pub(crate) fn select(rest: &str) -> String {
    format!(
        "SELECT {BATCH_COLUMNS}, c.blocked, c.scheduled, c.ready, c.leased, c.done, c.failed,
         c.cancelled
         FROM longshore_batch b CROSS JOIN LATERAL (
           SELECT coalesce(sum(n.blocked), 0)::bigint AS blocked,
             coalesce(sum(n.scheduled), 0)::bigint AS scheduled,
             coalesce(sum(n.ready), 0)::bigint AS ready,
             coalesce(sum(n.leased), 0)::bigint AS leased,
             coalesce(sum(n.done), 0)::bigint AS done,
             coalesce(sum(n.failed), 0)::bigint AS failed,
             coalesce(sum(n.cancelled), 0)::bigint AS cancelled
           FROM ({COUNTED}) n) c {rest}"
    )
}

/// The counts of a batch's streams, rolled up or not. The view is not used: it would add up the
/// deltas of all streams each time a batch is read.
const COUNTED: &str = "SELECT s.blocked, s.scheduled, s.ready, s.leased, s.done, s.failed,
      s.cancelled FROM longshore_stream s WHERE s.batch = b.num AND s.batch <> 0
    UNION ALL SELECT d.blocked, d.scheduled, d.ready, d.leased, d.done, d.failed, d.cancelled
    FROM longshore_stream_delta d WHERE d.stream = ANY(ARRAY(SELECT s.num FROM longshore_stream s
      WHERE s.batch = b.num AND s.batch <> 0))";

/// One batch with counts and sums.
pub(crate) async fn show(tx: &mut Tx<'_>, num: i64) -> Result<Batch> {
    Ok(Batch { sums: checkpoint::sums(tx, num).await?, ..load(tx, num).await? })
}

/// A batch's definition, for its workers.
pub(crate) async fn definition(tx: &mut Tx<'_>, scope: &Scope, id: &BatchId) -> Result<Option<Payload>> {
    let num = number(tx, scope, id).await?;
    let sql = "SELECT definition FROM longshore_batch WHERE num = $1";
    let row = tx.query_opt(sql, &[&num]).await?.ok_or_else(|| Error::not_found("batch", id))?;
    Ok(value::<Option<&[u8]>>(&row, 0)?.map(Payload::from))
}

/// Replaces the definition if it is still `from`.
pub(crate) async fn change_definition(
    tx: &mut Tx<'_>,
    scope: &Scope,
    id: &BatchId,
    from: &Payload,
    to: &Payload,
) -> Result<()> {
    let num = number(tx, scope, id).await?;
    let sql = "UPDATE longshore_batch SET definition = $3 WHERE num = $1 AND definition IN ($2, $3)";
    match tx.execute(sql, &[&num, &from.as_bytes(), &to.as_bytes()]).await? {
        1 => Ok(()),
        _ => Err(Error::definition_changed(id)),
    }
}

/// One batch with counts but without sums, which no decision needs.
pub(crate) async fn load(tx: &mut Tx<'_>, num: i64) -> Result<Batch> {
    let row = tx.query_opt(&select("WHERE b.num = $1"), &[&num]).await?;
    read(&row.ok_or_else(|| Error::not_found("batch", num))?)
}

/// Locks a batch and reads it with its counts, which then include those of all transactions that
/// held the lock before. `None` if it was pruned.
pub(crate) async fn lock(tx: &mut Tx<'_>, num: i64) -> Result<Option<Batch>> {
    let sql = "SELECT 1 FROM longshore_batch WHERE num = $1 FOR UPDATE";
    match tx.query_opt(sql, &[&num]).await? {
        Some(_) => load(tx, num).await.map(Some),
        None => Ok(None),
    }
}

/// Reads what [`select`] selects.
pub(crate) fn read(row: &Row) -> Result<Batch> {
    read_batch(&Columns(row), read_counts(&Columns(row), 22)?)
}

/// Opens a new generation of an ended batch, for units that are retried. Flush first: deltas that
/// are not written yet are not seen here.
pub(crate) async fn reopen(tx: &mut Tx<'_>, id: &BatchId) -> Result<()> {
    let num = number(tx, &Scope::All, id).await?;
    let mut batch = lock(tx, num).await?.ok_or_else(|| Error::not_found("batch", id))?;
    machine::reopen(&mut batch)?;
    write(tx, num, &batch).await
}
