//! Bounded pools.

use std::time::Duration;

use longshore::permits::{Holder, PoolStats, Waiter, Waits as Steps};
use longshore::store::Page;
use longshore::{AdaptiveMax, Error, PermitId, PoolName, Priority, Scope};
use serde::{Deserialize, Serialize};

use crate::call::{Call, json};
use crate::door::Caller;
use crate::house::House;
use crate::problem::Problem;
use crate::table::Answer;
use crate::whole::whole;

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
    /// How many wait.
    pub in_line: u64,
    /// Whether who holds and who waits is left out.
    pub masked: bool,
    /// Who holds, longest first.
    pub holders: Vec<Held>,
    /// Who waits, next first.
    pub waiting: Vec<Waits>,
}

/// What somebody has to do with a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It is theirs, or all are.
    Own,
    /// They may hold its permits, and know nothing of others that do.
    Shared,
}

impl House {
    /// What a caller has to do with a pool; for who has nothing to do with it, it does not exist.
    pub(crate) fn reach(&self, caller: &Caller, pool: &PoolName) -> Option<Reach> {
        match (&caller.scope, pool.owner()) {
            (Scope::All, _) => Some(Reach::Own),
            // What steers a pool's size is nobody's to hold.
            (Scope::Tenant(_), _) if AdaptiveMax::is_steering(pool) => None,
            (Scope::Tenant(tenant), Some(owner)) => {
                (owner == tenant.as_str()).then_some(Reach::Own)
            }
            (Scope::Tenant(_), None) => self.shared_pools.contains(pool).then_some(Reach::Shared),
        }
    }

    /// A pool's figures, if there is such a pool.
    async fn figures(&self, pool: &PoolName) -> longshore::Result<Option<PoolStats>> {
        let unused = |max: &u32| PoolStats { max: *max, ..PoolStats::default() };
        let stats = self.permits.stats(pool).await?;
        Ok(stats.or_else(|| self.pools.get(pool).map(unused)))
    }

    /// A pool's maximum and what the caller has to do with it.
    pub(crate) async fn pool(
        &self,
        caller: &Caller,
        pool: &PoolName,
    ) -> Result<(u32, Reach), Problem> {
        let unknown = || Error::not_found("pool", pool);
        let reach = self.reach(caller, pool).ok_or_else(unknown)?;
        let stats = self.figures(pool).await?.ok_or_else(unknown)?;
        Ok((stats.max, reach))
    }
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
    fn new(pool: PoolName, stats: PoolStats, reach: Reach) -> Self {
        let masked = reach == Reach::Shared;
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
            in_line: stats.waiting.len() as u64,
            masked,
            holders: stats.holders.into_iter().filter(|_| !masked).map(Held::from).collect(),
            waiting: stats.waiting.into_iter().filter(|_| !masked).map(Waits::from).collect(),
        }
    }
}

/// Pools that are known, and those of the configuration that nobody has used yet, as far as they are
/// the caller's business.
pub(crate) async fn gather(house: &House, caller: &Caller) -> longshore::Result<Vec<Shown>> {
    let mut names = house.permits.pools().await?;
    names.extend(house.pools.keys().cloned());
    names.sort();
    names.dedup();
    let mut shown = Vec::with_capacity(names.len());
    for name in names {
        let Some(reach) = house.reach(caller, &name) else { continue };
        // Between its name and its figures somebody may have removed it.
        let Some(stats) = house.figures(&name).await? else { continue };
        shown.push(Shown::new(name, stats, reach));
    }
    Ok(shown)
}

pub(super) async fn list(call: Call) -> Answer {
    json(&Page { items: gather(&call.house, &call.caller).await?, next: None })
}

/// How many permits there are.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Size {
    #[serde(deserialize_with = "whole")]
    pub(crate) max: u32,
}

pub(super) async fn resize(mut call: Call) -> Answer {
    let pool: PoolName = call.path("pool")?;
    let size: Size = call.json().await?;
    call.house.pool(&call.caller, &pool).await?;
    call.note(None, &pool, format!("{} permits", size.max)).await?;
    call.house.permits.resize(&pool, size.max).await?;
    json(&size)
}
