//! Bounded pools: each operation is one server function (`migrations/001_permit_functions.sql`) in
//! autocommit mode. Requests that arrive while a call is in flight are sent together by the next
//! call (`longshore_permit_batch`).
//!
//! A reply may also grant permits to other waiters of this process ([`PoolRegistry`]), and names the
//! waiters to wake ([`PermitWakeups`]).

mod batched;
mod registry;
mod stats;
mod wakeups;

use std::sync::Arc;
use std::time::Duration;

use longshore_core::permits::{
    AcquireRequest, AcquireResult, IfFull, PermitGrant, PermitRequest, PoolChange,
};
use longshore_core::{Error, PermitId, PoolName, Result};
use longshore_postgres_url::Pool;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::damaged;
use crate::row::value;
use crate::store::StoreInner;
use crate::typed_params::replace_nul;
pub(crate) use registry::PoolRegistry;
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

/// What a row of a pool function says about a request.
enum Outcome {
    Answer(AcquireResult),
    /// The request waits, and should be repeated.
    Woken,
}

fn outcome(row: &Row) -> Result<Outcome> {
    Ok(Outcome::Answer(match value::<i32>(row, 1)? {
        0 => AcquireResult::Granted(PermitGrant { fence: number(row, 2)?, waited: duration(row, 3)? }),
        1 => AcquireResult::Waiting { position: number(row, 4)?, retry_after: duration(row, 5)? },
        2 => AcquireResult::Full,
        3 => AcquireResult::TooHeavy { max: number(row, 2)? },
        WOKEN => return Ok(Outcome::Woken),
        other => return Err(damaged(format!("a pool function that returns the unknown outcome {other}"))),
    }))
}

/// The outcome of a waiter to wake.
const WOKEN: i32 = 4;

/// Runs a function that returns ids with outcomes. Wakes waiters, and returns the other ids.
async fn run_and_wake(
    inner: &StoreInner,
    connections: &Pool,
    sql: &str,
    params: &[&dyn crate::typed_params::SqlParam],
) -> Result<Vec<PermitId>> {
    let (mut woken, mut others) = (Vec::new(), Vec::new());
    for row in inner.query_autocommit_on(connections, sql, params).await? {
        let ids = if value::<i32>(&row, 1)? == WOKEN { &mut woken } else { &mut others };
        ids.push(value(&row, 0)?);
    }
    inner.notifier.permit_wakeups.wake(woken);
    Ok(others.into_iter().map(permit_id).collect())
}

/// Renews leases, and returns the permits that are not held.
pub(crate) async fn extend(
    inner: &StoreInner,
    connections: &Pool,
    pool: &PoolName,
    ids: &[PermitId],
    ttl: Duration,
) -> Result<Vec<PermitId>> {
    let sql = "SELECT id, outcome FROM longshore_permit_extend($1, $2, $3)";
    run_and_wake(inner, connections, sql, &[&pool.as_str(), &uuids(ids), &micros(ttl)]).await
}

/// Releases permits, or removes their requests from the queue.
pub(crate) async fn release(
    inner: &Arc<StoreInner>,
    pool: &PoolName,
    ids: &[PermitId],
    timed_out: bool,
) -> Result<()> {
    let entry = inner.pool_registry.entry(pool);
    for id in ids {
        entry.take_grant(*id);
    }
    inner.notifier.permit_wakeups.close(ids).await;
    let job = PermitRequest::Release { ids: ids.to_vec(), late: timed_out };
    batched::submit(inner, pool, job).await.map(drop)
}

/// Creates, resizes or resets a pool.
pub(crate) async fn change(inner: &StoreInner, pool: &PoolName, change: PoolChange) -> Result<Option<u32>> {
    match change {
        PoolChange::Create(max) => return create(inner, pool, max).await,
        PoolChange::Resize(max) => {
            let sql = "SELECT id, outcome FROM longshore_permit_resize($1, $2)";
            run_and_wake(inner, &inner.pool, sql, &[&pool.as_str(), &i64::from(max)]).await?;
        }
        PoolChange::Reset => {
            let sql = "SELECT id, outcome FROM longshore_permit_reset($1)";
            run_and_wake(inner, &inner.pool, sql, &[&pool.as_str()]).await?;
        }
    }
    Ok(None)
}

/// Creates a pool. If it exists, returns its maximum.
async fn create(inner: &StoreInner, pool: &PoolName, max: u32) -> Result<Option<u32>> {
    let sql = "SELECT longshore_permit_create($1, $2)";
    let rows = inner.query_autocommit(sql, &[&pool.as_str(), &i64::from(max)]).await?;
    let row = rows.first().ok_or_else(|| damaged("a pool function that returns no row"))?;
    let max: Option<i64> = value(row, 0)?;
    max.map(u32::try_from).transpose().map_err(|_| damaged("an invalid maximum of a pool"))
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
