//! `BoundedPool` on in-memory permits, with paused time.

mod alerts;
mod outages;
mod permits;
mod storm;
mod wait_order;

use std::sync::Arc;
use std::time::Duration;

use longshore::permits::PoolStats;
use longshore::{BoundedPool, BoundedPoolBuilder, HeartbeatPlacement, MemoryPermits, Permits, PoolName};
use longshore_testkit::FaultyPermits;

/// The lease of the pools here.
const LEASE: Duration = Duration::from_secs(30);

fn name() -> PoolName {
    PoolName::new("mjml").unwrap()
}

/// An in-memory pool of `max` permits.
fn pool(max: u32) -> BoundedPool {
    builder(Arc::new(MemoryPermits::default()), max).build()
}

/// A pool with a backend that can fail, and the backend's fault injection.
fn remote(max: u32) -> (BoundedPoolBuilder, Arc<FaultyPermits>) {
    let permits = Arc::new(FaultyPermits::new(Arc::new(MemoryPermits::default())));
    (builder(permits.clone(), max).lease(LEASE), permits)
}

/// A pool that renews its leases on paused time.
fn builder(permits: Arc<dyn Permits>, max: u32) -> BoundedPoolBuilder {
    BoundedPool::builder(permits, name(), max).renewals(HeartbeatPlacement::Task)
}

async fn pool_stats(pool: &BoundedPool) -> PoolStats {
    pool.stats().await.pool.unwrap()
}

/// Weight in use, and the number of waiters.
async fn usage(pool: &BoundedPool) -> (u32, usize) {
    let stats = pool_stats(pool).await;
    (stats.in_use, stats.waiting.len())
}

/// Yields to other tasks until `count` requests wait.
async fn until_waiting(permits: &dyn Permits, count: usize) {
    let waiting = async || {
        let stats = permits.stats(&name()).await.unwrap();
        stats.map_or(0, |stats| stats.waiting.len())
    };
    while waiting().await != count {
        tokio::task::yield_now().await;
    }
}
