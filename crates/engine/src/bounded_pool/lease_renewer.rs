//! Extends the leases of this process's permits, and marks lost ones.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::inner::PoolInner;
use super::settings::OnOutage;

/// Runs while the pool exists: three times per lease, more often after a failure.
pub(super) async fn run(inner: Weak<PoolInner>, ttl: Duration) {
    let mut pause = ttl / 3;
    loop {
        sleep(pause).await;
        let Some(inner) = inner.upgrade() else { return };
        pause = if extend(&inner, ttl).await { ttl / 3 } else { ttl / 12 };
    }
}

/// Extends all permits once. Returns whether the backend answered.
async fn extend(inner: &Arc<PoolInner>, ttl: Duration) -> bool {
    let ids = inner.held_permits.ids();
    if ids.is_empty() {
        return true;
    }
    let sent = Instant::now();
    let answer = timeout(ttl / 3, inner.permits.renew(&inner.name, &ids, ttl)).await;
    let error = match answer {
        Ok(Ok(lost)) => {
            inner.outage.end();
            inner.held_permits.mark_extended(&ids, &lost, sent + ttl);
            return true;
        }
        Ok(Err(error)) => error,
        Err(_) => longshore_core::Error::unavailable("no answer while extending permits"),
    };
    inner.on_backend_error(&error);
    if inner.settings.on_outage == OnOutage::FailClosed {
        inner.held_permits.expire(Instant::now());
    }
    false
}
