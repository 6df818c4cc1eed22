//! Coalesces concurrent requests of this process to the same pool into one server function.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use longshore_core::permits::{
    AcquireRequest, AcquireResult, PERMIT_AGING_PER_LEVEL, PermitReply, PermitRequest,
};
use longshore_core::{PermitId, PoolName, Result};
use tokio_postgres::Row;
use uuid::Uuid;

use super::registry::PoolEntry;
use super::{Outcome, micros, outcome, permit_id, uuid, uuids, wait_ttl};
use crate::error::damaged;
use crate::row::value;
use crate::store::StoreInner;
use crate::typed_params::replace_nul;

/// Runs a request alone, or together with others to the same pool if a call is in flight.
pub(super) async fn submit(inner: &Arc<StoreInner>, pool: &PoolName, job: PermitRequest) -> PermitReply {
    let entry = inner.pool_registry.entry(pool);
    let (inner, pool, target) = (Arc::clone(inner), pool.clone(), Arc::clone(&entry));
    let call = move |jobs| {
        let (inner, pool, target) = (Arc::clone(&inner), pool.clone(), Arc::clone(&target));
        async move { execute(&inner, &pool, &target, jobs).await }
    };
    entry.jobs.run(job, call).await.unwrap_or_else(|| Err(damaged("a pool request that did not complete")))
}

async fn execute(
    inner: &StoreInner,
    pool: &PoolName,
    entry: &PoolEntry,
    jobs: Vec<PermitRequest>,
) -> Vec<PermitReply> {
    let (sent_at, listening) = (Instant::now(), entry.listening());
    let rows = match &jobs[..] {
        [PermitRequest::Ask(ask)] if listening.is_empty() => acquire(inner, pool, ask).await,
        [PermitRequest::Release { ids, late: false }] if listening.is_empty() => {
            release(inner, pool, ids).await
        }
        many => batch(inner, pool, many, listening).await,
    };
    match rows.and_then(|rows| read(inner, entry, &jobs, &rows, sent_at)) {
        Ok(replies) => replies,
        Err(error) => PermitRequest::fail_all(jobs.len(), error),
    }
}

async fn acquire(inner: &StoreInner, pool: &PoolName, ask: &AcquireRequest) -> Result<Vec<Row>> {
    let sql = "SELECT id, outcome, fence, waited, ahead, retry_after
        FROM longshore_permit_acquire($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let params: [&dyn crate::typed_params::SqlParam; 9] = [
        &pool.as_str(),
        &uuid(ask.id),
        &i64::from(ask.max),
        &i64::from(ask.weight),
        &level(ask),
        &replace_nul(&ask.owner),
        &micros(ask.ttl),
        &wait_ttl(ask),
        &rank_offset(ask),
    ];
    inner.query_autocommit(sql, &params).await
}

async fn release(inner: &StoreInner, pool: &PoolName, ids: &[PermitId]) -> Result<Vec<Row>> {
    let sql = "SELECT id, outcome, fence, waited, ahead, retry_after FROM longshore_permit_release($1, $2)";
    inner.query_autocommit(sql, &[&pool.as_str(), &uuids(ids)]).await
}

async fn batch(
    inner: &StoreInner,
    pool: &PoolName,
    jobs: &[PermitRequest],
    listening: Vec<Uuid>,
) -> Result<Vec<Row>> {
    let released = |late| -> Vec<Uuid> {
        let released = jobs.iter().flat_map(PermitRequest::releases).filter(|(_, its)| *its == late);
        released.map(|(id, _)| uuid(id)).collect()
    };
    let asks: Vec<&AcquireRequest> = jobs.iter().filter_map(PermitRequest::acquire_request).collect();
    let sql = "SELECT id, outcome, fence, waited, ahead, retry_after
        FROM longshore_permit_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)";
    let params: [&dyn crate::typed_params::SqlParam; 15] = [
        &pool.as_str(),
        &released(false),
        &released(true),
        &listening,
        &column(&asks, |ask| uuid(ask.id)),
        &asks.first().map_or(0, |ask| i64::from(ask.max)),
        &column(&asks, |ask| i64::from(ask.weight)),
        &column(&asks, level),
        &column(&asks, |ask| replace_nul(&ask.owner)),
        &column(&asks, |ask| micros(ask.ttl)),
        &column(&asks, wait_ttl),
        &column(&asks, rank_offset),
        &asks.iter().map(|ask| micros(ask.ttl)).max().unwrap_or(0),
        &asks.iter().map(|ask| i64::from(ask.weight)).sum::<i64>(),
        &asks.iter().filter_map(|ask| wait_ttl(ask)).min(),
    ];
    inner.query_autocommit(sql, &params).await
}

fn column<T>(asks: &[&AcquireRequest], value_of: impl Fn(&AcquireRequest) -> T) -> Vec<T> {
    asks.iter().map(|ask| value_of(ask)).collect()
}

fn level(ask: &AcquireRequest) -> i16 {
    i16::from(ask.priority.level())
}

fn rank_offset(ask: &AcquireRequest) -> i64 {
    micros(PERMIT_AGING_PER_LEVEL * u32::from(ask.priority.level()))
}

/// Hands granted permits to listening waiters, wakes other waiters, and returns one reply per
/// request.
fn read(
    inner: &StoreInner,
    entry: &PoolEntry,
    jobs: &[PermitRequest],
    rows: &[Row],
    sent_at: Instant,
) -> Result<Vec<PermitReply>> {
    let asked = |id| jobs.iter().any(|job| job.acquire_request().is_some_and(|ask| ask.id == id));
    let mut answers: HashMap<PermitId, AcquireResult> = HashMap::new();
    let mut woken = Vec::new();
    for row in rows {
        let id: Uuid = value(row, 0)?;
        match outcome(row)? {
            Outcome::Woken => woken.push(id),
            Outcome::Answer(AcquireResult::Granted(grant)) if !asked(permit_id(id)) => {
                entry.hand_over(permit_id(id), grant, sent_at);
                woken.push(id);
            }
            Outcome::Answer(answer) => {
                answers.insert(permit_id(id), answer);
            }
        }
    }
    inner.notifier.permit_wakeups.wake(woken);
    Ok(jobs
        .iter()
        .map(|job| {
            let answer_of = |ask: &AcquireRequest| {
                answers.remove(&ask.id).ok_or_else(|| damaged("a pool function that returns too few rows"))
            };
            job.acquire_request().map(answer_of).transpose()
        })
        .collect())
}
