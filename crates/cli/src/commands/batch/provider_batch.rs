//! Finds the units that run batches' provider batches, and wakes them when there is work that they
//! cannot know of.

use std::collections::HashSet;

use longshore::store::{UnitAction, UnitFilter, UnitSelection};
use longshore::{BatchId, Error, Kind, Result, Scope, Store, UnitId};
use longshore_batch::definition::PROVIDER_BATCH_KIND;
use longshore_batch::provider_batch::ProviderBatchInput;

/// Units in the list that is searched: the newest are first.
const PAGE_SIZE: u32 = 1_000;

/// Wakes the provider-batch units of these batches, and returns their ids.
pub async fn wake(store: &dyn Store, scope: &Scope, batches: &HashSet<&BatchId>) -> Result<Vec<UnitId>> {
    let found = find_units(store, scope, batches).await?;
    if !found.is_empty() {
        let units = UnitSelection::Ids(found.clone());
        store.apply_unit_action(scope, units, UnitAction::Wake).await?;
    }
    Ok(found)
}

/// The ids of the live ones.
async fn find_units(store: &dyn Store, scope: &Scope, batches: &HashSet<&BatchId>) -> Result<Vec<UnitId>> {
    let kind = Kind::new(PROVIDER_BATCH_KIND).map_err(|error| Error::Invalid(error.to_string()))?;
    let filter = UnitFilter { kind: Some(kind), ..UnitFilter::default() };
    let mut found = Vec::new();
    for unit in store.units(scope, &filter, None, PAGE_SIZE).await?.items {
        if unit.state.is_final() {
            continue;
        }
        // Lists leave the payload out.
        let Ok(unit) = store.unit(scope, unit.id).await else { continue };
        let input = unit.payload.parse::<ProviderBatchInput>();
        if input.is_ok_and(|input| batches.contains(&input.batch)) {
            found.push(unit.id);
        }
    }
    Ok(found)
}
