//! The conductors of batches that ask together: they settle what is left when a batch is over, and are waited
//! for, so that nothing is left with a provider that nobody looks at.

use std::collections::HashSet;
use std::time::Duration;

use longshore::{BatchId, Error, Result};
use longshore_batch::Initiation;

use super::{Conducted, Conductor};
use crate::commands::batch::bulk;

/// How long a change is waited for before we look all the same.
const LOOK: Duration = Duration::from_secs(1);

/// The batches whose rows ask together.
pub(super) fn wanted(initiations: &[Initiation]) -> HashSet<BatchId> {
    let bulky = initiations.iter().filter(|one| one.definition().ai.provider_batch.is_some());
    bulky.map(|one| one.batch().id.clone()).collect()
}

impl Conductor<'_> {
    /// Returns once the conductors of batches that are over are gone, or a signal says not to wait.
    pub(super) async fn carried(self, all: &[anyhow::Result<Conducted>], bulky: &HashSet<BatchId>) {
        let over = all.iter().flatten().filter(|one| one.batch.status.is_final());
        let over: HashSet<&BatchId> =
            over.map(|one| &one.batch.id).filter(|id| bulky.contains(*id)).collect();
        if over.is_empty() {
            return;
        }
        tokio::select! {
            gone = self.gone(&over) => if let Err(error) = gone {
                tracing::warn!(%error, "what is left with the provider was not looked at");
            },
            () = self.halt.drain() => {}
        }
    }

    async fn gone(self, over: &HashSet<&BatchId>) -> Result<()> {
        let (store, scope) = (&self.place.store, self.place.client.scope());
        let mut cursor = store.changes(scope, u64::MAX, Duration::ZERO).await?.cursor;
        let units = bulk::wake(&**store, scope, over).await?;
        for unit in units {
            loop {
                match store.unit(scope, unit).await {
                    Ok(unit) if !unit.state.is_final() => {}
                    Ok(_) | Err(Error::NotFound { .. }) => break,
                    Err(error) => return Err(error),
                }
                cursor = store.changes(scope, cursor, LOOK).await?.cursor;
            }
        }
        Ok(())
    }
}
