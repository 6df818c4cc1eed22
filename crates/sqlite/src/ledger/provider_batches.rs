//! Parked requests, and the provider batches in which they are sent.

use longshore_accounts::rows::{
    PENDING_REQUEST_COLUMNS, PROVIDER_BATCH_COLUMNS, read_pending_request, read_provider_batch,
};
use longshore_accounts::{
    BatchAnswer, CloseReason, NewPendingRequest, PendingChange, PendingCounts, PendingFilter, PendingRequest,
    ProviderBatch, ProviderBatchChange,
};
use longshore_core::{BatchId, Result, UnitId};
use rusqlite::{Connection, OptionalExtension, Params, Row};

use crate::error::Translate;
use crate::row::Columns;
use crate::tx::Tx;

/// Parks, answers or removes requests.
pub(crate) fn change(tx: &mut Tx<'_>, batch: &BatchId, change: &PendingChange) -> Result<Vec<UnitId>> {
    match change {
        PendingChange::Add(items) => park(tx, batch, items)?,
        PendingChange::Answer(deliveries) => return deliver(tx, batch, deliveries),
        PendingChange::Remove(custom_id) => remove(tx, batch, custom_id)?,
    }
    Ok(Vec::new())
}

/// Parks requests that are not parked yet.
fn park(tx: &mut Tx<'_>, batch: &BatchId, items: &[NewPendingRequest]) -> Result<()> {
    for item in items {
        let NewPendingRequest { custom_id, unit, prompt } = item;
        execute(
            tx.db,
            "INSERT INTO longshore_pending_request (batch, custom_id, unit, prompt, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
            (batch.as_str(), custom_id, unit.as_bytes(), prompt, tx.now.as_micros()),
        )?;
    }
    Ok(())
}

/// Requests, longest parked first.
pub(crate) fn list(
    db: &Connection,
    batch: &BatchId,
    filter: &PendingFilter,
    limit: u32,
) -> Result<Vec<PendingRequest>> {
    let (condition, name) = match filter {
        PendingFilter::CustomId(id) => ("custom_id = ?3", Some(id)),
        PendingFilter::Waiting => ("provider_batch IS NULL AND answer IS NULL AND ?3 IS NULL", None),
        PendingFilter::ProviderBatch(mark) => ("provider_batch = ?3", Some(mark)),
        PendingFilter::Answered => ("answer IS NOT NULL AND ?3 IS NULL", None),
    };
    let sql = format!(
        "SELECT {PENDING_REQUEST_COLUMNS} FROM longshore_pending_request
         WHERE batch = ?1 AND {condition} ORDER BY num LIMIT ?2"
    );
    rows(db, &sql, (batch.as_str(), limit, name), |row| read_pending_request(row))
}

/// Seals, ships or closes a provider batch.
pub(crate) fn change_provider_batch(
    tx: &mut Tx<'_>,
    batch: &BatchId,
    mark: &str,
    change: &ProviderBatchChange,
) -> Result<()> {
    match change {
        ProviderBatchChange::Create(ids) => seal(tx, batch, mark, ids),
        ProviderBatchChange::SetProviderId(ticket) => ship(tx, batch, mark, ticket),
        ProviderBatchChange::Close(how) => close(tx, batch, mark, *how),
    }
}

/// Puts waiting requests into a new provider batch.
fn seal(tx: &mut Tx<'_>, batch: &BatchId, mark: &str, ids: &[String]) -> Result<()> {
    let new = execute(
        tx.db,
        "INSERT INTO longshore_provider_batch (batch, name, created_at) VALUES (?1, ?2, ?3)
         ON CONFLICT DO NOTHING",
        (batch.as_str(), mark, tx.now.as_micros()),
    )?;
    if new == 0 {
        return Ok(());
    }
    for id in ids {
        execute(
            tx.db,
            "UPDATE longshore_pending_request SET provider_batch = ?3
             WHERE batch = ?1 AND custom_id = ?2 AND provider_batch IS NULL AND answer IS NULL",
            (batch.as_str(), id, mark),
        )?;
    }
    Ok(())
}

/// The open provider batches, and the number of requests.
pub(crate) fn provider_batches(
    db: &Connection,
    batch: &BatchId,
) -> Result<(Vec<ProviderBatch>, PendingCounts)> {
    let sql = format!(
        "SELECT {PROVIDER_BATCH_COLUMNS} FROM longshore_provider_batch WHERE batch = ?1
         ORDER BY num"
    );
    let open = rows(db, &sql, [batch.as_str()], |row| read_provider_batch(row))?;
    Ok((open, counts(db, batch)?))
}

/// Stores the provider's id of a provider batch.
fn ship(tx: &mut Tx<'_>, batch: &BatchId, mark: &str, ticket: &str) -> Result<()> {
    let sql = "UPDATE longshore_provider_batch SET provider_id = ?3 WHERE batch = ?1 AND name = ?2";
    execute(tx.db, sql, (batch.as_str(), mark, ticket)).map(drop)
}

/// Stores the first answer to each request.
fn deliver(tx: &mut Tx<'_>, batch: &BatchId, deliveries: &[BatchAnswer]) -> Result<Vec<UnitId>> {
    let mut units = Vec::new();
    for BatchAnswer { custom_id, reply } in deliveries {
        let unit = tx
            .db
            .prepare_cached(
                "UPDATE longshore_pending_request SET answer = coalesce(answer, ?3),
                 provider_batch = NULL
                 WHERE batch = ?1 AND custom_id = ?2 RETURNING unit",
            )
            .or_translate()?
            .query_row((batch.as_str(), custom_id, reply.as_bytes()), |row| row.get(0))
            .optional()
            .or_translate()?;
        units.extend(unit.map(UnitId::from_bytes));
    }
    Ok(units)
}

/// Deletes a provider batch; its unanswered requests wait again.
fn close(tx: &mut Tx<'_>, batch: &BatchId, mark: &str, how: CloseReason) -> Result<()> {
    let tried = i64::from(how == CloseReason::NoAnswer);
    execute(
        tx.db,
        "UPDATE longshore_pending_request SET provider_batch = NULL, attempts = attempts + ?3
         WHERE batch = ?1 AND provider_batch = ?2",
        (batch.as_str(), mark, tried),
    )?;
    let sql = "DELETE FROM longshore_provider_batch WHERE batch = ?1 AND name = ?2";
    execute(tx.db, sql, (batch.as_str(), mark)).map(drop)
}

/// The number of requests that wait, were sent, and were answered.
fn counts(db: &Connection, batch: &BatchId) -> Result<PendingCounts> {
    let sql = "SELECT count(*) FILTER (WHERE provider_batch IS NULL AND answer IS NULL),
                 count(provider_batch), count(answer)
               FROM longshore_pending_request WHERE batch = ?1";
    let read =
        |row: &Row<'_>| Ok(PendingCounts { waiting: row.get(0)?, out: row.get(1)?, answered: row.get(2)? });
    db.prepare_cached(sql).or_translate()?.query_row([batch.as_str()], read).or_translate()
}

/// Deletes a request.
fn remove(tx: &mut Tx<'_>, batch: &BatchId, custom_id: &str) -> Result<()> {
    let sql = "DELETE FROM longshore_pending_request WHERE batch = ?1 AND custom_id = ?2";
    execute(tx.db, sql, (batch.as_str(), custom_id)).map(drop)
}

fn execute(db: &Connection, sql: &str, params: impl Params) -> Result<usize> {
    db.prepare_cached(sql).or_translate()?.execute(params).or_translate()
}

fn rows<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl Fn(&Columns<'_, '_>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut statement = db.prepare_cached(sql).or_translate()?;
    let mut rows = statement.query(params).or_translate()?;
    let mut items = Vec::new();
    while let Some(row) = rows.next().or_translate()? {
        items.push(read(&Columns(row))?);
    }
    Ok(items)
}
