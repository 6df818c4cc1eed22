//! Starts a batch (AIBATSTRT): writes its record first, then its rows, in key order and in chunks,
//! each chunk in one transaction with the initiator's cursor. An initiator may be killed at any
//! point, and two may fill the same batch: no row is left out and none is sent twice.
//!
//! All progress is in the store: filling may be dropped at any await and resumed by any process.

mod cursor;
mod error;
mod fill;
mod next_step;
mod pages;
mod record;

mod unit;
mod watcher;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use longshore::name::NameError;
use longshore::{
    Batch, BatchId, BatchStatus, BatchWriter, Client, Error, NewBatch, SendError, Timestamp, UnitId,
};
use serde_json::json;

use crate::batch_id::batch_id;
use crate::definition::{Candidates, Database, Definition};
use crate::rows::{RowSource, has_password, require_database};

use cursor::FillCursor;
pub use error::FillError;
use fill::FillLoop;
pub use record::definition_of;

/// Rows per page read from the database.
const PAGE: u32 = 10_000;
/// Rows per chunk sent to the store: larger chunks would delay other clients' commits.
const CHUNK: u64 = 1_000;
/// Maximum number of batches started within one second.
const MAX_SEQUENCE: u32 = 999;

/// Starts batches and fills them.
#[derive(Clone)]
pub struct RowEnqueuer {
    client: Client,
    source: Arc<dyn RowSource>,
    page: u32,
    chunk: u64,
}

/// Properties of a new batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartOptions {
    /// The time in its id.
    pub now: Timestamp,
    /// The user or program that starts it.
    pub initiated_by: String,
    /// Notes for people.
    pub notes: String,
}

/// A batch that is being filled.
#[derive(Debug)]
pub struct BatchFill {
    definition: Definition,
    writer: BatchWriter,
    batch: Batch,
    progress: FillProgress,
    taken: Vec<TakenRow>,
}

/// A candidate that was skipped because another batch has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenRow {
    /// Its key, for people.
    pub key: String,
    /// The batch that has it, if it can be read.
    pub batch: Option<BatchId>,
}

/// The most skipped candidates that are named.
pub const MAX_TAKEN: usize = 3;

impl BatchFill {
    fn new(definition: Definition, writer: BatchWriter) -> Result<Self, FillError> {
        let batch = writer.batch().clone();
        let progress = FillProgress::of(&batch, &FillCursor::read(&batch.cursor)?, &definition.candidates);
        Ok(Self { definition, writer, batch, progress, taken: Vec::new() })
    }

    /// The batch as last read.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// The batch's definition.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Some of the candidates that this initiator skipped, at most [`MAX_TAKEN`].
    pub fn taken(&self) -> &[TakenRow] {
        &self.taken
    }

    /// How many rows were sent.
    pub fn progress(&self) -> FillProgress {
        self.progress
    }
}

/// How many rows were sent into a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FillProgress {
    /// Rows sent into the batch.
    pub sent: u64,
    /// Candidates skipped because another batch has them.
    pub skipped: u64,
}

impl FillProgress {
    fn of(batch: &Batch, cursor: &FillCursor, candidates: &Candidates) -> Self {
        let sent = batch.counts.total();
        let chosen = candidates.sample.map_or(cursor.rows, |sample| sample.rows_within(cursor.rows));
        Self { sent, skipped: chosen.saturating_sub(sent) }
    }
}

/// The result of filling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FillResult {
    /// How many rows were sent.
    pub progress: FillProgress,
    /// Why it ended.
    pub end: FillEnd,
}

/// Why filling ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillEnd {
    /// All rows are in, and the batch is sealed.
    Sealed,
    /// The caller stopped it; filling can be resumed.
    Stopped,
    /// The batch failed or was cancelled.
    GivenUp(BatchStatus),
}

impl RowEnqueuer {
    /// An initiator that reads the rows from `source`.
    pub fn new(client: Client, source: Arc<dyn RowSource>) -> Self {
        Self { client, source, page: PAGE, chunk: CHUNK }
    }

    /// Sets the page and chunk sizes. Tests use small ones.
    #[must_use]
    pub fn with_sizes(mut self, page: u32, chunk: u32) -> Self {
        (self.page, self.chunk) = (page.max(1), u64::from(chunk.max(1)));
        self
    }

    /// Writes the record of a new batch. From then on it can be listed, filled and resumed.
    pub async fn start(&self, definition: Definition, options: StartOptions) -> Result<BatchFill, FillError> {
        let definition = self.pin(definition).await?;
        // Identifies the batch as ours if the store's reply to `open_batch` is lost.
        let mark = json!({ "initiation": UnitId::new() });
        let expected = self.expected_rows(&definition).await;
        let mut taken = None;
        for sequence in 1..=MAX_SEQUENCE {
            let id = batch_id(options.now, sequence).map_err(bad_name)?;
            let batch = record::new_batch(id, &definition, &options, expected, mark.clone())?;
            match self.client.open_batch(batch).await {
                Ok(writer) if !writer.is_resumed() || record::has_mark(writer.batch(), &mark) => {
                    return BatchFill::new(definition, writer);
                }
                Ok(_) => {}
                // The name may belong to another tenant, which the error must not reveal.
                Err(SendError::Store(error @ Error::Invalid(_))) => taken = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        let too_many = || FillError::Data("too many batches were started this second".to_owned());
        Err(taken.map_or_else(too_many, FillError::Store))
    }

    /// Opens the batch of this name, or resumes it at its cursor if it exists: for callers that may
    /// be asked twice to start the same batch.
    pub async fn start_named(
        &self,
        id: &BatchId,
        definition: Definition,
        options: StartOptions,
    ) -> Result<BatchFill, FillError> {
        let mark = json!({ "initiation": id });
        let definition = self.pin(definition).await?;
        let expected = self.expected_rows(&definition).await;
        let batch = record::new_batch(id.clone(), &definition, &options, expected, mark)?;
        let writer = self.client.open_batch(batch).await?;
        if writer.is_resumed() {
            return BatchFill::new(definition_of(&self.client, id).await?, writer);
        }
        BatchFill::new(definition, writer)
    }

    /// Resumes a batch at its cursor.
    pub async fn resume(&self, id: &BatchId) -> Result<BatchFill, FillError> {
        let definition = definition_of(&self.client, id).await?;
        match require_database(&definition, &*self.source).await {
            // Filling waits for the database, and asks again.
            Err(error) if error.is_retryable() => {}
            checked => checked?,
        }
        let writer = self.reopen(id, &definition).await?;
        BatchFill::new(definition, writer)
    }

    /// Sends the candidates into the batch as fast as its workers finish them, and seals it.
    /// Returns early, without an error, once `stop` completes (pass [`std::future::pending`] for
    /// never).
    pub async fn fill(
        &self,
        initiation: &mut BatchFill,
        stop: impl Future<Output = ()>,
        mut on_progress: impl FnMut(FillProgress) + Send,
    ) -> Result<FillResult, FillError> {
        let filling = self.fill_to_end(initiation, &mut on_progress);
        let end = tokio::select! {
            biased;
            () = stop => FillEnd::Stopped,
            end = filling => end?,
        };
        Ok(FillResult { progress: initiation.progress, end })
    }

    // Boxed, so that it is compiled in this crate, with its optimisation level, and not in the
    // caller's.
    fn fill_to_end<'a>(
        &'a self,
        initiation: &'a mut BatchFill,
        on_progress: &'a mut (dyn FnMut(FillProgress) + Send),
    ) -> BoxFuture<'a, Result<FillEnd, FillError>> {
        Box::pin(async { FillLoop::begin(self, initiation).await?.run(on_progress).await })
    }

    /// The number of candidates, if the database counts them.
    async fn expected_rows(&self, definition: &Definition) -> Option<u64> {
        let candidates = &definition.candidates;
        if let Some(keys) = &candidates.keys {
            return Some(keys.len() as u64);
        }
        if let Some(sample) = candidates.sample {
            return Some(sample.rows.min(sample.of));
        }
        let count = self.source.count(candidates).await;
        let count = count.inspect_err(|error| tracing::debug!(%error, "cannot count the candidates")).ok()?;
        Some(candidates.limit.map_or(count, |limit| limit.min(count)))
    }

    /// The definition with what identifies its database. It is stored, so it must contain no password.
    async fn pin(&self, definition: Definition) -> Result<Definition, FillError> {
        let fingerprint = match &definition.database {
            Database::Store => None,
            Database::Url(url) if has_password(url) => {
                let message = "the database's URL contains a password, which would be stored with the batch; \
                               name a variable or file with the URL, as `env:NAME` or `file:PATH`";
                return Err(FillError::Data(message.to_owned()));
            }
            Database::Url(_) => self.source.fingerprint().await?,
        };
        Ok(Definition { fingerprint, ..definition })
    }

    /// The batch's writer at the cursor that the store has.
    async fn reopen(&self, id: &BatchId, definition: &Definition) -> Result<BatchWriter, FillError> {
        let mut batch = NewBatch::new(id.clone());
        batch.tenant = definition.tenant.clone();
        Ok(self.client.open_batch(batch).await?)
    }
}

fn bad_name(error: NameError) -> FillError {
    FillError::Data(error.to_string())
}
