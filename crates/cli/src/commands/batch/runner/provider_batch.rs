//! Waits for the units that run provider batches: when a batch is over they cancel or collect what
//! is left, so that no request stays at a provider unattended.

use std::collections::HashSet;
use std::time::Duration;

use longshore::{BatchId, Error, Result};
use longshore_batch::BatchFill;

use super::{BatchRun, LocalRunner};
use crate::commands::batch::provider_batch;

/// The longest wait for a change before the unit is read again.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The batches that use a provider's batches.
pub(super) fn wanted(initiations: &[BatchFill]) -> HashSet<BatchId> {
    let uses_provider_batches = initiations.iter().filter(|one| one.definition().provider_batch().is_some());
    uses_provider_batches.map(|one| one.batch().id.clone()).collect()
}

impl LocalRunner<'_> {
    /// Returns once the provider-batch units of finished batches have ended, or a signal arrives.
    pub(super) async fn wait_for_provider_batches(
        self,
        all: &[anyhow::Result<BatchRun>],
        uses_provider_batches: &HashSet<BatchId>,
    ) {
        let over = all.iter().flatten().filter(|one| one.batch.status.is_final());
        let over: HashSet<&BatchId> =
            over.map(|one| &one.batch.id).filter(|id| uses_provider_batches.contains(*id)).collect();
        if over.is_empty() {
            return;
        }
        tokio::select! {
            gone = self.wait_until_ended(&over) => if let Err(error) = gone {
                tracing::warn!(%error, "cannot wait for the provider's batches");
            },
            () = self.shutdown.drain_requested() => {}
        }
    }

    async fn wait_until_ended(self, over: &HashSet<&BatchId>) -> Result<()> {
        let (store, scope) = (&self.context.store, self.context.client.scope());
        let mut cursor = store.changes(scope, u64::MAX, Duration::ZERO).await?.cursor;
        let units = provider_batch::wake(&**store, scope, over).await?;
        for unit in units {
            loop {
                match store.unit(scope, unit).await {
                    Ok(unit) if !unit.state.is_final() => {}
                    Ok(_) | Err(Error::NotFound { .. }) => break,
                    Err(error) => return Err(error),
                }
                cursor = store.changes(scope, cursor, POLL_INTERVAL).await?.cursor;
            }
        }
        Ok(())
    }
}
