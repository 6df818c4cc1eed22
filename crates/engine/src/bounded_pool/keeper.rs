//! Extends the permits of this process, and tells those that were lost.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::desk::Desk;
use super::settings::OnOutage;

/// Runs as long as the pool is there: three times per lease, more often while it does not succeed.
pub(super) async fn keep(desk: Weak<Desk>, ttl: Duration) {
    let mut pause = ttl / 3;
    loop {
        sleep(pause).await;
        let Some(desk) = desk.upgrade() else { return };
        pause = if extend(&desk, ttl).await { ttl / 3 } else { ttl / 12 };
    }
}

/// Extends everything once; whether the back end was there.
async fn extend(desk: &Arc<Desk>, ttl: Duration) -> bool {
    let ids = desk.roll.held();
    if ids.is_empty() {
        return true;
    }
    let sent = Instant::now();
    let answer = timeout(ttl / 3, desk.permits.extend(&desk.name, &ids, ttl)).await;
    let trouble = match answer {
        Ok(Ok(lost)) => {
            desk.outage.over();
            desk.roll.extended(&ids, &lost, sent + ttl);
            return true;
        }
        Ok(Err(error)) => error,
        Err(_) => longshore_core::Error::unavailable("no answer while extending permits"),
    };
    desk.lost_back_end(&trouble);
    if desk.settings.on_outage == OnOutage::FailClosed {
        desk.roll.lapse(Instant::now());
    }
    false
}
