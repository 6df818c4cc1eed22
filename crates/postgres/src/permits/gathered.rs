//! What many of a process ask of a pool at once: one function for all of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use longshore_core::permits::{Answer, Ask, Done, Job, STEP};
use longshore_core::{Gather, PoolName, Result};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{answer, keeps, micros, uuid};
use crate::error::damaged;
use crate::param::words;
use crate::row::value;
use crate::store::Shared;

/// The pools that this process has met, and what is asked of each while something is on its way.
#[derive(Debug, Default)]
pub(crate) struct Pools(Mutex<HashMap<PoolName, Arc<Gather<Job, Done>>>>);

impl Pools {
    fn jobs(&self, pool: &PoolName) -> Arc<Gather<Job, Done>> {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(jobs) = pools.get(pool) {
            return Arc::clone(jobs);
        }
        let new = || Arc::new(Gather::one_by_one());
        Arc::clone(pools.entry(pool.clone()).or_insert_with(new))
    }
}

/// Does it alone, or with what others want of the same pool meanwhile.
pub(super) async fn have_done(shared: &Arc<Shared>, pool: &PoolName, job: Job) -> Done {
    let jobs = shared.pools.jobs(pool);
    let (shared, pool) = (Arc::clone(shared), pool.clone());
    let call = move |jobs| {
        let (shared, pool) = (Arc::clone(&shared), pool.clone());
        async move { carry(&shared, &pool, jobs).await }
    };
    jobs.run(job, call).await.unwrap_or_else(|| Err(damaged("it came to no end")))
}

async fn carry(shared: &Shared, pool: &PoolName, jobs: Vec<Job>) -> Vec<Done> {
    match &jobs[..] {
        [Job::Ask(ask)] => vec![super::ask_alone(shared, pool, ask).await.map(Some)],
        [Job::Release { ids, late }] => {
            vec![super::release_alone(shared, pool, ids, *late).await.map(|()| None)]
        }
        many => match carry_many(shared, pool, many).await {
            Ok(done) => done,
            Err(error) => Job::failed(jobs.len(), error),
        },
    }
}

async fn carry_many(shared: &Shared, pool: &PoolName, jobs: &[Job]) -> Result<Vec<Done>> {
    let back = |late| -> Vec<Uuid> {
        let back = jobs.iter().flat_map(Job::back).filter(|(_, its)| *its == late);
        back.map(|(id, _)| uuid(id)).collect()
    };
    let asks: Vec<&Ask> = jobs.iter().filter_map(Job::ask).collect();
    let rows = shared
        .ask(
            "SELECT answer, fence, waited, before, look, told, place
             FROM longshore_permit_gathered($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
            &[
                &pool.as_str(),
                &back(false),
                &back(true),
                &each(&asks, |ask| uuid(ask.id)),
                &asks.first().map_or(0, |ask| i64::from(ask.max)),
                &each(&asks, |ask| i64::from(ask.weight)),
                &each(&asks, |ask| i16::from(ask.priority.level())),
                &each(&asks, |ask| words(&ask.owner)),
                &each(&asks, |ask| micros(ask.ttl)),
                &each(&asks, keeps),
                &each(&asks, |ask| micros(STEP * u32::from(ask.priority.level()))),
            ],
        )
        .await?;
    read(shared, jobs, &rows)
}

fn each<T>(asks: &[&Ask], what: impl Fn(&Ask) -> T) -> Vec<T> {
    asks.iter().map(|ask| what(ask)).collect()
}

fn read(shared: &Shared, jobs: &[Job], rows: &[Row]) -> Result<Vec<Done>> {
    let mut answers: HashMap<i64, Result<Answer>> = HashMap::new();
    for row in rows {
        shared.feed.hints.tell(value(row, 5)?);
        answers.insert(value(row, 6)?, answer(row));
    }
    let mut place = 0;
    Ok(Job::done(jobs, || {
        place += 1;
        answers.remove(&place).unwrap_or_else(|| Err(damaged("too few answers")))
    }))
}
