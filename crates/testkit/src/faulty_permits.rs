//! Permits whose back end goes away when a test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use longshore_core::permits::{Answer, Ask, Leaving, PoolStats};
use longshore_core::{Error, PermitId, Permits, PoolName, Result};

/// Permits that are reached, or not. Gives nothing back at once, as a back end across a network.
pub struct FaultyPermits {
    permits: Arc<dyn Permits>,
    away: AtomicBool,
    /// So many answers to asks are lost on their way back.
    unheard: AtomicU64,
}

impl FaultyPermits {
    /// Wraps permits; all is well until something is said.
    pub fn new(permits: Arc<dyn Permits>) -> Self {
        Self { permits, away: AtomicBool::new(false), unheard: AtomicU64::new(0) }
    }

    /// Begins or ends an outage: no call arrives.
    pub fn outage(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    /// The next asks arrive, but their answers do not.
    pub fn lose_answers(&self, asks: u64) {
        self.unheard.store(asks, Ordering::SeqCst);
    }

    fn reach(&self) -> Result<&dyn Permits> {
        if self.away.load(Ordering::SeqCst) {
            return Err(Error::unavailable("an outage that a test made"));
        }
        Ok(&*self.permits)
    }

    fn is_unheard(&self) -> bool {
        let less = |left: u64| left.checked_sub(1);
        self.unheard.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
    }
}

#[async_trait]
impl Permits for FaultyPermits {
    async fn ask(&self, pool: &PoolName, ask: &Ask) -> Result<Answer> {
        let answer = self.reach()?.ask(pool, ask).await;
        if self.is_unheard() { Err(Error::unavailable("a lost answer")) } else { answer }
    }

    async fn turn(&self, pool: &PoolName, id: PermitId) {
        match self.reach() {
            Ok(permits) => permits.turn(pool, id).await,
            Err(_) => std::future::pending().await,
        }
    }

    async fn extend(
        &self,
        pool: &PoolName,
        ids: &[PermitId],
        ttl: Duration,
    ) -> Result<Vec<PermitId>> {
        self.reach()?.extend(pool, ids, ttl).await
    }

    async fn release(&self, pool: &PoolName, ids: &[PermitId]) -> Result<()> {
        self.reach()?.release(pool, ids).await
    }

    async fn leave(&self, pool: &PoolName, id: PermitId, why: Leaving) -> Result<()> {
        self.reach()?.leave(pool, id, why).await
    }

    async fn init(&self, pool: &PoolName, max: u32) -> Result<Option<u32>> {
        self.reach()?.init(pool, max).await
    }

    async fn resize(&self, pool: &PoolName, max: u32) -> Result<()> {
        self.reach()?.resize(pool, max).await
    }

    async fn reset(&self, pool: &PoolName) -> Result<()> {
        self.reach()?.reset(pool).await
    }

    async fn stats(&self, pool: &PoolName) -> Result<Option<PoolStats>> {
        self.reach()?.stats(pool).await
    }

    async fn pools(&self) -> Result<Vec<PoolName>> {
        self.reach()?.pools().await
    }

    async fn may_alert(&self, pool: &PoolName, alert: &str, every: Duration) -> Result<bool> {
        self.reach()?.may_alert(pool, alert, every).await
    }
}
