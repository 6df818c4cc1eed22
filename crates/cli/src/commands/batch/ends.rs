//! Waiting until the ends of batches have been announced.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use longshore::store::UnitFilter;
use longshore::{BatchId, Kind, Scope, Store, Unit, UnitState};
use longshore_batch::definition::END_KIND;
use longshore_batch::end::Ended;

/// How long a change is waited for before we look all the same.
const LOOK: Duration = Duration::from_secs(1);
/// How many ends are looked through: those of the last batches are the first in the list.
const MANY: u32 = 1_000;

/// Returns once the ends of these batches have been announced, with what went wrong for each that
/// could not be.
pub async fn said(
    store: &dyn Store,
    scope: &Scope,
    batches: &[BatchId],
) -> anyhow::Result<HashMap<BatchId, String>> {
    let mut cursor = store.changes(scope, u64::MAX, Duration::ZERO).await?.cursor;
    while !in_state(store, scope, batches, &UnitState::ALL[..4]).await?.is_empty() {
        cursor = store.changes(scope, cursor, LOOK).await?.cursor;
    }
    let failed = in_state(store, scope, batches, &[UnitState::Failed]).await?;
    let why = |unit: Unit| unit.failure.map_or_else(String::new, |failure| failure.message);
    Ok(failed.into_iter().map(|(batch, unit)| (batch, why(unit))).collect())
}

/// The newest announcement of each batch that is in one of these states.
async fn in_state(
    store: &dyn Store,
    scope: &Scope,
    batches: &[BatchId],
    states: &[UnitState],
) -> anyhow::Result<Vec<(BatchId, Unit)>> {
    let kind = Some(Kind::new(END_KIND)?);
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for state in states {
        let filter =
            UnitFilter { kind: kind.clone(), state: Some(*state), ..UnitFilter::default() };
        for unit in store.units(scope, &filter, None, MANY).await?.items {
            // Lists leave the payload out. Pruned meanwhile: then it was said long ago.
            let Ok(unit) = store.unit(scope, unit.id).await else { continue };
            let Ok(ended) = unit.payload.parse::<Ended>() else { continue };
            if batches.contains(&ended.batch) && seen.insert(ended.batch.clone()) {
                found.push((ended.batch, unit));
            }
        }
    }
    Ok(found)
}
