//! Batches: records, cursors, and updates when their counters change.

use longshore_core::batch::{self as machine, BatchAction, BatchRevision};
use longshore_core::sql_row::{BATCH_COLUMNS, read_batch, read_counts};
use longshore_core::store::{AddChunkResult, BatchChunk, OpenBatchResult, SendResult};
use longshore_core::unit::check_size;
use longshore_core::{Batch, BatchId, Counts, Error, NewBatch, Payload, Result, Scope, TenantId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::error::{Translate, damaged};
use crate::row::{Columns, to_json};
use crate::send::{Admission, send};
use crate::tx::Tx;
use crate::{checkpoint, tenants};

/// Writes a batch's record, or finds the existing one.
pub(crate) fn open(tx: &mut Tx<'_>, scope: &Scope, new: &NewBatch) -> Result<OpenBatchResult> {
    scope.require(&new.tenant)?;
    new.check()?;
    let id = new.full_id();
    match number(tx.db, &Scope::All, &id) {
        Ok(num) => return Ok(OpenBatchResult::Existing(show(tx.db, num)?)),
        Err(Error::NotFound { .. }) => {}
        Err(error) => return Err(error),
    }
    let suspended = tenants::is_suspended(tx.db, &new.tenant)?;
    scope.check_new_batch(&new.tenant, suspended, count_of(tx.db, &new.tenant)?)?;
    tx.db
        .execute(
            "INSERT INTO longshore_batch (name, tenant, kind, status, initiated_by, initiated_at,
             workers, notes, threshold, callback, definition, expected)
             VALUES (?1, ?2, ?3, 'queued', ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            (
                id.as_str(),
                new.tenant.as_str(),
                &new.kind,
                &new.initiated_by,
                tx.now.as_micros(),
                new.workers,
                &new.notes,
                new.threshold.as_ref().map(to_json).transpose()?,
                new.callback.as_ref().map(to_json).transpose()?,
                new.definition.as_ref().map(Payload::as_bytes),
                new.expected,
            ),
        )
        .or_translate()?;
    let num = tx.db.last_insert_rowid();
    tx.announce("batch", id.as_str(), Some(new.tenant.as_str()));
    Ok(OpenBatchResult::Created(load(tx.db, num)?))
}

/// Stores a chunk and moves the cursor, both or neither.
pub(crate) fn add(
    tx: &mut Tx<'_>,
    scope: &Scope,
    id: &BatchId,
    chunk: &BatchChunk,
) -> Result<AddChunkResult> {
    let num = number(tx.db, scope, id)?;
    let batch = load(tx.db, num)?;
    if let Some(moved) = batch.check_chunk(chunk)? {
        return Ok(moved);
    }
    let answers = send(tx, scope, &chunk.units, num, Admission::Bounded)?;
    if answers.iter().any(SendResult::keeps_chunk_out) {
        tx.roll_back = true;
        return Ok(AddChunkResult::Committed(answers));
    }
    tx.db
        .prepare_cached("UPDATE longshore_batch SET cursor = ?2 WHERE num = ?1")
        .or_translate()?
        .execute((num, &chunk.next))
        .or_translate()?;
    Ok(AddChunkResult::Committed(answers))
}

/// Marks that all units are sent.
pub(crate) fn seal(tx: &mut Tx<'_>, scope: &Scope, id: &BatchId) -> Result<()> {
    let num = number(tx.db, scope, id)?;
    tx.db
        .execute("UPDATE longshore_batch SET sealed = 1 WHERE num = ?1 AND sealed = 0", [num])
        .or_translate()?;
    tx.touch_batch(num);
    Ok(())
}

/// Applies an operator's action to the record.
pub(crate) fn act(tx: &mut Tx<'_>, scope: &Scope, id: &BatchId, action: &BatchAction) -> Result<i64> {
    let num = number(tx.db, scope, id)?;
    let mut batch = load(tx.db, num)?;
    machine::apply_action(&mut batch, action)?;
    write(tx, num, &batch)?;
    if let BatchAction::Revise(revision) = action {
        revise(tx, num, id, revision)?;
    }
    // Workers release paused units; waiting workers wake up for resumed ones.
    tx.wake_workers = true;
    tx.touch_batch(num);
    Ok(num)
}

/// Replaces a batch's definition, unless another client did so meanwhile.
fn revise(tx: &mut Tx<'_>, num: i64, id: &BatchId, revision: &BatchRevision) -> Result<()> {
    check_size("definition", &revision.definition)?;
    let changed = tx
        .db
        .execute(
            "UPDATE longshore_batch SET definition = ?2, threshold = ?3, workers = ?4
             WHERE num = ?1 AND definition IN (?2, ?5)",
            (
                num,
                revision.definition.as_bytes(),
                revision.threshold.as_ref().map(to_json).transpose()?,
                revision.workers,
                revision.expected.as_bytes(),
            ),
        )
        .or_translate()?;
    if changed == 1 { Ok(()) } else { Err(BatchRevision::conflict(id)) }
}

/// Updates a batch after its counters or its seal changed.
pub(crate) fn advance(tx: &mut Tx<'_>, num: i64) -> Result<()> {
    let mut batch = load(tx.db, num)?;
    let step = machine::advance(&mut batch, tx.now);
    if step.changed {
        write(tx, num, &batch)?;
    }
    tx.announce("batch", batch.id.as_str(), Some(batch.tenant.as_str()));
    if step.callback_due
        && let Some(unit) = batch.callback_unit()
    {
        send(tx, &Scope::All, &[unit], 0, Admission::Exempt)?;
    }
    Ok(())
}

/// How many batches a tenant has.
pub(crate) fn count_of(db: &Connection, tenant: &TenantId) -> Result<u64> {
    db.prepare_cached("SELECT count(*) FROM longshore_batch WHERE tenant = ?1")
        .or_translate()?
        .query_row([tenant.as_str()], |row| row.get(0))
        .or_translate()
}

fn write(tx: &mut Tx<'_>, num: i64, batch: &Batch) -> Result<()> {
    tx.db
        .prepare_cached(
            "UPDATE longshore_batch SET status = ?2, reason = ?3, started_at = ?4,
             completed_at = ?5, sealed = ?6, generation = ?7, forgiven = ?8, announced = ?9,
             paused_at = ?10, paused_ms = ?11 WHERE num = ?1",
        )
        .or_translate()?
        .execute((
            num,
            batch.status.as_str(),
            &batch.reason,
            batch.started_at.map(Timestamp::as_micros),
            batch.completed_at.map(Timestamp::as_micros),
            batch.sealed,
            batch.generation,
            batch.forgiven,
            batch.announced,
            batch.paused_at.map(Timestamp::as_micros),
            batch.paused_ms,
        ))
        .or_translate()?;
    Ok(())
}

/// A batch's row number, if it exists within the scope.
pub(crate) fn number(db: &Connection, scope: &Scope, id: &BatchId) -> Result<i64> {
    let found: Option<(i64, String)> = db
        .prepare_cached("SELECT num, tenant FROM longshore_batch WHERE name = ?1")
        .or_translate()?
        .query_row([scope.batch_id(id).as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
        .or_translate()?;
    match found {
        Some((num, tenant)) if scope.covers(&TenantId::new(&tenant).map_err(damaged)?) => Ok(num),
        _ => Err(Error::not_found("batch", id)),
    }
}

/// The batch that a query names: by its name, or by its number if no batch has that name.
pub(crate) fn number_of_query(db: &Connection, scope: &Scope, id: &BatchId) -> Result<i64> {
    let not_found = match number(db, scope, id) {
        Err(error @ Error::NotFound { .. }) => error,
        found => return found,
    };
    let Some(num) = scope.batch_number(id) else { return Err(not_found) };
    let tenant: Option<String> = db
        .prepare_cached("SELECT tenant FROM longshore_batch WHERE num = ?1")
        .or_translate()?
        .query_row([num], |row| row.get(0))
        .optional()
        .or_translate()?;
    let tenant = tenant.map(|tenant| TenantId::new(&tenant).map_err(damaged)).transpose()?;
    if tenant.is_some_and(|tenant| scope.covers(&tenant)) { Ok(num) } else { Err(not_found) }
}

/// One batch with counts and sums.
pub(crate) fn show(db: &Connection, num: i64) -> Result<Batch> {
    Ok(Batch { sums: checkpoint::sums(db, num)?, ..load(db, num)? })
}

/// The opaque data for a batch's workers.
pub(crate) fn definition(db: &Connection, scope: &Scope, id: &BatchId) -> Result<Option<Payload>> {
    let num = number(db, scope, id)?;
    let found: Option<Vec<u8>> = db
        .prepare_cached("SELECT definition FROM longshore_batch WHERE num = ?1")
        .or_translate()?
        .query_row([num], |row| row.get(0))
        .or_translate()?;
    Ok(found.map(Payload::from))
}

/// Replaces the definition if it is still `from`.
pub(crate) fn change_definition(
    tx: &mut Tx<'_>,
    scope: &Scope,
    id: &BatchId,
    from: &Payload,
    to: &Payload,
) -> Result<()> {
    let num = number(tx.db, scope, id)?;
    let changed = tx
        .db
        .prepare_cached(
            "UPDATE longshore_batch SET definition = ?3 WHERE num = ?1 AND definition IN (?2, ?3)",
        )
        .or_translate()?
        .execute((num, from.as_bytes(), to.as_bytes()))
        .or_translate()?;
    if changed == 1 { Ok(()) } else { Err(Error::definition_changed(id)) }
}

/// One batch with its counts, without its sums, which no decision needs.
pub(crate) fn load(db: &Connection, num: i64) -> Result<Batch> {
    find(db, num)?.ok_or_else(|| damaged("a unit without its batch"))
}

/// [`load`] of a batch that may have been pruned.
pub(crate) fn find(db: &Connection, num: i64) -> Result<Option<Batch>> {
    let sql = format!("SELECT {BATCH_COLUMNS} FROM longshore_batch b WHERE b.num = ?1");
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let mut rows = statement.query([num]).or_translate()?;
    rows.next().or_translate()?.map(|row| read(db, row)).transpose()
}

/// Reads [`BATCH_COLUMNS`] and sums the counters of the batch's streams.
pub(crate) fn read(db: &Connection, row: &Row<'_>) -> Result<Batch> {
    let counts = counts(db, row.get(0).or_translate()?)?;
    read_batch(&Columns(row), counts)
}

fn counts(db: &Connection, num: i64) -> Result<Counts> {
    db.prepare_cached(
        "SELECT coalesce(sum(blocked), 0), coalesce(sum(scheduled), 0), coalesce(sum(ready), 0),
         coalesce(sum(leased), 0), coalesce(sum(done), 0), coalesce(sum(failed), 0),
         coalesce(sum(cancelled), 0) FROM longshore_stream WHERE batch = ?1 AND batch <> 0",
    )
    .or_translate()?
    .query_row([num], |row| Ok(read_counts(&Columns(row), 0)))
    .or_translate()?
}

/// Opens a new generation of an ended batch, because some of its units run again.
pub(crate) fn reopen(tx: &mut Tx<'_>, id: &BatchId) -> Result<()> {
    let num = number(tx.db, &Scope::All, id)?;
    let mut batch = load(tx.db, num)?;
    machine::reopen(&mut batch)?;
    write(tx, num, &batch)
}
