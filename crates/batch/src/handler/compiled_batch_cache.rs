//! LRU cache of compiled batches. A corrected definition replaces the compiled one while rows run. A batch of which the
//! database's place was taken by another one is compiled anew, which refuses that database.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore::{BatchId, Context};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::compiled_batch::{
    BatchLoadError, CompiledBatch, Dependencies, definition_payload, parse_definition,
};
use crate::rows::{SourceError, require_database};

/// Compiled batches kept. A worker serves a handful at a time.
const MAX_BATCHES: usize = 64;

/// How often a batch's definition is read again, and its rows' database identified.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

type BatchCell = Arc<OnceCell<Arc<CompiledBatch>>>;

/// Whether the rows' database is another one by now. A source may notice that by itself, but not behind a pooler.
async fn is_elsewhere(compiled: &CompiledBatch) -> bool {
    let checked = require_database(&compiled.definition, &*compiled.source).await;
    matches!(checked, Err(SourceError::WrongDatabase { .. }))
}

/// Compiled batches by id.
pub(super) struct BatchCache {
    dependencies: Dependencies,
    /// Most recently used first.
    entries: Mutex<Vec<CacheEntry>>,
}

struct CacheEntry {
    batch: BatchId,
    cell: BatchCell,
    refreshed: Instant,
}

impl BatchCache {
    pub(super) fn new(dependencies: Dependencies) -> Self {
        Self { dependencies, entries: Mutex::default() }
    }

    /// The compiled batch of a unit. Concurrent rows wait for one compilation; after a failure the
    /// next row compiles again.
    pub(super) async fn get(&self, context: &Context) -> Result<Arc<CompiledBatch>, BatchLoadError> {
        let batch = context.unit().batch.as_ref().ok_or(BatchLoadError::NoBatch)?;
        let (mut cell, is_due) = self.cell(batch);
        if let Some(compiled) = cell.get().filter(|_| is_due)
            && (self.is_revised(context, compiled).await || is_elsewhere(compiled).await)
        {
            cell = self.replace(batch);
        }
        let compile = async || {
            let payload = definition_payload(context, batch).await?;
            let definition = parse_definition(batch, &payload)?;
            self.dependencies.compile(batch, definition, payload).await.map(Arc::new)
        };
        cell.get_or_try_init(compile).await.cloned()
    }

    /// Whether the store has another definition now. If it cannot be read, the row runs with the
    /// compiled one.
    async fn is_revised(&self, context: &Context, compiled: &CompiledBatch) -> bool {
        let Some(batch) = &context.unit().batch else { return false };
        definition_payload(context, batch).await.is_ok_and(|stored| stored != compiled.payload)
    }

    /// The batch's cell, and whether the caller must look for a new definition.
    fn cell(&self, batch: &BatchId) -> (BatchCell, bool) {
        let (mut entries, now) = (self.entries(), Instant::now());
        match entries.iter().position(|entry| entry.batch == *batch) {
            Some(at) => entries[..=at].rotate_right(1),
            None => {
                entries.truncate(MAX_BATCHES - 1);
                let (batch, cell) = (batch.clone(), BatchCell::default());
                entries.insert(0, CacheEntry { batch, cell, refreshed: now });
            }
        }
        let entry = &mut entries[0];
        let is_due = now.duration_since(entry.refreshed) >= REFRESH_INTERVAL;
        if is_due {
            entry.refreshed = now;
        }
        (Arc::clone(&entry.cell), is_due)
    }

    /// Forgets the compiled batch.
    fn replace(&self, batch: &BatchId) -> BatchCell {
        let cell = BatchCell::default();
        if let Some(entry) = self.entries().iter_mut().find(|entry| entry.batch == *batch) {
            entry.cell = Arc::clone(&cell);
        }
        cell
    }

    fn entries(&self) -> MutexGuard<'_, Vec<CacheEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
