//! Permits in this process' memory: for pools that one process uses alone, for tests, and as the
//! measure of what the seam itself costs.

mod pool;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use foldhash::HashMap;
use longshore_core::permits::{Answer, Ask, Leaving, PoolStats};
use longshore_core::{Clock, Error, PermitId, Permits, PoolName, Result, SystemClock, Timestamp};
use tokio::time::Instant;

use pool::Pool;

/// Bounded pools that live and die with this process.
pub struct MemoryPermits {
    clock: Arc<dyn Clock>,
    pools: RwLock<HashMap<PoolName, Arc<Mutex<Pool>>>>,
    /// Until when each alert is silent.
    alerts: Mutex<HashMap<(PoolName, String), Timestamp>>,
}

impl MemoryPermits {
    /// No pools yet; leases run by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, pools: RwLock::default(), alerts: Mutex::default() }
    }

    fn find(&self, name: &PoolName) -> Option<Arc<Mutex<Pool>>> {
        self.pools.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn find_or_make(&self, name: &PoolName, max: u32) -> Arc<Mutex<Pool>> {
        self.find(name).unwrap_or_else(|| {
            let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
            let make = || Arc::new(Mutex::new(Pool::new(max)));
            Arc::clone(pools.entry(name.clone()).or_insert_with(make))
        })
    }
}

fn open(pool: &Mutex<Pool>) -> MutexGuard<'_, Pool> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Permits for MemoryPermits {
    async fn ask(&self, pool: &PoolName, ask: &Ask) -> Result<Answer> {
        if ask.weight == 0 {
            return Err(Error::Invalid("a permit weighs at least 1".to_owned()));
        }
        let pool = self.find_or_make(pool, ask.max);
        let mut pool = open(&pool);
        // Under the lock: the order of asks is the order of times.
        Ok(pool.ask(ask, self.clock.now()))
    }

    async fn turn(&self, pool: &PoolName, id: PermitId) {
        let hint = self.find(pool).and_then(|pool| open(&pool).hint(id));
        if let Some(hint) = hint {
            hint.notified().await;
        }
    }

    async fn extend(
        &self,
        pool: &PoolName,
        ids: &[PermitId],
        ttl: Duration,
    ) -> Result<Vec<PermitId>> {
        let Some(pool) = self.find(pool) else { return Ok(ids.to_vec()) };
        let mut pool = open(&pool);
        let now = self.clock.now();
        Ok(ids.iter().copied().filter(|id| !pool.extend(*id, ttl, now)).collect())
    }

    async fn release(&self, pool: &PoolName, ids: &[PermitId]) -> Result<()> {
        if let Some(pool) = self.find(pool) {
            open(&pool).release(ids);
        }
        Ok(())
    }

    fn release_at_once(&self, pool: &PoolName, id: PermitId) -> bool {
        if let Some(pool) = self.find(pool) {
            open(&pool).release(&[id]);
        }
        true
    }

    async fn leave(&self, pool: &PoolName, id: PermitId, why: Leaving) -> Result<()> {
        if let Some(pool) = self.find(pool) {
            open(&pool).leave(id, why);
        }
        Ok(())
    }

    async fn init(&self, pool: &PoolName, max: u32) -> Result<Option<u32>> {
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pools.get(pool) {
            return Ok(Some(open(known).stats(self.clock.now()).max));
        }
        pools.insert(pool.clone(), Arc::new(Mutex::new(Pool::new(max))));
        Ok(None)
    }

    async fn resize(&self, pool: &PoolName, max: u32) -> Result<()> {
        let pool = self.find_or_make(pool, max);
        open(&pool).resize(max, self.clock.now());
        Ok(())
    }

    async fn reset(&self, pool: &PoolName) -> Result<()> {
        if let Some(pool) = self.find(pool) {
            open(&pool).reset();
        }
        Ok(())
    }

    async fn stats(&self, pool: &PoolName) -> Result<Option<PoolStats>> {
        Ok(self.find(pool).map(|pool| open(&pool).stats(self.clock.now())))
    }

    async fn pools(&self) -> Result<Vec<PoolName>> {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<PoolName> = pools.keys().cloned().collect();
        names.sort_unstable();
        Ok(names)
    }

    async fn may_alert(&self, pool: &PoolName, alert: &str, every: Duration) -> Result<bool> {
        let mut alerts = self.alerts.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let silent = alerts.entry((pool.clone(), alert.to_owned())).or_insert(now);
        let may = *silent <= now;
        if may {
            *silent = now + every;
        }
        Ok(may)
    }
}

/// On a clock that does not jump: wall time is set by people and programs, and would take permits away.
impl Default for MemoryPermits {
    fn default() -> Self {
        Self::new(Arc::new(SteadyClock { began: Instant::now(), at: SystemClock.now() }))
    }
}

impl std::fmt::Debug for MemoryPermits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryPermits").finish_non_exhaustive()
    }
}

struct SteadyClock {
    began: Instant,
    at: Timestamp,
}

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        self.at + self.began.elapsed()
    }
}
