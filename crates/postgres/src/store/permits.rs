//! [`Permits`] on PostgreSQL. Dropping a future does not undo its statement, so each operation runs
//! to completion: the requests that it woke must be notified.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longshore_core::permits::{AcquireRequest, AcquireResult, PoolChange, PoolStats};
use longshore_core::{PermitId, Permits, PoolName, Result};

use super::PostgresStore;
use crate::permits;

/// Runs an operation to completion, although its caller waits no longer than the store's timeout.
macro_rules! run_to_completion {
    ($store:expr, $inner:ident, $($own:ident),* => $operation:expr) => {{
        let $inner = Arc::clone(&$store.inner);
        $(let $own = $own.to_owned();)*
        let run = $store.inner.run_to_completion(async move { $operation.await });
        $store.inner.with_timeout(run).await
    }};
}

#[async_trait]
impl Permits for PostgresStore {
    async fn acquire(&self, pool: &PoolName, ask: &AcquireRequest) -> Result<AcquireResult> {
        let wakeups = &self.inner.notifier.permit_wakeups;
        // Before the request is sent: a wake-up may arrive before the reply.
        let request_lock = wakeups.register(ask.id).lock_request().await;
        if let Some(grant) = self.inner.pool_registry.entry(pool).take_grant(ask.id) {
            wakeups.unregister(ask.id);
            return Ok(AcquireResult::Granted(grant));
        }
        let answer = run_to_completion!(self, inner, pool, ask => async {
            let answer = permits::ask(&inner, &pool, &ask).await;
            drop(request_lock);
            answer
        });
        // After an error the request may still arrive at the server.
        if !matches!(answer, Ok(AcquireResult::Waiting { .. }) | Err(_)) {
            wakeups.unregister(ask.id);
        }
        answer
    }

    async fn wait_for_wakeup(&self, pool: &PoolName, id: PermitId) {
        let notifier = &self.inner.notifier;
        let Some(waiter) = notifier.permit_wakeups.get(id) else { return };
        let _listening = self.inner.pool_registry.entry(pool).listen(id);
        if notifier.is_listening() {
            waiter.wakeup.notified().await;
        } else {
            // Without notifications, poll.
            let _ = tokio::time::timeout(waiter.poll_backoff.next(), waiter.wakeup.notified()).await;
        }
    }

    async fn renew(&self, pool: &PoolName, ids: &[PermitId], ttl: Duration) -> Result<Vec<PermitId>> {
        self.inner.renew_permits(pool, ids, ttl).await
    }

    async fn release(&self, pool: &PoolName, ids: &[PermitId], timed_out: bool) -> Result<()> {
        run_to_completion!(self, inner, pool, ids =>
            permits::release(&inner, &pool, &ids, timed_out))
    }

    async fn change_pool(&self, pool: &PoolName, change: PoolChange) -> Result<Option<u32>> {
        run_to_completion!(self, inner, pool => permits::change(&inner, &pool, change))
    }

    async fn pools(&self, name: Option<&PoolName>) -> Result<Vec<(PoolName, PoolStats)>> {
        self.inner.with_timeout(permits::list(&self.inner, name)).await
    }

    async fn acquire_alert(&self, pool: &PoolName, alert: &str, every: Duration) -> Result<bool> {
        run_to_completion!(self, inner, pool, alert =>
            permits::may_alert(&inner, &pool, &alert, every))
    }
}
