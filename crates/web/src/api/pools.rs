//! Bounded pools.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::permits::{Holder, PoolStats, WaitHistogram, Waiter};
use longshore::{AdaptiveMax, Error, PermitId, PoolName, Priority, Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::app_state::AppState;
use crate::auth::Caller;
use crate::endpoints::ApiResult;
use crate::lenient_int::lenient_int;
use crate::problem::Problem;
use crate::request_context::{RequestContext, json};

/// A pool with its counts, holders and waiters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolView {
    /// Its name.
    pub pool: PoolName,
    /// Total weight that may be held at once.
    pub max: u32,
    /// Weight in use.
    pub in_use: u32,
    /// Free weight.
    pub available: u32,
    /// Permits granted so far.
    pub acquired: u64,
    /// Requests that timed out.
    pub timeouts: u64,
    /// Leases that expired.
    pub expired: u64,
    /// Median wait of granted requests.
    pub wait_p50_seconds: Option<f64>,
    /// 95th percentile of these waits.
    pub wait_p95_seconds: Option<f64>,
    /// Histogram of waits: below 1 ms, below 2 ms, and so on, doubling.
    #[schemars(with = "Vec<u64>")]
    pub waits: WaitHistogram,
    /// How long nothing is granted, because the back end may have lost holders.
    pub quarantine_seconds: Option<f64>,
    /// Number of waiting requests.
    pub in_line: u64,
    /// Whether holders and waiters are omitted.
    pub masked: bool,
    /// Holders, longest first.
    pub holders: Vec<PermitHolder>,
    /// Waiting requests, next first.
    pub waiting: Vec<PermitWaiter>,
}

/// What a caller may see of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolAccess {
    /// The caller's own, or the caller is an admin.
    Own,
    /// The caller may hold permits, but does not see other holders.
    Shared,
}

impl AppState {
    /// A caller's access to a pool; `None` if the pool does not exist for the caller.
    pub(crate) fn access_to(&self, caller: &Caller, pool: &PoolName) -> Option<PoolAccess> {
        match (&caller.scope, pool.owner()) {
            (Scope::All, _) => Some(PoolAccess::Own),
            // Internal pools that control a pool's size are not for tenants.
            (Scope::Tenant(_), _) if AdaptiveMax::is_controller_pool(pool) => None,
            (Scope::Tenant(tenant), Some(owner)) => (owner == tenant.as_str()).then_some(PoolAccess::Own),
            (Scope::Tenant(_), None) => self.shared_pools.contains(pool).then_some(PoolAccess::Shared),
        }
    }

    /// A pool's counts, if it exists.
    async fn pool_stats(&self, pool: &PoolName) -> longshore::Result<Option<PoolStats>> {
        let unused = |max: &u32| PoolStats { max: *max, ..PoolStats::default() };
        let stats = self.permits.stats(pool).await?;
        Ok(stats.or_else(|| self.pools.get(pool).map(unused)))
    }

    /// A pool's maximum, and the caller's access to it.
    pub(crate) async fn pool_access(
        &self,
        caller: &Caller,
        pool: &PoolName,
    ) -> Result<(u32, PoolAccess), Problem> {
        let unknown = || Error::not_found("pool", pool);
        let access = self.access_to(caller, pool).ok_or_else(unknown)?;
        let stats = self.pool_stats(pool).await?.ok_or_else(unknown)?;
        Ok((stats.max, access))
    }
}

/// A holder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PermitHolder {
    /// The permit.
    pub permit: PermitId,
    /// The holder's description.
    pub owner: String,
    /// Its weight.
    pub weight: u32,
    /// The permit's fence.
    pub fence: u64,
    /// How long it has been held.
    pub held_seconds: f64,
    /// Time until its lease expires.
    pub left_seconds: f64,
}

/// A waiting request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PermitWaiter {
    /// The permit's id.
    pub permit: PermitId,
    /// The requester's description.
    pub owner: String,
    /// The requested weight.
    pub weight: u32,
    /// Its priority.
    pub priority: Priority,
    /// How long it has been waiting.
    pub waited_seconds: f64,
}

impl From<Holder> for PermitHolder {
    fn from(holder: Holder) -> Self {
        Self {
            permit: holder.id,
            owner: holder.owner,
            weight: holder.weight,
            fence: holder.fence,
            held_seconds: holder.held_for.as_secs_f64(),
            left_seconds: holder.expires_in.as_secs_f64(),
        }
    }
}

impl From<Waiter> for PermitWaiter {
    fn from(waiter: Waiter) -> Self {
        let Waiter { id: permit, owner, weight, priority, waited } = waiter;
        Self { permit, owner, weight, priority, waited_seconds: waited.as_secs_f64() }
    }
}

/// For the client.
impl From<PoolView> for PoolStats {
    fn from(view: PoolView) -> Self {
        let time = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let holder = |held: PermitHolder| Holder {
            id: held.permit,
            owner: held.owner,
            weight: held.weight,
            fence: held.fence,
            held_for: time(held.held_seconds),
            expires_in: time(held.left_seconds),
        };
        let waiter = |one: PermitWaiter| Waiter {
            id: one.permit,
            owner: one.owner,
            weight: one.weight,
            priority: one.priority,
            waited: time(one.waited_seconds),
        };
        Self {
            max: view.max,
            in_use: view.in_use,
            acquired: view.acquired,
            timeouts: view.timeouts,
            expired: view.expired,
            waits: view.waits,
            holders: view.holders.into_iter().map(holder).collect(),
            waiting: view.waiting.into_iter().map(waiter).collect(),
            quarantine: view.quarantine_seconds.map(time),
        }
    }
}

impl PoolView {
    fn new(pool: PoolName, stats: PoolStats, access: PoolAccess) -> Self {
        let masked = access == PoolAccess::Shared;
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
            holders: stats.holders.into_iter().filter(|_| !masked).map(PermitHolder::from).collect(),
            waiting: stats.waiting.into_iter().filter(|_| !masked).map(PermitWaiter::from).collect(),
        }
    }
}

/// Lists the pools that the caller may see: known ones, and configured ones without use so far.
pub(crate) async fn visible_pools(app: &AppState, caller: &Caller) -> longshore::Result<Vec<PoolView>> {
    let unused = |max: &u32| PoolStats { max: *max, ..PoolStats::default() };
    let configured = app.pools.iter().map(|(name, max)| (name.clone(), unused(max)));
    let mut pools: BTreeMap<PoolName, PoolStats> = configured.collect();
    pools.extend(app.permits.pools(None).await?);
    let visible = |(name, stats)| {
        let access = app.access_to(caller, &name)?;
        Some(PoolView::new(name, stats, access))
    };
    Ok(pools.into_iter().filter_map(visible).collect())
}

pub(super) async fn list(ctx: RequestContext) -> ApiResult {
    ctx.page(visible_pools(&ctx.app, &ctx.caller).await?, |pool| pool.pool.to_string())
}

/// The body of a resize request.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolSize {
    #[serde(deserialize_with = "lenient_int")]
    pub(crate) max: u32,
}

pub(super) async fn resize(mut ctx: RequestContext) -> ApiResult {
    let pool: PoolName = ctx.path("pool")?;
    let size: PoolSize = ctx.json().await?;
    ctx.app.pool_access(&ctx.caller, &pool).await?;
    ctx.audit(None, &pool, format!("{} permits", size.max)).await?;
    ctx.app.permits.resize(&pool, size.max).await?;
    json(&size)
}
