//! The conductors of batches that ask together: they settle what is left when a batch is over, and are waited
//! for, so that nothing is left with a provider that nobody looks at.

use std::collections::HashSet;
use std::time::Duration;

use longshore::store::{UnitAction, UnitFilter, UnitSelection};
use longshore::{BatchId, Error, Kind, Result, UnitId};
use longshore_batch::Initiation;
use longshore_batch::conductor::BulkInput;
use longshore_batch::definition::BULK_KIND;

use super::{Conducted, Conductor};

/// How long a change is waited for before we look all the same.
const LOOK: Duration = Duration::from_secs(1);
/// Conductors in the list that is looked through: the newest are first, and ours are new.
const MANY: u32 = 1_000;

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
        let units = self.conductors(over).await?;
        if units.is_empty() {
            return Ok(());
        }
        let woken = UnitSelection::Ids(units.clone());
        store.operate_units(scope, woken, UnitAction::Wake).await?;
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

    async fn conductors(self, over: &HashSet<&BatchId>) -> Result<Vec<UnitId>> {
        let (store, scope) = (&self.place.store, self.place.client.scope());
        let kind = Kind::new(BULK_KIND).map_err(|error| Error::Invalid(error.to_string()))?;
        let filter = UnitFilter { kind: Some(kind), ..UnitFilter::default() };
        let mut found = Vec::new();
        for unit in store.units(scope, &filter, None, MANY).await?.items {
            if unit.state.is_final() {
                continue;
            }
            // Lists leave the payload out.
            let Ok(unit) = store.unit(scope, unit.id).await else { continue };
            let input = unit.payload.parse::<BulkInput>();
            if input.is_ok_and(|input| over.contains(&input.batch)) {
                found.push(unit.id);
            }
        }
        Ok(found)
    }
}
