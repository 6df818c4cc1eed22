//! In-memory permits: for pools of a single process, for tests, and as a baseline for the cost of
//! the trait itself.

mod pool;

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use foldhash::HashMap;
use longshore_core::permits::{AcquireRequest, AcquireResult, PoolChange, PoolStats};
use longshore_core::{Clock, Error, PermitId, Permits, PoolName, Result, SystemClock, Timestamp};
use tokio::time::Instant;

use pool::PoolState;

/// Bounded pools in the memory of this process.
pub struct MemoryPermits {
    clock: Arc<dyn Clock>,
    pools: RwLock<HashMap<PoolName, Mutex<PoolState>>>,
    /// Until when each alert is suppressed.
    alerts: Mutex<HashMap<(PoolName, String), Timestamp>>,
}

impl MemoryPermits {
    /// Creates a backend without pools; leases expire by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, pools: RwLock::default(), alerts: Mutex::default() }
    }

    /// Runs `what` on a pool, if it exists. Requests for other pools are not blocked.
    fn with_pool<T>(&self, name: &PoolName, what: impl FnOnce(&mut PoolState) -> T) -> Option<T> {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        pools.get(name).map(|pool| what(&mut pool.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Creates the pool if it does not exist.
    fn ensure_pool(&self, name: &PoolName, max: u32) {
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        pools.entry(name.clone()).or_insert_with(|| Mutex::new(PoolState::new(max)));
    }

    /// Creates a pool. If it exists, returns its maximum.
    fn init(&self, pool: &PoolName, max: u32) -> Option<u32> {
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pools.get(pool) {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            return Some(known.stats(self.clock.now()).max);
        }
        pools.insert(pool.clone(), Mutex::new(PoolState::new(max)));
        None
    }

    fn names(&self) -> Vec<PoolName> {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<PoolName> = pools.keys().cloned().collect();
        names.sort_unstable();
        names
    }
}

#[async_trait]
impl Permits for MemoryPermits {
    async fn acquire(&self, pool: &PoolName, ask: &AcquireRequest) -> Result<AcquireResult> {
        if ask.weight == 0 {
            return Err(Error::Invalid("a permit weighs at least 1".to_owned()));
        }
        loop {
            if let Some(answer) = self.try_acquire_now(pool, ask) {
                return Ok(answer);
            }
            self.ensure_pool(pool, ask.max);
        }
    }

    fn try_acquire_now(&self, pool: &PoolName, ask: &AcquireRequest) -> Option<AcquireResult> {
        // Read the clock under the lock: asks and their times have the same order.
        self.with_pool(pool, |pool| pool.ask(ask, self.clock.now()))
    }

    async fn wait_for_wakeup(&self, pool: &PoolName, id: PermitId) {
        if let Some(hint) = self.with_pool(pool, |pool| pool.wakeup(id)).flatten() {
            hint.notified().await;
        }
    }

    async fn renew(&self, pool: &PoolName, ids: &[PermitId], ttl: Duration) -> Result<Vec<PermitId>> {
        let lost = self.with_pool(pool, |pool| {
            let now = self.clock.now();
            ids.iter().copied().filter(|id| !pool.extend(*id, ttl, now)).collect()
        });
        Ok(lost.unwrap_or_else(|| ids.to_vec()))
    }

    async fn release(&self, pool: &PoolName, ids: &[PermitId], timed_out: bool) -> Result<()> {
        self.with_pool(pool, |pool| pool.release(ids, timed_out));
        Ok(())
    }

    fn try_release_now(&self, pool: &PoolName, id: PermitId) -> bool {
        self.with_pool(pool, |pool| pool.release(&[id], false));
        true
    }

    async fn change_pool(&self, pool: &PoolName, change: PoolChange) -> Result<Option<u32>> {
        match change {
            PoolChange::Create(max) => return Ok(self.init(pool, max)),
            PoolChange::Resize(max) => {
                self.ensure_pool(pool, max);
                self.with_pool(pool, |pool| pool.resize(max, self.clock.now()));
            }
            PoolChange::Reset => drop(self.with_pool(pool, PoolState::reset)),
        }
        Ok(None)
    }

    async fn pools(&self, name: Option<&PoolName>) -> Result<Vec<(PoolName, PoolStats)>> {
        let names = name.map_or_else(|| self.names(), |name| vec![name.clone()]);
        let stats = |name| {
            let stats = self.with_pool(&name, |pool| pool.stats(self.clock.now()));
            stats.map(|stats| (name, stats))
        };
        Ok(names.into_iter().filter_map(stats).collect())
    }

    async fn acquire_alert(&self, pool: &PoolName, alert: &str, every: Duration) -> Result<bool> {
        let mut alerts = self.alerts.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let quiet_until = alerts.entry((pool.clone(), alert.to_owned())).or_insert(now);
        let may = *quiet_until <= now;
        if may {
            *quiet_until = now + every;
        }
        Ok(may)
    }
}

/// On a monotonic clock: a change of the wall clock would expire permits.
impl Default for MemoryPermits {
    fn default() -> Self {
        Self::new(Arc::new(MonotonicClock { began: Instant::now(), at: SystemClock.now() }))
    }
}

impl std::fmt::Debug for MemoryPermits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryPermits").finish_non_exhaustive()
    }
}

struct MonotonicClock {
    began: Instant,
    at: Timestamp,
}

impl Clock for MonotonicClock {
    fn now(&self) -> Timestamp {
        self.at + self.began.elapsed()
    }
}
