//! Makes scheduled units ready when their time comes.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::{Result, Store};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Report, Service};

/// Promotes due units, and sleeps no longer than until the next is due.
pub struct Promoter {
    store: Arc<dyn Store>,
    scheduled: Arc<Notify>,
}

/// Units per round.
const LIMIT: u32 = 2_000;
/// Rounds are at least this far apart, however often something is scheduled.
const FLOOR: Duration = Duration::from_millis(2);

impl Promoter {
    /// A promoter that looks again when `scheduled` is notified: something in this process put a
    /// unit off and it may be due before the next look.
    pub fn new(store: Arc<dyn Store>, scheduled: Arc<Notify>) -> Self {
        Self { store, scheduled }
    }
}

impl Service for Promoter {
    const NAME: &'static str = "promoter";

    fn every(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn run_once(&mut self, _now: Instant) -> Result<Report> {
        let promoted = self.store.promote(LIMIT).await?;
        let moved = promoted.due + promoted.expired + promoted.swept;
        if promoted.more {
            return Ok(Report { moved, more: true, next: None });
        }
        let due = self.store.next_due().await?.filter(|due| *due < self.every());
        Ok(Report { moved, more: false, next: due.map(|due| due.max(FLOOR)) })
    }

    async fn hint(&self) {
        tokio::time::sleep(FLOOR).await;
        self.scheduled.notified().await;
    }
}
