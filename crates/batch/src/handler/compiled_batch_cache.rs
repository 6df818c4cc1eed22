//! LRU cache of compiled batches.

use std::sync::{Arc, Mutex, PoisonError};

use longshore::{BatchId, Context};
use tokio::sync::OnceCell;

use super::compiled_batch::{BatchLoadError, CompiledBatch, Dependencies, definition};

/// Compiled batches kept. A worker serves a handful at a time.
const MAX_BATCHES: usize = 64;

type BatchCell = Arc<OnceCell<Arc<CompiledBatch>>>;

/// Compiled batches by id.
pub(super) struct BatchCache {
    dependencies: Dependencies,
    /// Most recently used first.
    cells: Mutex<Vec<(BatchId, BatchCell)>>,
}

impl BatchCache {
    pub(super) fn new(dependencies: Dependencies) -> Self {
        Self { dependencies, cells: Mutex::default() }
    }

    /// The compiled batch of a unit. Concurrent rows wait for one compilation; after a failure the
    /// next row compiles again.
    pub(super) async fn get(&self, context: &Context) -> Result<Arc<CompiledBatch>, BatchLoadError> {
        let batch = context.unit().batch.as_ref().ok_or(BatchLoadError::NoBatch)?;
        let cell = self.cell(batch);
        let compile = async || {
            let definition = definition(context, batch).await?;
            self.dependencies.compile(batch, definition).await.map(Arc::new)
        };
        cell.get_or_try_init(compile).await.cloned()
    }

    fn cell(&self, batch: &BatchId) -> BatchCell {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        match cells.iter().position(|(known, _)| known == batch) {
            Some(0) => {}
            Some(at) => cells[..=at].rotate_right(1),
            None => {
                cells.truncate(MAX_BATCHES - 1);
                cells.insert(0, (batch.clone(), BatchCell::default()));
            }
        }
        Arc::clone(&cells[0].1)
    }
}
