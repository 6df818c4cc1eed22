//! Lists the rows of a batch with their outcome, page by page.

use longshore::store::{Page, UnitFilter};
use longshore::{BatchId, Result, Scope, Store, Unit, UnitId, UnitState};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::handler::RowInput;

/// A row in a list, as JSON for scripts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListedRow {
    /// The row's key. For a unit that is no row, its payload.
    pub key: Value,
    /// The unit's state.
    pub state: UnitState,
    /// Attempts used so far.
    pub attempt: u32,
    /// The code of its last failure.
    pub code: Option<String>,
    /// The message of its last failure.
    pub reason: Option<String>,
    /// The row's unit.
    pub unit: UnitId,
    /// The stored result.
    pub result: Option<Value>,
}

impl From<Unit> for ListedRow {
    fn from(unit: Unit) -> Self {
        let input = unit.payload.parse::<RowInput>();
        let (code, reason) = unit.failure.map(|why| (why.code, why.message)).unzip();
        Self {
            key: input.map_or_else(|_| unit.payload.parse().unwrap_or_default(), |input| input.key),
            state: unit.state,
            attempt: unit.attempt,
            code,
            reason,
            unit: unit.id,
            result: unit.result.and_then(|result| result.parse().ok()),
        }
    }
}

/// Rows of a batch, newest first, all or in one state. An unknown batch is an error, not an empty
/// list.
pub async fn rows(
    store: &dyn Store,
    scope: &Scope,
    batch: &BatchId,
    state: Option<UnitState>,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<ListedRow>> {
    store.batch(scope, batch).await?;
    let filter = UnitFilter { state, batch: Some(batch.clone()), ..UnitFilter::default() };
    let found = store.units(scope, &filter, after, limit).await?;
    let mut items = Vec::with_capacity(found.items.len());
    for unit in found.items {
        // Lists carry no payloads, so the key is read with the unit.
        if let Ok(unit) = store.unit(scope, unit.id).await {
            items.push(unit.into());
        }
    }
    Ok(Page { items, next: found.next })
}
