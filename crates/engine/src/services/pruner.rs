//! Removes ended units, ended batches, audit log entries and calls after their retention.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::store::Retention;
use longshore_core::{Result, Store};
use tokio::time::Instant;

use super::{Service, ServiceReport};

/// Prunes by a retention.
pub struct Pruner {
    store: Arc<dyn Store>,
    retention: Retention,
}

/// Units per round: pruning must not delay the workers' commits.
const MAX_BATCH: u32 = 1_000;
/// Pause between rounds while more is pending, for the same reason.
const BATCH_PAUSE: Duration = Duration::from_millis(20);

impl Pruner {
    /// Creates a pruner.
    pub fn new(store: Arc<dyn Store>, retention: Retention) -> Self {
        Self { store, retention }
    }
}

impl Service for Pruner {
    const NAME: &'static str = "pruner";

    fn interval(&self) -> Duration {
        Duration::from_secs(60)
    }

    async fn run_once(&mut self, _now: Instant) -> Result<ServiceReport> {
        let pruned = self.store.prune(self.retention, MAX_BATCH).await?;
        let next = pruned.more.then_some(BATCH_PAUSE);
        let moved = pruned.units + pruned.batches + pruned.audit_entries + pruned.calls + pruned.lanes;
        Ok(ServiceReport { moved, more: false, next })
    }
}
