//! Permits in this process' memory: for pools that one process uses alone, for tests, and as the
//! measure of what the seam itself costs.

mod pool;

use std::sync::{Arc, Mutex, PoisonError, RwLock};
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
    pools: RwLock<HashMap<PoolName, Mutex<Pool>>>,
    /// Until when each alert is silent.
    alerts: Mutex<HashMap<(PoolName, String), Timestamp>>,
}

impl MemoryPermits {
    /// No pools yet; leases run by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, pools: RwLock::default(), alerts: Mutex::default() }
    }

    /// Does something with a pool if there is one. Nobody waits meanwhile who wants another pool.
    fn with<T>(&self, name: &PoolName, what: impl FnOnce(&mut Pool) -> T) -> Option<T> {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        pools.get(name).map(|pool| what(&mut pool.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Makes the pool if there is none.
    fn make(&self, name: &PoolName, max: u32) {
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        pools.entry(name.clone()).or_insert_with(|| Mutex::new(Pool::new(max)));
    }
}

#[async_trait]
impl Permits for MemoryPermits {
    async fn ask(&self, pool: &PoolName, ask: &Ask) -> Result<Answer> {
        if ask.weight == 0 {
            return Err(Error::Invalid("a permit weighs at least 1".to_owned()));
        }
        loop {
            if let Some(answer) = self.ask_at_once(pool, ask) {
                return Ok(answer);
            }
            self.make(pool, ask.max);
        }
    }

    fn ask_at_once(&self, pool: &PoolName, ask: &Ask) -> Option<Answer> {
        // Under the lock: the order of asks is the order of times.
        self.with(pool, |pool| pool.ask(ask, self.clock.now()))
    }

    async fn turn(&self, pool: &PoolName, id: PermitId) {
        if let Some(hint) = self.with(pool, |pool| pool.hint(id)).flatten() {
            hint.notified().await;
        }
    }

    async fn extend(
        &self,
        pool: &PoolName,
        ids: &[PermitId],
        ttl: Duration,
    ) -> Result<Vec<PermitId>> {
        let lost = self.with(pool, |pool| {
            let now = self.clock.now();
            ids.iter().copied().filter(|id| !pool.extend(*id, ttl, now)).collect()
        });
        Ok(lost.unwrap_or_else(|| ids.to_vec()))
    }

    async fn release(&self, pool: &PoolName, ids: &[PermitId]) -> Result<()> {
        self.with(pool, |pool| pool.release(ids));
        Ok(())
    }

    fn release_at_once(&self, pool: &PoolName, id: PermitId) -> bool {
        self.with(pool, |pool| pool.release(&[id]));
        true
    }

    async fn leave(&self, pool: &PoolName, id: PermitId, why: Leaving) -> Result<()> {
        self.with(pool, |pool| pool.leave(id, why));
        Ok(())
    }

    async fn init(&self, pool: &PoolName, max: u32) -> Result<Option<u32>> {
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pools.get(pool) {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            return Ok(Some(known.stats(self.clock.now()).max));
        }
        pools.insert(pool.clone(), Mutex::new(Pool::new(max)));
        Ok(None)
    }

    async fn resize(&self, pool: &PoolName, max: u32) -> Result<()> {
        self.make(pool, max);
        self.with(pool, |pool| pool.resize(max, self.clock.now()));
        Ok(())
    }

    async fn reset(&self, pool: &PoolName) -> Result<()> {
        self.with(pool, Pool::reset);
        Ok(())
    }

    async fn stats(&self, pool: &PoolName) -> Result<Option<PoolStats>> {
        Ok(self.with(pool, |pool| pool.stats(self.clock.now())))
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
