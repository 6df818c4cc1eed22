//! Bounded pools.

use std::time::Duration;

use longshore::permits::{Holder, PoolStats, Waiter, Waits as Steps};
use longshore::store::Page;
use longshore::{Error, PermitId, PoolName, Priority};
use serde::{Deserialize, Serialize};

use crate::call::{Call, json};
use crate::house::House;
use crate::table::Answer;

/// A pool as programs read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// Its name.
    pub pool: PoolName,
    /// Most weight that may be held at once.
    pub max: u32,
    /// Weight that is held.
    pub in_use: u32,
    /// Weight that is free.
    pub available: u32,
    /// Permits given so far.
    pub acquired: u64,
    /// Waits in vain.
    pub timeouts: u64,
    /// Leases that ran out.
    pub expired: u64,
    /// How long half of those who got a permit waited at most.
    pub wait_p50_seconds: Option<f64>,
    /// The same of nineteen in twenty.
    pub wait_p95_seconds: Option<f64>,
    /// How many waited below 1 ms, below 2 ms, and so on, doubling.
    pub waits: Steps,
    /// For how long nothing is given, because holders may have been forgotten.
    pub quarantine_seconds: Option<f64>,
    /// Who holds, longest first.
    pub holders: Vec<Held>,
    /// Who waits, next first.
    pub waiting: Vec<Waits>,
}

/// One who holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// The permit.
    pub permit: PermitId,
    /// Who it is, in its own words.
    pub owner: String,
    /// How much of the pool.
    pub weight: u32,
    /// The permit's number.
    pub fence: u64,
    /// For how long.
    pub held_seconds: f64,
    /// How long its lease is still good.
    pub left_seconds: f64,
}

/// One who waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// The permit it will be.
    pub permit: PermitId,
    /// Who it is, in its own words.
    pub owner: String,
    /// How much of the pool it wants.
    pub weight: u32,
    /// Its place in line.
    pub priority: Priority,
    /// For how long.
    pub waited_seconds: f64,
}

impl From<Holder> for Held {
    fn from(holder: Holder) -> Self {
        Self {
            permit: holder.id,
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
        let Waiter { id: permit, owner, weight, priority, waited } = waiter;
        Self { permit, owner, weight, priority, waited_seconds: waited.as_secs_f64() }
    }
}

/// The way back, for who reads it.
impl From<Shown> for PoolStats {
    fn from(shown: Shown) -> Self {
        let time = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let holder = |held: Held| Holder {
            id: held.permit,
            owner: held.owner,
            weight: held.weight,
            fence: held.fence,
            held: time(held.held_seconds),
            left: time(held.left_seconds),
        };
        let waiter = |one: Waits| Waiter {
            id: one.permit,
            owner: one.owner,
            weight: one.weight,
            priority: one.priority,
            waited: time(one.waited_seconds),
        };
        Self {
            max: shown.max,
            in_use: shown.in_use,
            acquired: shown.acquired,
            timeouts: shown.timeouts,
            expired: shown.expired,
            waits: shown.waits,
            holders: shown.holders.into_iter().map(holder).collect(),
            waiting: shown.waiting.into_iter().map(waiter).collect(),
            quarantine: shown.quarantine_seconds.map(time),
        }
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
            waits: stats.waits,
            quarantine_seconds: stats.quarantine.map(|left| left.as_secs_f64()),
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
pub(crate) struct Size {
    pub(crate) max: u32,
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
