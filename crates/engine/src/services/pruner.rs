//! Removes ended units and batches, and entries of the audit log, that were kept long enough.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::store::Retention;
use longshore_core::{Result, Store};
use tokio::time::Instant;

use super::{Report, Service};

/// Prunes by the retention it was given.
pub struct Pruner {
    store: Arc<dyn Store>,
    retention: Retention,
}

/// Units per round: a pruning must not hold up the workers' commits.
const LIMIT: u32 = 1_000;
/// Between rounds while there is more, for the same reason.
const BREATH: Duration = Duration::from_millis(20);

impl Pruner {
    /// A pruner.
    pub fn new(store: Arc<dyn Store>, retention: Retention) -> Self {
        Self { store, retention }
    }
}

impl Service for Pruner {
    const NAME: &'static str = "pruner";

    fn every(&self) -> Duration {
        Duration::from_secs(60)
    }

    async fn run_once(&mut self, _now: Instant) -> Result<Report> {
        let pruned = self.store.prune(self.retention, LIMIT).await?;
        let next = pruned.more.then_some(BREATH);
        Ok(Report { moved: pruned.units + pruned.batches + pruned.deeds, more: false, next })
    }
}
