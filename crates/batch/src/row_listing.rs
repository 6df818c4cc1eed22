//! Lists the rows of a batch with their outcome, page by page.

mod filter;

use futures_util::{StreamExt, TryStreamExt, stream};
use longshore::store::{Page, UnitFilter};
use longshore::{BatchId, Error, Result, Scope, Store, Unit, UnitId, UnitState};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::filter::{KeyRange, RowFilter};
use crate::checkpoint::Checkpoint;
use crate::handler::RowInput;

/// Units on a page of a list that is read to its end.
const PAGE: u32 = 1_000;
/// Units read at once: each is a request to the store.
const MAX_READS: usize = 16;

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
    /// The model's answer, if it is kept: of a failed row, or with `keep_answers`.
    #[serde(default)]
    pub answer: Option<String>,
    /// The revision of the definition that its last run used, if it left a result or a checkpoint.
    #[serde(default)]
    pub revision: Option<u32>,
    /// The step before the last one in which its last run failed.
    #[serde(default)]
    pub step: Option<String>,
}

impl From<Unit> for ListedRow {
    fn from(unit: Unit) -> Self {
        let input = unit.payload.parse::<RowInput>();
        let checkpoint = Checkpoint::from_unit(&unit).ok();
        let step = checkpoint.as_ref().and_then(|checkpoint| checkpoint.failed_step.clone());
        let last = checkpoint.as_ref().and_then(|checkpoint| checkpoint.revision);
        let saved = checkpoint.and_then(|saved| saved.answer);
        let (code, reason) = unit.failure.map(|why| (why.code, why.message)).unzip();
        let result: Option<Value> = unit.result.and_then(|result| result.parse().ok());
        let own = result.as_ref().and_then(|result| result.get("revision")?.as_u64());
        let revision = own.and_then(|own| u32::try_from(own).ok()).or(last);
        let kept = result.as_ref().and_then(|result| result["answer"].as_str().map(str::to_owned));
        Self {
            key: input.map_or_else(|_| unit.payload.parse().unwrap_or_default(), |input| input.key),
            state: unit.state,
            attempt: unit.attempt,
            code,
            reason,
            unit: unit.id,
            result,
            answer: kept.or_else(|| saved.map(|answer| answer.text)),
            revision,
            step,
        }
    }
}

/// Rows of a batch that match `filter`, newest first. A page has the matching ones of `limit` rows, so it may be empty
/// although others follow. An unknown batch is an error, not an empty list.
pub async fn rows(
    store: &dyn Store,
    scope: &Scope,
    batch: &BatchId,
    filter: &RowFilter,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<ListedRow>> {
    store.batch(scope, batch).await?;
    let units = UnitFilter { state: filter.state, batch: Some(batch.clone()), ..UnitFilter::default() };
    let found = store.units(scope, &units, after, limit).await?;
    // Lists carry no payloads, so the key is read with the unit.
    let wanted = found.items.into_iter().filter(|unit| filter.admits(unit)).map(|unit| unit.id);
    let reads = stream::iter(wanted).map(|id| async move {
        match store.unit(scope, id).await {
            Ok(unit) => Ok(Some(ListedRow::from(unit))),
            // It was pruned since.
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    });
    let rows: Vec<Option<ListedRow>> = reads.buffered(MAX_READS).try_collect().await?;
    let items = rows.into_iter().flatten().filter(|row| filter.matches(row)).collect();
    Ok(Page { items, next: found.next })
}

/// All rows of a batch, oldest first. `None` if there are more than `max`.
pub async fn all_rows(
    store: &dyn Store,
    scope: &Scope,
    batch: &BatchId,
    max: u64,
) -> Result<Option<Vec<ListedRow>>> {
    if store.batch(scope, batch).await?.counts.total() > max {
        return Ok(None);
    }
    let (filter, mut after, mut all) = (RowFilter::default(), None, Vec::new());
    loop {
        let page = rows(store, scope, batch, &filter, after.as_deref(), PAGE).await?;
        all.extend(page.items);
        after = page.next;
        if after.is_none() {
            all.reverse();
            return Ok(Some(all));
        }
    }
}

/// How many rows of a batch have ended and are still in the store.
pub async fn count_ended(store: &dyn Store, scope: &Scope, batch: &BatchId) -> Result<u64> {
    let filter = UnitFilter { batch: Some(batch.clone()), ..UnitFilter::default() };
    let (mut after, mut ended) = (None, 0);
    loop {
        let page = store.units(scope, &filter, after.as_deref(), PAGE).await?;
        ended += page.items.iter().filter(|unit| unit.state.is_final()).count() as u64;
        after = page.next;
        if after.is_none() {
            return Ok(ended);
        }
    }
}
