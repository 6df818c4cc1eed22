//! Whether the ends of batches have been announced, and waiting for it.
//!
//! An announcement is a unit, sent in the transaction that ends a generation of its batch. It is
//! looked for once and then followed by its id: it may go through many states, and a list by state
//! would miss one that moves meanwhile.

use std::collections::HashMap;
use std::time::Duration;

use longshore::store::{Page, UnitFilter};
use longshore::{Batch, BatchId, Error, Kind, Result, Scope, Store, Unit, UnitId, UnitState};
use longshore_batch::definition::END_KIND;
use longshore_batch::end::Ended;

/// How long a change is waited for before we look all the same.
const LOOK: Duration = Duration::from_secs(1);
/// Announcements in a page of the list.
const MANY: u32 = 1_000;
/// Pages that are looked through: the newest are first, and ours are new.
const PAGES: u32 = 50;

/// How far the announcement of a batch's end is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Announcement {
    /// It was made, or there is none to make.
    Made,
    /// It could not be made, for this reason.
    Failed(String),
    /// It is still to be made.
    Waiting,
}

/// The announcements of some batches' ends.
pub struct Ends<'a> {
    store: &'a dyn Store,
    scope: &'a Scope,
    found: HashMap<BatchId, UnitId>,
}

impl<'a> Ends<'a> {
    /// Finds the announcements of these batches' present generations. One that is not found was
    /// made so long ago that it has been pruned.
    pub async fn find(
        store: &'a dyn Store,
        scope: &'a Scope,
        batches: impl Iterator<Item = &Batch>,
    ) -> Result<Self> {
        let sent = batches.filter(|batch| batch.announced == batch.generation);
        let mut wanted = sent.map(|batch| (batch.id.clone(), batch.generation)).collect();
        let mut ends = Self { store, scope, found: HashMap::new() };
        let mut after = None;
        for _ in 0..PAGES {
            let page = ends.page(after.as_deref()).await?;
            ends.pick(&page.items, &mut wanted).await;
            after = page.next;
            if wanted.is_empty() || after.is_none() {
                break;
            }
        }
        Ok(ends)
    }

    /// Announcements of anybody, newest first, whatever their state.
    async fn page(&self, after: Option<&str>) -> Result<Page<Unit>> {
        let kind = Kind::new(END_KIND).map_err(|error| Error::Invalid(error.to_string()))?;
        let filter = UnitFilter { kind: Some(kind), ..UnitFilter::default() };
        self.store.units(self.scope, &filter, after, MANY).await
    }

    /// Takes those that are wanted: of the batch, and of its generation.
    async fn pick(&mut self, units: &[Unit], wanted: &mut HashMap<BatchId, u32>) {
        for unit in units {
            if wanted.is_empty() {
                return;
            }
            // Lists leave the payload out. Pruned meanwhile: then it was made long ago.
            let Ok(unit) = self.store.unit(self.scope, unit.id).await else { continue };
            let Ok(ended) = unit.payload.parse::<Ended>() else { continue };
            if wanted.get(&ended.batch) == Some(&ended.generation) {
                wanted.remove(&ended.batch);
                self.found.insert(ended.batch, unit.id);
            }
        }
    }

    /// How far the announcement of this batch's end is.
    pub async fn look(&self, batch: &BatchId) -> Result<Announcement> {
        let Some(id) = self.found.get(batch) else { return Ok(Announcement::Made) };
        match self.store.unit(self.scope, *id).await {
            Ok(unit) => Ok(announcement(unit)),
            Err(Error::NotFound { .. }) => Ok(Announcement::Made),
            Err(error) => Err(error),
        }
    }

    /// Returns once none of the announcements is still to be made.
    pub async fn said(&self) -> Result<()> {
        let mut cursor = self.store.changes(self.scope, u64::MAX, Duration::ZERO).await?.cursor;
        for batch in self.found.keys() {
            while self.look(batch).await? == Announcement::Waiting {
                cursor = self.store.changes(self.scope, cursor, LOOK).await?.cursor;
            }
        }
        Ok(())
    }
}

fn announcement(unit: Unit) -> Announcement {
    match unit.state {
        UnitState::Done => Announcement::Made,
        UnitState::Failed => {
            let why = unit.failure.map_or_else(String::new, |failure| failure.message);
            Announcement::Failed(why)
        }
        UnitState::Cancelled => Announcement::Failed("somebody cancelled it".to_owned()),
        _ => Announcement::Waiting,
    }
}
