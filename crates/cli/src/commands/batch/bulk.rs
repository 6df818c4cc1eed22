//! The conductors of batches that ask together: finding them, and waking them when there is something to do that
//! they could not know of.

use std::collections::HashSet;

use longshore::store::{UnitAction, UnitFilter, UnitSelection};
use longshore::{BatchId, Error, Kind, Result, Scope, Store, UnitId};
use longshore_batch::conductor::BulkInput;
use longshore_batch::definition::BULK_KIND;

/// Conductors in the list that is looked through: the newest are first.
const MANY: u32 = 1_000;

/// Has the conductors of these batches look now; which they are.
pub async fn wake(
    store: &dyn Store,
    scope: &Scope,
    batches: &HashSet<&BatchId>,
) -> Result<Vec<UnitId>> {
    let found = conductors(store, scope, batches).await?;
    if !found.is_empty() {
        let units = UnitSelection::Ids(found.clone());
        store.operate_units(scope, units, UnitAction::Wake).await?;
    }
    Ok(found)
}

/// Those that are live.
async fn conductors(
    store: &dyn Store,
    scope: &Scope,
    batches: &HashSet<&BatchId>,
) -> Result<Vec<UnitId>> {
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
        if input.is_ok_and(|input| batches.contains(&input.batch)) {
            found.push(unit.id);
        }
    }
    Ok(found)
}
