//! `BoundedPool` over permits in memory, on paused time.

mod alerts;
mod guards;
mod outages;
mod storm;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use longshore::permits::PoolStats;
use longshore::{BoundedPool, BoundedPoolBuilder, MemoryPermits, Permits, PoolName};
use longshore_testkit::FaultyPermits;

/// The lease that pools here have.
const LEASE: Duration = Duration::from_secs(30);

fn name() -> PoolName {
    PoolName::new("mjml").unwrap()
}

/// A pool of `max` in memory.
fn pool(max: u32) -> BoundedPool {
    BoundedPool::builder(Arc::new(MemoryPermits::default()), name(), max).build()
}

/// A pool whose back end can be taken away, and what does it.
fn remote(max: u32) -> (BoundedPoolBuilder, Arc<FaultyPermits>) {
    let permits = Arc::new(FaultyPermits::new(Arc::new(MemoryPermits::default())));
    (BoundedPool::builder(permits.clone(), name(), max).lease(LEASE), permits)
}

async fn figures(pool: &BoundedPool) -> PoolStats {
    pool.stats().await.pool.unwrap()
}

/// Weight in use, and how many wait.
async fn busy(pool: &BoundedPool) -> (u32, usize) {
    let stats = figures(pool).await;
    (stats.in_use, stats.waiting.len())
}

/// Lets others go on until so many wait.
async fn until_waiting(permits: &dyn Permits, count: usize) {
    let waiting = async || {
        let stats = permits.stats(&name()).await.unwrap();
        stats.map_or(0, |stats| stats.waiting.len())
    };
    while waiting().await != count {
        tokio::task::yield_now().await;
    }
}
