//! Bounded pools: each operation is one server function (`migrations/001_permit_functions.sql`) in
//! autocommit mode. Requests that arrive while a call is in flight are sent together by the next
//! call (`longshore_permit_batch`).
//!
//! This module reads the replies and wakes the requests that they name ([`PermitWakeups`]).

mod batched;
mod stats;
mod wakeups;

use std::sync::Arc;
use std::time::Duration;

use longshore_core::permits::{
    AcquireRequest, AcquireResult, IfFull, PERMIT_AGING_PER_LEVEL, PermitGrant, PermitRequest, PoolChange,
};
use longshore_core::{Error, PermitId, PoolName, Result};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::damaged;
use crate::row::value;
use crate::store::StoreInner;
use crate::typed_params::replace_nul;
pub(crate) use batched::PoolCoalescers;
pub(crate) use stats::list;
pub(crate) use wakeups::PermitWakeups;

fn uuid(id: PermitId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

fn uuids(ids: &[PermitId]) -> Vec<Uuid> {
    ids.iter().map(|id| uuid(*id)).collect()
}

fn permit_id(uuid: Uuid) -> PermitId {
    PermitId::from_bytes(*uuid.as_bytes())
}

fn micros(duration: Duration) -> i64 {
    // A century is long enough, and leaves room for adding the current time.
    const MAX_MICROS: i64 = 100 * 365 * 86_400 * 1_000_000;
    i64::try_from(duration.as_micros()).unwrap_or(MAX_MICROS).min(MAX_MICROS)
}

fn duration(row: &Row, column: usize) -> Result<Duration> {
    Ok(Duration::from_micros(u64::try_from(value::<i64>(row, column)?).unwrap_or(0)))
}

fn number<T: TryFrom<i64>>(row: &Row, column: usize) -> Result<T> {
    let found: i64 = value(row, column)?;
    T::try_from(found).map_err(|_| damaged(format!("a pool with the invalid number {found}")))
}

/// Requests a permit.
pub(crate) async fn ask(
    inner: &Arc<StoreInner>,
    pool: &PoolName,
    ask: &AcquireRequest,
) -> Result<AcquireResult> {
    if ask.weight == 0 {
        return Err(Error::Invalid("a permit weighs at least 1".to_owned()));
    }
    let done = batched::submit(inner, pool, PermitRequest::Ask(ask.clone())).await?;
    done.ok_or_else(|| damaged("a pool function that returns no row"))
}

/// How long a request keeps its place in the queue; `None` if it does not wait.
fn wait_ttl(ask: &AcquireRequest) -> Option<i64> {
    match ask.if_full {
        IfFull::Fail => None,
        IfFull::Wait(wait_ttl) => Some(micros(wait_ttl)),
    }
}

async fn ask_one(inner: &StoreInner, pool: &PoolName, ask: &AcquireRequest) -> Result<AcquireResult> {
    let level = ask.priority.level();
    let row = one(
        inner,
        "SELECT outcome, fence, waited, ahead, retry_after, notified
         FROM longshore_permit_acquire($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        &[
            &pool.as_str(),
            &uuid(ask.id),
            &i64::from(ask.max),
            &i64::from(ask.weight),
            &i16::from(level),
            &replace_nul(&ask.owner),
            &micros(ask.ttl),
            &wait_ttl(ask),
            &micros(PERMIT_AGING_PER_LEVEL * u32::from(level)),
        ],
    )
    .await?;
    inner.notifier.permit_wakeups.wake(value(&row, 5)?);
    answer(&row)
}

fn answer(row: &Row) -> Result<AcquireResult> {
    Ok(match value::<i32>(row, 0)? {
        0 => AcquireResult::Granted(PermitGrant { fence: number(row, 1)?, waited: duration(row, 2)? }),
        1 => AcquireResult::Waiting { position: number(row, 3)?, retry_after: duration(row, 4)? },
        2 => AcquireResult::Full,
        _ => AcquireResult::TooHeavy { max: number(row, 1)? },
    })
}

async fn one(inner: &StoreInner, sql: &str, params: &[&dyn crate::typed_params::SqlParam]) -> Result<Row> {
    let rows = inner.query_autocommit(sql, params).await?;
    rows.into_iter().next().ok_or_else(|| damaged("a pool function that returns no row"))
}

/// Runs a function that returns only the requests to wake.
async fn run_and_wake(
    inner: &StoreInner,
    sql: &str,
    params: &[&dyn crate::typed_params::SqlParam],
) -> Result<()> {
    let row = one(inner, sql, params).await?;
    inner.notifier.permit_wakeups.wake(value(&row, 0)?);
    Ok(())
}

/// Renews leases, and returns the permits that are not held.
pub(crate) async fn extend(
    inner: &StoreInner,
    pool: &PoolName,
    ids: &[PermitId],
    ttl: Duration,
) -> Result<Vec<PermitId>> {
    let sql = "SELECT lost, notified FROM longshore_permit_extend($1, $2, $3)";
    let row = one(inner, sql, &[&pool.as_str(), &uuids(ids), &micros(ttl)]).await?;
    inner.notifier.permit_wakeups.wake(value(&row, 1)?);
    Ok(value::<Vec<Uuid>>(&row, 0)?.into_iter().map(permit_id).collect())
}

/// Releases permits, or removes their requests from the queue.
pub(crate) async fn release(
    inner: &Arc<StoreInner>,
    pool: &PoolName,
    ids: &[PermitId],
    timed_out: bool,
) -> Result<()> {
    inner.notifier.permit_wakeups.close(ids).await;
    let job = PermitRequest::Release { ids: ids.to_vec(), late: timed_out };
    batched::submit(inner, pool, job).await.map(drop)
}

async fn release_one(inner: &StoreInner, pool: &PoolName, ids: &[PermitId], late: bool) -> Result<()> {
    let sql = "SELECT longshore_permit_release($1, $2, $3)";
    run_and_wake(inner, sql, &[&pool.as_str(), &uuids(ids), &late]).await
}

/// Creates, resizes or resets a pool.
pub(crate) async fn change(inner: &StoreInner, pool: &PoolName, change: PoolChange) -> Result<Option<u32>> {
    match change {
        PoolChange::Create(max) => return init(inner, pool, max).await,
        PoolChange::Resize(max) => {
            let sql = "SELECT longshore_permit_resize($1, $2)";
            run_and_wake(inner, sql, &[&pool.as_str(), &i64::from(max)]).await?;
        }
        PoolChange::Reset => {
            let sql = "SELECT longshore_permit_reset($1)";
            run_and_wake(inner, sql, &[&pool.as_str()]).await?;
        }
    }
    Ok(None)
}

/// Creates a pool. If it exists, returns its maximum.
async fn init(inner: &StoreInner, pool: &PoolName, max: u32) -> Result<Option<u32>> {
    let sql = "WITH made AS (INSERT INTO longshore_bounded_pool (name, max_weight) VALUES ($1, $2)
        ON CONFLICT DO NOTHING RETURNING 1)
        SELECT EXISTS (SELECT FROM made), (SELECT p.max_weight FROM longshore_bounded_pool p WHERE
        p.name = $1)";
    loop {
        let row = one(inner, sql, &[&pool.as_str(), &i64::from(max)]).await?;
        if value(&row, 0)? {
            return Ok(None);
        }
        // If another transaction created it after this statement began, it is not visible yet: the
        // next statement sees it.
        if let Some(max) = value::<Option<i64>>(&row, 1)? {
            return u32::try_from(max).map(Some).map_err(|_| damaged("an invalid maximum of a pool"));
        }
    }
}

/// Whether an alert may be sent now. If so, records it.
pub(crate) async fn may_alert(
    inner: &StoreInner,
    pool: &PoolName,
    alert: &str,
    every: Duration,
) -> Result<bool> {
    let sql = "INSERT INTO longshore_pool_alert AS a (pool, alert, muted_until)
        VALUES ($1, $2, longshore_now_micros() + $3)
        ON CONFLICT (pool, alert) DO UPDATE SET muted_until = excluded.muted_until
        WHERE a.muted_until <= excluded.muted_until - $3 RETURNING 1";
    let recorded =
        inner.query_autocommit(sql, &[&pool.as_str(), &replace_nul(alert), &micros(every)]).await?;
    Ok(!recorded.is_empty())
}
