//! Bounded pools.

use longshore::permits::{Holder, PoolStats, Waiter};
use longshore::store::Page;
use longshore::{Error, PoolName, Scope};
use serde::{Deserialize, Serialize};

use crate::call::{Call, json};
use crate::door::Caller;
use crate::house::House;
use crate::problem::Problem;
use crate::table::Answer;
use crate::whole::whole;

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
    /// How many wait.
    pub(crate) in_line: u64,
    /// Whether who holds and who waits is left out.
    pub(crate) masked: bool,
    pub(crate) holders: Vec<Held>,
    pub(crate) waiting: Vec<Waits>,
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
struct Size {
    #[serde(deserialize_with = "whole")]
    max: u32,
}

pub(super) async fn resize(mut call: Call) -> Answer {
    let pool: PoolName = call.path("pool")?;
    let size: Size = call.json().await?;
    call.house.pool(&call.caller, &pool).await?;
    call.note(None, &pool, format!("{} permits", size.max)).await?;
    call.house.permits.resize(&pool, size.max).await?;
    json(&size)
}
