//! Bounded pools.

use longshore::permits::{Holder, PoolStats, Waiter};
use longshore::store::Page;
use longshore::{Error, PoolName};
use serde::{Deserialize, Serialize};

use crate::call::{Call, json};
use crate::house::House;
use crate::table::Answer;

/// A pool as programs read it.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    pub(crate) pool: PoolName,
    pub(crate) max: u32,
    pub(crate) in_use: u32,
    pub(crate) available: u32,
    pub(crate) acquired: u64,
    pub(crate) timeouts: u64,
    pub(crate) expired: u64,
    pub(crate) wait_p50_seconds: Option<f64>,
    pub(crate) wait_p95_seconds: Option<f64>,
    pub(crate) holders: Vec<Held>,
    pub(crate) waiting: Vec<Waits>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Held {
    pub(crate) owner: String,
    pub(crate) weight: u32,
    pub(crate) fence: u64,
    pub(crate) held_seconds: f64,
    pub(crate) left_seconds: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Waits {
    pub(crate) owner: String,
    pub(crate) weight: u32,
    pub(crate) waited_seconds: f64,
}

impl From<Holder> for Held {
    fn from(holder: Holder) -> Self {
        Self {
            owner: holder.owner,
            weight: holder.weight,
            fence: holder.fence,
            held_seconds: holder.held.as_secs_f64(),
            left_seconds: holder.left.as_secs_f64(),
        }
    }
}

impl From<Waiter> for Waits {
    fn from(waiter: Waiter) -> Self {
        let waited_seconds = waiter.waited.as_secs_f64();
        Self { owner: waiter.owner, weight: waiter.weight, waited_seconds }
    }
}

impl Shown {
    fn new(pool: PoolName, stats: PoolStats) -> Self {
        let wait = |share| stats.waits.percentile(share).map(|wait| wait.as_secs_f64());
        Self {
            pool,
            max: stats.max,
            in_use: stats.in_use,
            available: stats.available(),
            acquired: stats.acquired,
            timeouts: stats.timeouts,
            expired: stats.expired,
            wait_p50_seconds: wait(0.5),
            wait_p95_seconds: wait(0.95),
            holders: stats.holders.into_iter().map(Held::from).collect(),
            waiting: stats.waiting.into_iter().map(Waits::from).collect(),
        }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// Pools that are known, and those of the configuration that nobody has used yet.
pub(crate) async fn gather(house: &House) -> longshore::Result<Vec<Shown>> {
    let mut names = house.permits.pools().await?;
    names.extend(house.pools.keys().cloned());
    names.sort();
    names.dedup();
    let mut shown = Vec::with_capacity(names.len());
    for name in names {
        let stats = match (house.permits.stats(&name).await?, house.pools.get(&name)) {
            (Some(stats), _) => stats,
            (None, Some(max)) => PoolStats { max: *max, ..PoolStats::default() },
            // Between its name and its figures somebody may have removed it.
            (None, None) => continue,
        };
        shown.push(Shown::new(name, stats));
    }
    Ok(shown)
}

pub(super) async fn list(call: Call) -> Answer {
    json(&Page { items: gather(&call.house).await?, next: None })
}

/// How many permits there are.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Size {
    max: u32,
}

pub(super) async fn resize(mut call: Call) -> Answer {
    let pool: PoolName = call.path("pool")?;
    let size: Size = call.json().await?;
    let known =
        call.house.permits.stats(&pool).await?.is_some() || call.house.pools.contains_key(&pool);
    if !known {
        return Err(Error::not_found("pool", &pool).into());
    }
    call.note(None, &pool, format!("{} permits", size.max)).await?;
    call.house.permits.resize(&pool, size.max).await?;
    json(&size)
}
