//! Waits for the completion units of batches.
//!
//! A completion unit runs a batch's end hooks. It is sent in the transaction that ends a generation
//! of its batch. It is searched for once and then followed by its id: it may change its state at
//! any time, and a list filtered by state could miss it.

use std::collections::HashMap;
use std::time::Duration;

use longshore::store::{Page, UnitFilter};
use longshore::{Batch, BatchId, Error, Kind, Result, Scope, Store, Unit, UnitId, UnitState};
use longshore_batch::completion::CompletionInput;
use longshore_batch::definition::COMPLETION_KIND;

/// The longest wait for a change before the state is read again.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Completion units per page of the list.
const PAGE_SIZE: u32 = 1_000;
/// Pages to search: the list begins with the newest, and the units in question are new.
const MAX_PAGES: u32 = 50;

/// The state of a batch's completion unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompletionStatus {
    /// It ran, or there is none to run.
    Done,
    /// It failed, for this reason.
    Failed(String),
    /// It has not run yet.
    Pending,
}

/// The completion units of some batches.
pub struct CompletionUnits<'a> {
    store: &'a dyn Store,
    scope: &'a Scope,
    found: HashMap<BatchId, UnitId>,
}

impl<'a> CompletionUnits<'a> {
    /// Finds the completion units of these batches' current generations. A unit that is not found
    /// has run and was pruned long ago.
    pub async fn find(
        store: &'a dyn Store,
        scope: &'a Scope,
        batches: impl Iterator<Item = &Batch>,
    ) -> Result<Self> {
        let sent = batches.filter(|batch| batch.announced == batch.generation);
        let mut wanted = sent.map(|batch| (batch.id.clone(), batch.generation)).collect();
        let mut units_of_batches = Self { store, scope, found: HashMap::new() };
        let mut after = None;
        for _ in 0..MAX_PAGES {
            let page = units_of_batches.page(after.as_deref()).await?;
            units_of_batches.record_matching(&page.items, &mut wanted).await;
            after = page.next;
            if wanted.is_empty() || after.is_none() {
                break;
            }
        }
        Ok(units_of_batches)
    }

    /// Completion units of all batches, newest first, in any state.
    async fn page(&self, after: Option<&str>) -> Result<Page<Unit>> {
        let kind = Kind::new(COMPLETION_KIND).map_err(|error| Error::Invalid(error.to_string()))?;
        let filter = UnitFilter { kind: Some(kind), ..UnitFilter::default() };
        self.store.units(self.scope, &filter, after, PAGE_SIZE).await
    }

    /// Records the units that belong to a wanted batch and generation.
    async fn record_matching(&mut self, units: &[Unit], wanted: &mut HashMap<BatchId, u32>) {
        for unit in units {
            if wanted.is_empty() {
                return;
            }
            // Lists leave the payload out. A unit that was pruned meanwhile ran long ago.
            let Ok(unit) = self.store.unit(self.scope, unit.id).await else { continue };
            let Ok(input) = unit.payload.parse::<CompletionInput>() else { continue };
            if wanted.get(&input.batch) == Some(&input.generation) {
                wanted.remove(&input.batch);
                self.found.insert(input.batch, unit.id);
            }
        }
    }

    /// The state of this batch's completion unit.
    pub async fn status(&self, batch: &BatchId) -> Result<CompletionStatus> {
        let Some(id) = self.found.get(batch) else { return Ok(CompletionStatus::Done) };
        match self.store.unit(self.scope, *id).await {
            Ok(unit) => Ok(status_of(unit)),
            Err(Error::NotFound { .. }) => Ok(CompletionStatus::Done),
            Err(error) => Err(error),
        }
    }

    /// Returns once no completion unit is pending.
    pub async fn wait(&self) -> Result<()> {
        let mut cursor = self.store.changes(self.scope, u64::MAX, Duration::ZERO).await?.cursor;
        for batch in self.found.keys() {
            while self.status(batch).await? == CompletionStatus::Pending {
                cursor = self.store.changes(self.scope, cursor, POLL_INTERVAL).await?.cursor;
            }
        }
        Ok(())
    }
}

fn status_of(unit: Unit) -> CompletionStatus {
    match unit.state {
        UnitState::Done => CompletionStatus::Done,
        UnitState::Failed => {
            let why = unit.failure.map_or_else(String::new, |failure| failure.message);
            CompletionStatus::Failed(why)
        }
        UnitState::Cancelled => CompletionStatus::Failed("it was cancelled".to_owned()),
        _ => CompletionStatus::Pending,
    }
}
