//! A permits wrapper that simulates outages of its back end and lost answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longshore_core::permits::{AcquireRequest, AcquireResult, PoolChange, PoolStats};
use longshore_core::{Error, PermitId, Permits, PoolName, Result};

use crate::delegate::delegate;

/// Injects outages and lost answers. It does not implement the synchronous fast paths, like a back end
/// across a network.
pub struct FaultyPermits {
    inner: Arc<dyn Permits>,
    outage: AtomicBool,
    /// How many answers to requests are still to be lost.
    answers_to_lose: AtomicU64,
}

impl FaultyPermits {
    /// Wraps permits, without faults.
    pub fn new(inner: Arc<dyn Permits>) -> Self {
        Self { inner, outage: AtomicBool::new(false), answers_to_lose: AtomicU64::new(0) }
    }

    /// Begins or ends an outage: every call fails.
    pub fn outage(&self, outage: bool) {
        self.outage.store(outage, Ordering::SeqCst);
    }

    /// The next `asks` requests reach the back end, but their answers are lost.
    pub fn lose_answers(&self, asks: u64) {
        self.answers_to_lose.store(asks, Ordering::SeqCst);
    }

    async fn wrap_call<T, F: Future<Output = Result<T>> + Send>(
        &self,
        method: &'static str,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T> {
        if self.outage.load(Ordering::SeqCst) {
            return Err(Error::unavailable("injected fault: outage"));
        }
        let answer = call().await;
        if method == "acquire" && self.loses_answer() {
            return Err(Error::unavailable("injected fault: lost answer"));
        }
        answer
    }

    fn loses_answer(&self) -> bool {
        let decrement = |left: u64| left.checked_sub(1);
        self.answers_to_lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, decrement).is_ok()
    }
}

delegate!(FaultyPermits: Permits {
    acquire(pool: &PoolName, ask: &AcquireRequest) -> AcquireResult;
    renew(pool: &PoolName, ids: &[PermitId], ttl: Duration) -> Vec<PermitId>;
    release(pool: &PoolName, ids: &[PermitId], timed_out: bool) -> ();
    change_pool(pool: &PoolName, change: PoolChange) -> Option<u32>;
    pools(name: Option<&PoolName>) -> Vec<(PoolName, PoolStats)>;
    acquire_alert(pool: &PoolName, alert: &str, every: Duration) -> bool;
} + {
    async fn wait_for_wakeup(&self, pool: &PoolName, id: PermitId) {
        match self.outage.load(Ordering::SeqCst) {
            false => self.inner.wait_for_wakeup(pool, id).await,
            true => std::future::pending().await,
        }
    }
});
