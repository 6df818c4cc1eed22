//! Parked requests and their shipments to a provider's batch API.

use longshore_core::ledger::rows::{
    PENDING_REQUEST_COLUMNS, PROVIDER_BATCH_COLUMNS, read_pending_request, read_provider_batch,
};
use longshore_core::ledger::{
    Delivery, NewParked, Parked, ParkedCounts, Return, Shipment, Standing,
};
use longshore_core::sql_row::SqlRow as _;
use longshore_core::{BatchId, Payload, Result, UnitId};
use rusqlite::{Connection, OptionalExtension, Params, Row};

use crate::error::Translate;
use crate::row::Columns;
use crate::tx::Tx;

/// Parks requests that are not parked yet.
pub(crate) fn park(tx: &mut Tx<'_>, batch: &BatchId, items: &[NewParked]) -> Result<()> {
    for item in items {
        let NewParked { custom_id, unit, prompt } = item;
        execute(
            tx.db,
            "INSERT INTO longshore_pending_request (batch, custom_id, unit, prompt, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
            (batch.as_str(), custom_id, unit.as_bytes(), prompt, tx.now.as_micros()),
        )?;
    }
    Ok(())
}

/// Waiting requests, longest waiting first.
pub(crate) fn waiting(db: &Connection, batch: &BatchId, limit: u32) -> Result<Vec<Parked>> {
    let sql = format!(
        "SELECT {PENDING_REQUEST_COLUMNS} FROM longshore_pending_request
         WHERE batch = ?1 AND provider_batch IS NULL AND answer IS NULL ORDER BY num LIMIT ?2"
    );
    list(db, &sql, (batch.as_str(), limit), |row| read_pending_request(row))
}

/// Puts waiting requests into a new shipment.
pub(crate) fn seal(tx: &mut Tx<'_>, batch: &BatchId, mark: &str, ids: &[String]) -> Result<()> {
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

/// The open shipments.
pub(crate) fn shipments(db: &Connection, batch: &BatchId) -> Result<Vec<Shipment>> {
    let sql = format!(
        "SELECT {PROVIDER_BATCH_COLUMNS} FROM longshore_provider_batch WHERE batch = ?1
         ORDER BY num"
    );
    list(db, &sql, [batch.as_str()], |row| read_provider_batch(row))
}

/// The unanswered requests of a shipment.
pub(crate) fn contents(db: &Connection, batch: &BatchId, mark: &str) -> Result<Vec<Parked>> {
    let sql = format!(
        "SELECT {PENDING_REQUEST_COLUMNS} FROM longshore_pending_request
         WHERE batch = ?1 AND provider_batch = ?2 ORDER BY num"
    );
    list(db, &sql, (batch.as_str(), mark), |row| read_pending_request(row))
}

/// Stores the provider's id of a shipment.
pub(crate) fn ship(tx: &mut Tx<'_>, batch: &BatchId, mark: &str, ticket: &str) -> Result<()> {
    let sql = "UPDATE longshore_provider_batch SET provider_id = ?3 WHERE batch = ?1 AND name = ?2";
    execute(tx.db, sql, (batch.as_str(), mark, ticket)).map(drop)
}

/// Stores the first answer to each request.
pub(crate) fn deliver(
    tx: &mut Tx<'_>,
    batch: &BatchId,
    deliveries: &[Delivery],
) -> Result<Vec<UnitId>> {
    let mut units = Vec::new();
    for Delivery { custom_id, reply } in deliveries {
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

/// Deletes a shipment; its unanswered requests wait again.
pub(crate) fn close(tx: &mut Tx<'_>, batch: &BatchId, mark: &str, how: Return) -> Result<()> {
    let tried = i64::from(how == Return::Tried);
    execute(
        tx.db,
        "UPDATE longshore_pending_request SET provider_batch = NULL, attempts = attempts + ?3
         WHERE batch = ?1 AND provider_batch = ?2",
        (batch.as_str(), mark, tried),
    )?;
    let sql = "DELETE FROM longshore_provider_batch WHERE batch = ?1 AND name = ?2";
    execute(tx.db, sql, (batch.as_str(), mark)).map(drop)
}

/// The status of a request.
pub(crate) fn standing(db: &Connection, batch: &BatchId, custom_id: &str) -> Result<Standing> {
    let sql = "SELECT answer FROM longshore_pending_request WHERE batch = ?1 AND custom_id = ?2";
    let found: Option<Option<Vec<u8>>> = db
        .prepare_cached(sql)
        .or_translate()?
        .query_row((batch.as_str(), custom_id), |row| row.get(0))
        .optional()
        .or_translate()?;
    Ok(match found {
        None => Standing::Unknown,
        Some(None) => Standing::Parked,
        Some(Some(reply)) => Standing::Answered(Payload::from(reply)),
    })
}

/// Answered requests, with their answers.
pub(crate) fn answered(
    db: &Connection,
    batch: &BatchId,
    limit: u32,
) -> Result<Vec<(Parked, Payload)>> {
    let sql = format!(
        "SELECT {PENDING_REQUEST_COLUMNS}, answer FROM longshore_pending_request
         WHERE batch = ?1 AND answer IS NOT NULL ORDER BY num LIMIT ?2"
    );
    list(db, &sql, (batch.as_str(), limit), |row| {
        Ok((read_pending_request(row)?, Payload::from(row.byte_vec(5)?)))
    })
}

/// The number of requests that wait, were sent, and were answered.
pub(crate) fn counts(db: &Connection, batch: &BatchId) -> Result<ParkedCounts> {
    let sql = "SELECT count(*) FILTER (WHERE provider_batch IS NULL AND answer IS NULL),
                 count(provider_batch), count(answer)
               FROM longshore_pending_request WHERE batch = ?1";
    let read = |row: &Row<'_>| {
        Ok(ParkedCounts { waiting: row.get(0)?, out: row.get(1)?, answered: row.get(2)? })
    };
    db.prepare_cached(sql).or_translate()?.query_row([batch.as_str()], read).or_translate()
}

/// Deletes a request.
pub(crate) fn unpark(tx: &mut Tx<'_>, batch: &BatchId, custom_id: &str) -> Result<()> {
    let sql = "DELETE FROM longshore_pending_request WHERE batch = ?1 AND custom_id = ?2";
    execute(tx.db, sql, (batch.as_str(), custom_id)).map(drop)
}

fn execute(db: &Connection, sql: &str, params: impl Params) -> Result<usize> {
    db.prepare_cached(sql).or_translate()?.execute(params).or_translate()
}

fn list<T>(
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
