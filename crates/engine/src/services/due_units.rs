//! Makes scheduled units ready when they are due.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::{Result, Store};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Service, ServiceReport};

/// Promotes due units. Sleeps no longer than until the next unit is due.
pub struct Promoter {
    store: Arc<dyn Store>,
    scheduled: Arc<Notify>,
}

/// Units per round.
const MAX_BATCH: u32 = 2_000;
/// Minimum time between rounds, however often units are scheduled.
const MIN_INTERVAL: Duration = Duration::from_millis(2);

impl Promoter {
    /// Creates a promoter. `scheduled` wakes it: this process scheduled a unit that may be due
    /// before the next round.
    pub fn new(store: Arc<dyn Store>, scheduled: Arc<Notify>) -> Self {
        Self { store, scheduled }
    }
}

impl Service for Promoter {
    const NAME: &'static str = "promoter";

    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn run_once(&mut self, _now: Instant) -> Result<ServiceReport> {
        let promoted = self.store.promote(MAX_BATCH).await?;
        let moved = promoted.due + promoted.expired + promoted.cancelled;
        if promoted.more {
            return Ok(ServiceReport { moved, more: true, next: None });
        }
        let due = promoted.next_due.filter(|due| *due < self.interval());
        Ok(ServiceReport { moved, more: false, next: due.map(|due| due.max(MIN_INTERVAL)) })
    }

    async fn early_wakeup(&self) {
        tokio::time::sleep(MIN_INTERVAL).await;
        self.scheduled.notified().await;
    }
}
