//! A permits wrapper that simulates outages of its back end and lost answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use longshore_core::permits::{Answer, Ask, Leaving, PoolStats};
use longshore_core::{Error, PermitId, Permits, PoolName, Result};

/// Injects outages and lost answers. It does not implement the synchronous fast paths, like a back end
/// across a network.
pub struct FaultyPermits {
    permits: Arc<dyn Permits>,
    outage: AtomicBool,
    /// How many answers to requests are still to be lost.
    answers_to_lose: AtomicU64,
}

impl FaultyPermits {
    /// Wraps permits, without faults.
    pub fn new(permits: Arc<dyn Permits>) -> Self {
        Self { permits, outage: AtomicBool::new(false), answers_to_lose: AtomicU64::new(0) }
    }

    /// Begins or ends an outage: every call fails.
    pub fn outage(&self, outage: bool) {
        self.outage.store(outage, Ordering::SeqCst);
    }

    /// The next `asks` requests reach the back end, but their answers are lost.
    pub fn lose_answers(&self, asks: u64) {
        self.answers_to_lose.store(asks, Ordering::SeqCst);
    }

    fn backend(&self) -> Result<&dyn Permits> {
        if self.outage.load(Ordering::SeqCst) {
            return Err(Error::unavailable("injected fault: outage"));
        }
        Ok(&*self.permits)
    }

    fn loses_answer(&self) -> bool {
        let decrement = |left: u64| left.checked_sub(1);
        self.answers_to_lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, decrement).is_ok()
    }
}

#[async_trait]
impl Permits for FaultyPermits {
    async fn ask(&self, pool: &PoolName, ask: &Ask) -> Result<Answer> {
        let answer = self.backend()?.ask(pool, ask).await;
        if self.loses_answer() {
            Err(Error::unavailable("injected fault: lost answer"))
        } else {
            answer
        }
    }

    async fn turn(&self, pool: &PoolName, id: PermitId) {
        match self.backend() {
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
        self.backend()?.extend(pool, ids, ttl).await
    }

    async fn release(&self, pool: &PoolName, ids: &[PermitId]) -> Result<()> {
        self.backend()?.release(pool, ids).await
    }

    async fn leave(&self, pool: &PoolName, id: PermitId, why: Leaving) -> Result<()> {
        self.backend()?.leave(pool, id, why).await
    }

    async fn init(&self, pool: &PoolName, max: u32) -> Result<Option<u32>> {
        self.backend()?.init(pool, max).await
    }

    async fn resize(&self, pool: &PoolName, max: u32) -> Result<()> {
        self.backend()?.resize(pool, max).await
    }

    async fn reset(&self, pool: &PoolName) -> Result<()> {
        self.backend()?.reset(pool).await
    }

    async fn stats(&self, pool: &PoolName) -> Result<Option<PoolStats>> {
        self.backend()?.stats(pool).await
    }

    async fn pools(&self) -> Result<Vec<PoolName>> {
        self.backend()?.pools().await
    }

    async fn may_alert(&self, pool: &PoolName, alert: &str, every: Duration) -> Result<bool> {
        self.backend()?.may_alert(pool, alert, every).await
    }
}
