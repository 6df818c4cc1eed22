//! Extends the leases of this process's permits, and marks lost ones.
//!
//! Handlers may block every thread of their runtime. The renewers of all pools share a thread of their own, so that a
//! blocked process keeps its permits.

use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{Instant, sleep, timeout};

use super::inner::PoolInner;
use super::settings::OnOutage;

/// The thread of renewals; `None` if the system has no thread left.
pub(super) fn thread() -> Option<&'static Handle> {
    static THREAD: LazyLock<Option<Runtime>> = LazyLock::new(|| {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("longshore-permit")
            .enable_all()
            .build();
        runtime.inspect_err(|error| tracing::warn!(%error, "no thread renews permits; using a task")).ok()
    });
    THREAD.as_ref().map(Runtime::handle)
}

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
