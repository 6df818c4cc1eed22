//! The rows of a batch, page by page, with what became of them.

use longshore::store::{Page, UnitFilter};
use longshore::{BatchId, Result, Scope, Store, Unit, UnitId, UnitState};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::handler::RowInput;

/// A row as scripts read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListedRow {
    /// What it is known by. A batch of other units has no rows; their payload stands here.
    pub key: Value,
    /// Where it stands.
    pub state: UnitState,
    /// Attempts used so far.
    pub attempt: u32,
    /// The sort of its last failure.
    pub code: Option<String>,
    /// The words of its last failure.
    pub reason: Option<String>,
    /// The unit that it is.
    pub unit: UnitId,
    /// What is kept of it.
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

/// Rows of a batch, newest first, all or those in one state. An unknown batch is an error, not an
/// empty list.
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
        // Lists leave out what rows are known by.
        if let Ok(unit) = store.unit(scope, unit.id).await {
            items.push(unit.into());
        }
    }
    Ok(Page { items, next: found.next })
}
