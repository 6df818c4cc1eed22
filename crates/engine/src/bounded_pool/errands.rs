//! Gives back what was dropped: in order, many at a time, and again if the back end is away.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::{PermitId, Permits, PoolName};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::Backoff;

pub(super) enum Errand {
    /// A permit that nobody holds any more, or a place in line that nobody wants.
    Release(PermitId),
    /// Somebody wants to know that everything before has been done.
    Settle(oneshot::Sender<()>),
}

/// Runs until the pool is gone and nothing is left to be given back.
pub(super) async fn run(
    permits: Arc<dyn Permits>,
    pool: PoolName,
    ttl: Duration,
    mut inbox: UnboundedReceiver<Errand>,
) {
    let mut gathered = Vec::new();
    while inbox.recv_many(&mut gathered, 256).await > 0 {
        let mut ids = Vec::new();
        let mut settled = Vec::new();
        for errand in gathered.drain(..) {
            match errand {
                Errand::Release(id) => ids.push(id),
                Errand::Settle(done) => settled.push(done),
            }
        }
        if !ids.is_empty() {
            release(&*permits, &pool, &ids, ttl).await;
        }
        for done in settled {
            // Whoever asked may be gone.
            let _ = done.send(());
        }
    }
}

/// Tries as long as their leases may last: after that there is nothing to give back.
async fn release(permits: &dyn Permits, pool: &PoolName, ids: &[PermitId], ttl: Duration) {
    let until = Instant::now() + ttl;
    let mut backoff = Backoff::store();
    while !matches!(timeout(ttl, permits.release(pool, ids)).await, Ok(Ok(()))) {
        if Instant::now() >= until {
            tracing::warn!(%pool, permits = ids.len(), "could not be given back: their leases end them");
            return;
        }
        backoff.wait().await;
    }
}
