//! Adaptive maximum of a pool.
//!
//! [`longshore_core::concurrency_limit`] decides the limit. One process adjusts it: the holder of the single
//! permit of a second pool, `NAME:adaptive`. It measures its own permits.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use longshore_core::concurrency_limit::{CallWindow, ConcurrencyLimit};
use longshore_core::permits::{AcquireRequest, AcquireResult, IfFull};
use longshore_core::{PermitId, Result};
use tokio::time::sleep;

use super::inner::PoolInner;
use super::permit::CallOutcome;
use super::settings::AdaptiveMax;

/// Measurements of the permits of a window.
#[derive(Default)]
pub(super) struct UsageMeter(Mutex<WindowSums>);

#[derive(Default)]
struct WindowSums {
    window: CallWindow,
    held: Duration,
    waited: Duration,
}

impl UsageMeter {
    /// Counts a released permit.
    pub(super) fn count(&self, outcome: CallOutcome, held: Duration, waited: Duration) {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = match outcome {
            CallOutcome::Ok => &mut sums.window.answered,
            CallOutcome::Rejected => &mut sums.window.rejected,
            CallOutcome::Failed => &mut sums.window.failed,
        };
        *count += 1;
        if outcome == CallOutcome::Ok {
            sums.held += held;
        }
        sums.waited += waited;
    }

    fn take(&self, busiest: u32) -> CallWindow {
        let sums = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let CallWindow { answered, rejected, failed, .. } = sums.window;
        let latency = sums.held / answered.max(1);
        let waited = sums.waited / (answered + rejected + failed).max(1);
        CallWindow { latency, queue_time: waited, max_in_flight: busiest, ..sums.window }
    }
}

/// Adjusts the maximum while the pool exists and no other process does.
pub(super) async fn run(inner: Weak<PoolInner>, adaptive: AdaptiveMax) {
    let id = PermitId::new();
    let mut policy = None;
    loop {
        sleep(adaptive.window).await;
        let Some(inner) = inner.upgrade() else { return };
        let result = step(&inner, &adaptive, id, &mut policy).await;
        if let Err(error) = result {
            tracing::debug!(pool = %inner.name, %error, "cannot adjust the pool's maximum");
        }
    }
}

async fn step(
    inner: &Arc<PoolInner>,
    adaptive: &AdaptiveMax,
    id: PermitId,
    policy: &mut Option<ConcurrencyLimit>,
) -> Result<()> {
    let Some(stats) = inner.permits.stats(&inner.name).await? else { return Ok(()) };
    let window = inner.meter.take(stats.in_use);
    if !may_adjust(inner, adaptive, id).await? {
        *policy = None;
        return Ok(());
    }
    let policy = policy.get_or_insert_with(|| ConcurrencyLimit::new(adaptive.min, stats.max, adaptive.max));
    let limit = policy.update(&window);
    if limit != stats.max {
        inner.permits.resize(&inner.name, limit).await?;
    }
    Ok(())
}

/// Whether this process holds the permit that entitles it to adjust the maximum.
async fn may_adjust(inner: &PoolInner, adaptive: &AdaptiveMax, id: PermitId) -> Result<bool> {
    let name = AdaptiveMax::controller_pool(&inner.name)?;
    let ask = AcquireRequest {
        id,
        max: 1,
        weight: 1,
        priority: super::NORMAL,
        owner: Arc::clone(&inner.settings.owner),
        ttl: adaptive.window * 3,
        if_full: IfFull::Fail,
    };
    Ok(matches!(inner.permits.acquire(&name, &ask).await?, AcquireResult::Granted(_)))
}
