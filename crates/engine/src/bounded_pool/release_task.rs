//! Releases dropped permits in order and in batches, and retries while the backend is unavailable.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::{PermitId, Permits, PoolName};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use crate::Backoff;

/// Most commands per call.
const MAX_BATCH: usize = 256;

pub(super) enum ReleaseCommand {
    /// Release a permit, or leave the wait queue.
    Release(PermitId),
    /// Reply once all earlier releases are done.
    Flush(oneshot::Sender<()>),
}

/// Runs until the pool is gone and everything is released.
pub(super) async fn run(
    permits: Arc<dyn Permits>,
    pool: PoolName,
    ttl: Duration,
    mut commands: UnboundedReceiver<ReleaseCommand>,
) {
    let mut batch = Vec::new();
    while commands.recv_many(&mut batch, MAX_BATCH).await > 0 {
        // Permits that are dropped together are released together: a permit that misses this call
        // is released by the next one.
        yield_now().await;
        while batch.len() < MAX_BATCH
            && let Ok(command) = commands.try_recv()
        {
            batch.push(command);
        }
        let mut ids = Vec::new();
        let mut flushed = Vec::new();
        for command in batch.drain(..) {
            match command {
                ReleaseCommand::Release(id) => ids.push(id),
                ReleaseCommand::Flush(done) => flushed.push(done),
            }
        }
        if !ids.is_empty() {
            release(&*permits, &pool, &ids, ttl).await;
        }
        for done in flushed {
            // The receiver may be gone.
            let _ = done.send(());
        }
    }
}

/// Retries for one lease: after that the leases have expired.
async fn release(permits: &dyn Permits, pool: &PoolName, ids: &[PermitId], ttl: Duration) {
    let until = Instant::now() + ttl;
    let mut backoff = Backoff::store();
    while !matches!(timeout(ttl, permits.release(pool, ids, false)).await, Ok(Ok(()))) {
        if Instant::now() >= until {
            tracing::warn!(%pool, permits = ids.len(), "cannot release; the leases will expire");
            return;
        }
        backoff.wait().await;
    }
}
