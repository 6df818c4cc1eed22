//! A maximum that finds itself: who measures, and who steers.
//!
//! What to do is decided by [`longshore_core::adaptive`]. Of all processes one steers: the one that holds
//! the one permit of a second pool, `NAME:adaptive`. Its own permits are its sample.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use longshore_core::adaptive::{Adaptive, Window};
use longshore_core::permits::{Answer, Ask, Otherwise};
use longshore_core::{PermitId, Result};
use tokio::time::sleep;

use super::desk::Desk;
use super::guard::Went;
use super::settings::AdaptiveMax;

/// What the permits of a window came to.
#[derive(Default)]
pub(super) struct Meter(Mutex<Sums>);

#[derive(Default)]
struct Sums {
    window: Window,
    held: Duration,
    waited: Duration,
}

impl Meter {
    /// Counts a permit that is given back.
    pub(super) fn count(&self, went: Went, held: Duration, waited: Duration) {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = match went {
            Went::Well => &mut sums.window.answered,
            Went::Refused => &mut sums.window.refused,
            Went::Failed => &mut sums.window.failed,
        };
        *count += 1;
        if went == Went::Well {
            sums.held += held;
        }
        sums.waited += waited;
    }

    fn take(&self, busiest: u32) -> Window {
        let sums = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let Window { answered, refused, failed, .. } = sums.window;
        let latency = sums.held / answered.max(1);
        let waited = sums.waited / (answered + refused + failed).max(1);
        Window { latency, waited, busiest, ..sums.window }
    }
}

/// Steers as long as the pool is there, while no other process does.
pub(super) async fn steer(desk: Weak<Desk>, adaptive: AdaptiveMax) {
    let id = PermitId::new();
    let mut policy = None;
    loop {
        sleep(adaptive.window).await;
        let Some(desk) = desk.upgrade() else { return };
        let stood = step(&desk, &adaptive, id, &mut policy).await;
        if let Err(error) = stood {
            tracing::debug!(pool = %desk.name, %error, "the pool's maximum could not be moved");
        }
    }
}

async fn step(
    desk: &Arc<Desk>,
    adaptive: &AdaptiveMax,
    id: PermitId,
    policy: &mut Option<Adaptive>,
) -> Result<()> {
    let Some(stats) = desk.permits.stats(&desk.name).await? else { return Ok(()) };
    let window = desk.meter.take(stats.in_use);
    if !steers(desk, adaptive, id).await? {
        *policy = None;
        return Ok(());
    }
    let policy = policy.get_or_insert_with(|| Adaptive::new(adaptive.min, stats.max, adaptive.max));
    let limit = policy.next(&window);
    if limit != stats.max {
        desk.permits.resize(&desk.name, limit).await?;
    }
    Ok(())
}

/// Whether this process is the one that steers.
async fn steers(desk: &Desk, adaptive: &AdaptiveMax, id: PermitId) -> Result<bool> {
    let name = AdaptiveMax::steering(&desk.name)?;
    let ask = Ask {
        id,
        max: 1,
        weight: 1,
        priority: super::NORMAL,
        owner: Arc::clone(&desk.settings.owner),
        ttl: adaptive.window * 3,
        otherwise: Otherwise::GoAway,
    };
    Ok(matches!(desk.permits.ask(&name, &ask).await?, Answer::Granted(_)))
}
