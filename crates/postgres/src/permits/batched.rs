//! Coalesces concurrent requests of this process to the same pool into one server function.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use longshore_core::permits::{
    AcquireRequest, AcquireResult, PERMIT_AGING_PER_LEVEL, PermitReply, PermitRequest,
};
use longshore_core::{Coalescer, PoolName, Result};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{answer, micros, uuid, wait_ttl};
use crate::error::damaged;
use crate::row::value;
use crate::store::StoreInner;
use crate::typed_params::replace_nul;

/// The coalescer of each pool that this process has used.
#[derive(Debug, Default)]
pub(crate) struct PoolCoalescers(Mutex<HashMap<PoolName, Arc<Coalescer<PermitRequest, PermitReply>>>>);

impl PoolCoalescers {
    fn get(&self, pool: &PoolName) -> Arc<Coalescer<PermitRequest, PermitReply>> {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(jobs) = pools.get(pool) {
            return Arc::clone(jobs);
        }
        let new = || Arc::new(Coalescer::sequential());
        Arc::clone(pools.entry(pool.clone()).or_insert_with(new))
    }
}

/// Runs a request alone, or together with others to the same pool if a call is in flight.
pub(super) async fn submit(inner: &Arc<StoreInner>, pool: &PoolName, job: PermitRequest) -> PermitReply {
    let jobs = inner.pool_coalescers.get(pool);
    let (inner, pool) = (Arc::clone(inner), pool.clone());
    let call = move |jobs| {
        let (inner, pool) = (Arc::clone(&inner), pool.clone());
        async move { execute(&inner, &pool, jobs).await }
    };
    jobs.run(job, call).await.unwrap_or_else(|| Err(damaged("a pool request that did not complete")))
}

async fn execute(inner: &StoreInner, pool: &PoolName, jobs: Vec<PermitRequest>) -> Vec<PermitReply> {
    match &jobs[..] {
        [PermitRequest::Ask(ask)] => vec![super::ask_one(inner, pool, ask).await.map(Some)],
        [PermitRequest::Release { ids, late }] => {
            vec![super::release_one(inner, pool, ids, *late).await.map(|()| None)]
        }
        many => match execute_batch(inner, pool, many).await {
            Ok(done) => done,
            Err(error) => PermitRequest::fail_all(jobs.len(), error),
        },
    }
}

async fn execute_batch(
    inner: &StoreInner,
    pool: &PoolName,
    jobs: &[PermitRequest],
) -> Result<Vec<PermitReply>> {
    let released = |late| -> Vec<Uuid> {
        let released = jobs.iter().flat_map(PermitRequest::releases).filter(|(_, its)| *its == late);
        released.map(|(id, _)| uuid(id)).collect()
    };
    let asks: Vec<&AcquireRequest> = jobs.iter().filter_map(PermitRequest::acquire_request).collect();
    let rows = inner
        .query_autocommit(
            "SELECT outcome, fence, waited, ahead, retry_after, notified, request_index
             FROM longshore_permit_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
            &[
                &pool.as_str(),
                &released(false),
                &released(true),
                &column(&asks, |ask| uuid(ask.id)),
                &asks.first().map_or(0, |ask| i64::from(ask.max)),
                &column(&asks, |ask| i64::from(ask.weight)),
                &column(&asks, |ask| i16::from(ask.priority.level())),
                &column(&asks, |ask| replace_nul(&ask.owner)),
                &column(&asks, |ask| micros(ask.ttl)),
                &column(&asks, wait_ttl),
                &column(&asks, |ask| micros(PERMIT_AGING_PER_LEVEL * u32::from(ask.priority.level()))),
            ],
        )
        .await?;
    read(inner, jobs, &rows)
}

fn column<T>(asks: &[&AcquireRequest], value_of: impl Fn(&AcquireRequest) -> T) -> Vec<T> {
    asks.iter().map(|ask| value_of(ask)).collect()
}

fn read(inner: &StoreInner, jobs: &[PermitRequest], rows: &[Row]) -> Result<Vec<PermitReply>> {
    let mut answers: HashMap<i64, Result<AcquireResult>> = HashMap::new();
    for row in rows {
        inner.notifier.permit_wakeups.wake(value(row, 5)?);
        answers.insert(value(row, 6)?, answer(row));
    }
    let mut place = 0;
    Ok(PermitRequest::replies(jobs, || {
        place += 1;
        answers.remove(&place).unwrap_or_else(|| Err(damaged("a pool function that returns too few rows")))
    }))
}
