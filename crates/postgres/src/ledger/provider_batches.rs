//! Parked requests, and the provider batches in which they are sent.

use longshore_accounts::rows::{
    PENDING_REQUEST_COLUMNS, PROVIDER_BATCH_COLUMNS, read_pending_request, read_provider_batch,
};
use longshore_accounts::{
    BatchAnswer, CloseReason, NewPendingRequest, PendingChange, PendingCounts, PendingFilter, PendingRequest,
    ProviderBatch, ProviderBatchChange,
};
use longshore_core::{BatchId, Result, UnitId};
use uuid::Uuid;

use crate::row::{Columns, count, value};
use crate::tx::Tx;
use crate::typed_params::{unit_id, uuid};

/// Parks, answers or removes requests.
pub(crate) async fn change(tx: &mut Tx<'_>, batch: &BatchId, change: &PendingChange) -> Result<Vec<UnitId>> {
    match change {
        PendingChange::Add(items) => park(tx, batch, items).await?,
        PendingChange::Answer(deliveries) => return deliver(tx, batch, deliveries).await,
        PendingChange::Remove(custom_id) => remove(tx, batch, custom_id).await?,
    }
    Ok(Vec::new())
}

/// Parks requests that are not parked yet.
async fn park(tx: &mut Tx<'_>, batch: &BatchId, items: &[NewPendingRequest]) -> Result<()> {
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

/// Requests, longest parked first.
pub(crate) async fn list(
    tx: &mut Tx<'_>,
    batch: &BatchId,
    filter: &PendingFilter,
    limit: u32,
) -> Result<Vec<PendingRequest>> {
    let (condition, name) = match filter {
        PendingFilter::CustomId(id) => ("custom_id = $3", Some(id)),
        PendingFilter::Waiting => ("provider_batch IS NULL AND answer IS NULL AND $3 IS NULL", None),
        PendingFilter::ProviderBatch(mark) => ("provider_batch = $3", Some(mark)),
        PendingFilter::Answered => ("answer IS NOT NULL AND $3 IS NULL", None),
    };
    let sql = format!(
        "SELECT {PENDING_REQUEST_COLUMNS} FROM longshore_pending_request
         WHERE batch = $1 AND {condition} ORDER BY num LIMIT $2"
    );
    let name = name.map(String::as_str);
    let rows = tx.query(&sql, &[&batch.as_str(), &i64::from(limit), &name]).await?;
    rows.iter().map(|row| read_pending_request(&Columns(row))).collect()
}

/// Seals, ships or closes a provider batch.
pub(crate) async fn change_provider_batch(
    tx: &mut Tx<'_>,
    batch: &BatchId,
    mark: &str,
    change: &ProviderBatchChange,
) -> Result<()> {
    match change {
        ProviderBatchChange::Create(ids) => seal(tx, batch, mark, ids).await,
        ProviderBatchChange::SetProviderId(ticket) => ship(tx, batch, mark, ticket).await,
        ProviderBatchChange::Close(how) => close(tx, batch, mark, *how).await,
    }
}

/// Moves waiting requests into a new provider batch.
async fn seal(tx: &mut Tx<'_>, batch: &BatchId, mark: &str, ids: &[String]) -> Result<()> {
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

/// The provider batches that are not closed, and the number of requests.
pub(crate) async fn provider_batches(
    tx: &mut Tx<'_>,
    batch: &BatchId,
) -> Result<(Vec<ProviderBatch>, PendingCounts)> {
    let sql = format!(
        "SELECT {PROVIDER_BATCH_COLUMNS} FROM longshore_provider_batch WHERE batch = $1
         ORDER BY num"
    );
    let rows = tx.query(&sql, &[&batch.as_str()]).await?;
    let open = rows.iter().map(|row| read_provider_batch(&Columns(row))).collect::<Result<_>>()?;
    Ok((open, counts(tx, batch).await?))
}

/// Records a provider batch's ticket, the provider's id of the batch.
async fn ship(tx: &mut Tx<'_>, batch: &BatchId, mark: &str, ticket: &str) -> Result<()> {
    let sql = "UPDATE longshore_provider_batch SET provider_id = $3 WHERE batch = $1 AND name = $2";
    tx.execute(sql, &[&batch.as_str(), &mark, &ticket]).await?;
    Ok(())
}

/// Records replies. They are written one by one, so that the first of two replies to the same
/// request is kept.
async fn deliver(tx: &mut Tx<'_>, batch: &BatchId, deliveries: &[BatchAnswer]) -> Result<Vec<UnitId>> {
    let mut units = Vec::new();
    for BatchAnswer { custom_id, reply } in deliveries {
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

/// Closes a provider batch. Its unanswered requests wait again.
async fn close(tx: &mut Tx<'_>, batch: &BatchId, mark: &str, how: CloseReason) -> Result<()> {
    let tried = i64::from(how == CloseReason::NoAnswer);
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

/// How many requests wait, are shipped, and are answered.
async fn counts(tx: &mut Tx<'_>, batch: &BatchId) -> Result<PendingCounts> {
    let sql = "SELECT count(*) FILTER (WHERE provider_batch IS NULL AND answer IS NULL),
                 count(provider_batch), count(answer)
               FROM longshore_pending_request WHERE batch = $1";
    let rows = tx.query(sql, &[&batch.as_str()]).await?;
    let Some(row) = rows.first() else { return Ok(PendingCounts::default()) };
    Ok(PendingCounts { waiting: count(row, 0)?, out: count(row, 1)?, answered: count(row, 2)? })
}

/// Deletes a request.
async fn remove(tx: &mut Tx<'_>, batch: &BatchId, custom_id: &str) -> Result<()> {
    let sql = "DELETE FROM longshore_pending_request WHERE batch = $1 AND custom_id = $2";
    tx.execute(sql, &[&batch.as_str(), &custom_id]).await?;
    Ok(())
}
