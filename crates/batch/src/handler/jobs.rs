//! The batches a worker knows: each compiled once, the least recently used forgotten.

use std::sync::{Arc, Mutex, PoisonError};

use longshore::{BatchId, Context};
use tokio::sync::OnceCell;

use super::job::{Job, JobError, Outfit, definition};

/// How many batches are kept compiled. A worker serves a handful at a time.
const MOST: usize = 64;

type Cell = Arc<OnceCell<Arc<Job>>>;

/// Compiled jobs by batch.
pub(super) struct Jobs {
    outfit: Outfit,
    /// The most recently used first.
    cells: Mutex<Vec<(BatchId, Cell)>>,
}

impl Jobs {
    pub(super) fn new(outfit: Outfit) -> Self {
        Self { outfit, cells: Mutex::default() }
    }

    /// The job of a unit's batch. Rows that come together wait for one compilation; one that went
    /// wrong is tried again by the next row.
    pub(super) async fn of(&self, context: &Context) -> Result<Arc<Job>, JobError> {
        let batch = context.unit().batch.as_ref().ok_or(JobError::NoBatch)?;
        let cell = self.cell(batch);
        let compile = async || {
            let definition = definition(context, batch).await?;
            self.outfit.compile(batch, definition).await.map(Arc::new)
        };
        cell.get_or_try_init(compile).await.cloned()
    }

    fn cell(&self, batch: &BatchId) -> Cell {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        match cells.iter().position(|(known, _)| known == batch) {
            Some(0) => {}
            Some(at) => cells[..=at].rotate_right(1),
            None => {
                cells.truncate(MOST - 1);
                cells.insert(0, (batch.clone(), Cell::default()));
            }
        }
        Arc::clone(&cells[0].1)
    }
}
