//! Parked requests, and the shipments that send them to a provider as one batch.

use longshore_core::ledger::rows::{
    PENDING_REQUEST_COLUMNS, PROVIDER_BATCH_COLUMNS, read_pending_request, read_provider_batch,
};
use longshore_core::ledger::{
    Delivery, NewParked, Parked, ParkedCounts, Return, Shipment, Standing,
};
use longshore_core::{BatchId, Payload, Result, UnitId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::row::{Columns, count, value};
use crate::tx::Tx;
use crate::typed_params::{unit_id, uuid};

/// Parks requests that are not parked yet.
pub(crate) async fn park(tx: &mut Tx<'_>, batch: &BatchId, items: &[NewParked]) -> Result<()> {
    let ids: Vec<&str> = items.iter().map(|item| item.custom_id.as_str()).collect();
    let units: Vec<Uuid> = items.iter().map(|item| uuid(item.unit)).collect();
    let prompts: Vec<&[u8]> = items.iter().map(|item| item.prompt.as_bytes()).collect();
    tx.execute(
        "INSERT INTO longshore_pending_request (batch, custom_id, unit, prompt, created_at)
         SELECT $1, g.id, g.unit, g.prompt, $5
         FROM unnest($2, $3, $4) WITH ORDINALITY AS g (id, unit, prompt, at) ORDER BY g.at
         ON CONFLICT DO NOTHING",
        &[&batch.as_str(), &ids, &units, &prompts, &tx.now.as_micros()],
    )
    .await?;
    Ok(())
}

/// Waiting requests, oldest first.
pub(crate) async fn waiting(tx: &mut Tx<'_>, batch: &BatchId, limit: u32) -> Result<Vec<Parked>> {
    let sql = format!(
        "SELECT {PENDING_REQUEST_COLUMNS} FROM longshore_pending_request
         WHERE batch = $1 AND provider_batch IS NULL AND answer IS NULL ORDER BY num LIMIT $2"
    );
    let rows = tx.query(&sql, &[&batch.as_str(), &i64::from(limit)]).await?;
    rows.iter().map(|row| read_pending_request(&Columns(row))).collect()
}

/// Moves waiting requests into a new shipment.
pub(crate) async fn seal(
    tx: &mut Tx<'_>,
    batch: &BatchId,
    mark: &str,
    ids: &[String],
) -> Result<()> {
    let new = tx
        .execute(
            "INSERT INTO longshore_provider_batch (batch, name, created_at) VALUES ($1, $2, $3)
             ON CONFLICT DO NOTHING",
            &[&batch.as_str(), &mark, &tx.now.as_micros()],
        )
        .await?;
    if new == 0 {
        return Ok(());
    }
    tx.execute(
        "UPDATE longshore_pending_request SET provider_batch = $3
         WHERE batch = $1 AND custom_id = ANY($2) AND provider_batch IS NULL AND answer IS NULL",
        &[&batch.as_str(), &ids.to_vec(), &mark],
    )
    .await?;
    Ok(())
}

/// The shipments that are not closed.
pub(crate) async fn shipments(tx: &mut Tx<'_>, batch: &BatchId) -> Result<Vec<Shipment>> {
    let sql = format!(
        "SELECT {PROVIDER_BATCH_COLUMNS} FROM longshore_provider_batch WHERE batch = $1
         ORDER BY num"
    );
    let rows = tx.query(&sql, &[&batch.as_str()]).await?;
    rows.iter().map(|row| read_provider_batch(&Columns(row))).collect()
}

/// The unanswered requests of a shipment.
pub(crate) async fn contents(tx: &mut Tx<'_>, batch: &BatchId, mark: &str) -> Result<Vec<Parked>> {
    let sql = format!(
        "SELECT {PENDING_REQUEST_COLUMNS} FROM longshore_pending_request
         WHERE batch = $1 AND provider_batch = $2 ORDER BY num"
    );
    let rows = tx.query(&sql, &[&batch.as_str(), &mark]).await?;
    rows.iter().map(|row| read_pending_request(&Columns(row))).collect()
}

/// Records a shipment's ticket, the provider's id of the batch.
pub(crate) async fn ship(tx: &mut Tx<'_>, batch: &BatchId, mark: &str, ticket: &str) -> Result<()> {
    let sql = "UPDATE longshore_provider_batch SET provider_id = $3 WHERE batch = $1 AND name = $2";
    tx.execute(sql, &[&batch.as_str(), &mark, &ticket]).await?;
    Ok(())
}

/// Records replies. They are written one by one, so that the first of two replies to the same
/// request is kept.
pub(crate) async fn deliver(
    tx: &mut Tx<'_>,
    batch: &BatchId,
    deliveries: &[Delivery],
) -> Result<Vec<UnitId>> {
    let mut units = Vec::new();
    for Delivery { custom_id, reply } in deliveries {
        let sql = "UPDATE longshore_pending_request SET answer = coalesce(answer, $3),
                   provider_batch = NULL
             WHERE batch = $1 AND custom_id = $2 RETURNING unit";
        let params = (batch.as_str(), custom_id.as_str(), reply.as_bytes());
        if let Some(row) = tx.query_opt(sql, &[&params.0, &params.1, &params.2]).await? {
            units.push(unit_id(value(&row, 0)?));
        }
    }
    Ok(units)
}

/// Closes a shipment. Its unanswered requests wait again.
pub(crate) async fn close(tx: &mut Tx<'_>, batch: &BatchId, mark: &str, how: Return) -> Result<()> {
    let tried = i64::from(how == Return::Tried);
    tx.execute(
        "UPDATE longshore_pending_request SET provider_batch = NULL, attempts = attempts + $3
         WHERE batch = $1 AND provider_batch = $2",
        &[&batch.as_str(), &mark, &tried],
    )
    .await?;
    let sql = "DELETE FROM longshore_provider_batch WHERE batch = $1 AND name = $2";
    tx.execute(sql, &[&batch.as_str(), &mark]).await?;
    Ok(())
}

/// The status of a request.
pub(crate) async fn standing(
    tx: &mut Tx<'_>,
    batch: &BatchId,
    custom_id: &str,
) -> Result<Standing> {
    let sql = "SELECT answer FROM longshore_pending_request WHERE batch = $1 AND custom_id = $2";
    let Some(row) = tx.query_opt(sql, &[&batch.as_str(), &custom_id]).await? else {
        return Ok(Standing::Unknown);
    };
    let reply: Option<Vec<u8>> = value(&row, 0)?;
    Ok(reply.map_or(Standing::Parked, |reply| Standing::Answered(Payload::from(reply))))
}

/// Answered requests with their replies.
pub(crate) async fn answered(
    tx: &mut Tx<'_>,
    batch: &BatchId,
    limit: u32,
) -> Result<Vec<(Parked, Payload)>> {
    let sql = format!(
        "SELECT {PENDING_REQUEST_COLUMNS}, answer FROM longshore_pending_request
         WHERE batch = $1 AND answer IS NOT NULL ORDER BY num LIMIT $2"
    );
    let read_answered = |row: &Row| {
        let reply: Vec<u8> = value(row, 5)?;
        Ok((read_pending_request(&Columns(row))?, Payload::from(reply)))
    };
    let rows = tx.query(&sql, &[&batch.as_str(), &i64::from(limit)]).await?;
    rows.iter().map(read_answered).collect()
}

/// How many requests wait, are shipped, and are answered.
pub(crate) async fn counts(tx: &mut Tx<'_>, batch: &BatchId) -> Result<ParkedCounts> {
    let sql = "SELECT count(*) FILTER (WHERE provider_batch IS NULL AND answer IS NULL),
                 count(provider_batch), count(answer)
               FROM longshore_pending_request WHERE batch = $1";
    let rows = tx.query(sql, &[&batch.as_str()]).await?;
    let Some(row) = rows.first() else { return Ok(ParkedCounts::default()) };
    Ok(ParkedCounts { waiting: count(row, 0)?, out: count(row, 1)?, answered: count(row, 2)? })
}

/// Deletes a request.
pub(crate) async fn unpark(tx: &mut Tx<'_>, batch: &BatchId, custom_id: &str) -> Result<()> {
    let sql = "DELETE FROM longshore_pending_request WHERE batch = $1 AND custom_id = $2";
    tx.execute(sql, &[&batch.as_str(), &custom_id]).await?;
    Ok(())
}
