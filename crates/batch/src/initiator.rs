//! Starting a batch (AIBATSTRT): its record first, then its rows, in key order and in chunks, each
//! in one transaction with the initiator's cursor. So an initiator may be killed anywhere, or two
//! may fill the same batch: no row is left out, none is sent twice.
//!
//! Nothing is kept in memory that the store does not know: filling may be dropped at any await and
//! taken up again, by anyone.

mod cursor;
mod error;
mod fill;
mod page;
mod record;
mod step;
mod unit;
mod watch;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use longshore::name::NameError;
use longshore::{
    Batch, BatchId, BatchStatus, BatchWriter, Client, Error, NewBatch, SendError, Timestamp, UnitId,
};
use serde_json::json;

use crate::definition::Definition;
use crate::names;
use crate::rows::RowSource;

use cursor::Cursor;
pub use error::InitiateError;
use fill::Fill;
pub use record::definition_of;

/// Rows read from the database at once.
const PAGE: u32 = 10_000;
/// Rows sent at once: more would hold up others' commits.
const CHUNK: u64 = 1_000;
/// Batches that may be started within one second.
const MAX_SEQUENCE: u32 = 999;

/// Starts batches and fills them.
#[derive(Clone)]
pub struct Initiator {
    client: Client,
    source: Arc<dyn RowSource>,
    page: u32,
    chunk: u64,
}

/// What is said about a batch when it is started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartOptions {
    /// The time it is named after.
    pub now: Timestamp,
    /// Who or what starts it.
    pub initiated_by: String,
    /// Words for people.
    pub notes: String,
}

/// A batch that is being filled.
#[derive(Debug)]
pub struct Initiation {
    definition: Definition,
    writer: BatchWriter,
    batch: Batch,
    progress: Filling,
}

impl Initiation {
    fn new(definition: Definition, writer: BatchWriter) -> Result<Self, InitiateError> {
        let batch = writer.batch().clone();
        let progress = Filling::of(&batch, &Cursor::read(&batch.cursor)?);
        Ok(Self { definition, writer, batch, progress })
    }

    /// The batch as it was last seen.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// What the batch is to do.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// How far it is filled.
    pub fn progress(&self) -> Filling {
        self.progress
    }
}

/// How far a batch is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Filling {
    /// Rows in the batch.
    pub sent: u64,
    /// Candidates that were left to the batch that has them.
    pub skipped: u64,
}

impl Filling {
    fn of(batch: &Batch, cursor: &Cursor) -> Self {
        let sent = batch.counts.total();
        Self { sent, skipped: cursor.rows.saturating_sub(sent) }
    }
}

/// What filling came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filled {
    /// How far it got.
    pub progress: Filling,
    /// Why it ended.
    pub end: FillEnd,
}

/// Why filling ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillEnd {
    /// All rows are in.
    Sealed,
    /// It was told to stop; somebody may go on.
    Stopped,
    /// The batch was given up.
    GivenUp(BatchStatus),
}

impl Initiator {
    /// An initiator for batches whose rows are in `source`.
    pub fn new(client: Client, source: Arc<dyn RowSource>) -> Self {
        Self { client, source, page: PAGE, chunk: CHUNK }
    }

    /// Reads and sends so many rows at a time. Tests want few.
    #[must_use]
    pub fn with_sizes(mut self, page: u32, chunk: u32) -> Self {
        (self.page, self.chunk) = (page.max(1), u64::from(chunk.max(1)));
        self
    }

    /// Writes the record of a new batch: from then on it can be seen, filled and resumed.
    pub async fn start(
        &self,
        definition: Definition,
        options: StartOptions,
    ) -> Result<Initiation, InitiateError> {
        // What the batch's own opening is recognised by, should its answer be lost.
        let mark = json!({ "initiation": UnitId::new() });
        let mut taken = None;
        for sequence in 1..=MAX_SEQUENCE {
            let id = names::batch_id(options.now, sequence).map_err(bad_name)?;
            let batch = record::new_batch(id, &definition, &options, mark.clone())?;
            match self.client.open_batch(batch).await {
                Ok(writer) if !writer.resumed() || record::carries(writer.batch(), &mark) => {
                    return Initiation::new(definition, writer);
                }
                Ok(_) => {}
                // Perhaps because the name is another tenant's, which is not for us to know.
                Err(SendError::Store(error @ Error::Invalid(_))) => taken = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        let words = || InitiateError::Data("too many batches were started this second".to_owned());
        Err(taken.map_or_else(words, InitiateError::Store))
    }

    /// Opens the batch of this name, or takes it up as it was started, where its initiator is: for
    /// whoever may be asked twice to start the same batch.
    pub async fn start_named(
        &self,
        id: &BatchId,
        definition: Definition,
        options: StartOptions,
    ) -> Result<Initiation, InitiateError> {
        let mark = json!({ "initiation": id });
        let batch = record::new_batch(id.clone(), &definition, &options, mark)?;
        let writer = self.client.open_batch(batch).await?;
        if writer.resumed() {
            return Initiation::new(definition_of(&self.client, id).await?, writer);
        }
        Initiation::new(definition, writer)
    }

    /// Takes up a batch where its initiator is, in this process' life or in another.
    pub async fn resume(&self, id: &BatchId) -> Result<Initiation, InitiateError> {
        let definition = definition_of(&self.client, id).await?;
        let writer = self.reopen(id, &definition).await?;
        Initiation::new(definition, writer)
    }

    /// Puts the candidates into the batch, as fast as its workers end them, and seals it. Ends
    /// early, without an error, once `stop` is over (pass [`std::future::pending`] for never).
    pub async fn fill(
        &self,
        initiation: &mut Initiation,
        stop: impl Future<Output = ()>,
        mut on_progress: impl FnMut(Filling) + Send,
    ) -> Result<Filled, InitiateError> {
        let filling = self.fill_to_end(initiation, &mut on_progress);
        let end = tokio::select! {
            biased;
            () = stop => FillEnd::Stopped,
            end = filling => end?,
        };
        Ok(Filled { progress: initiation.progress, end })
    }

    // Boxed, so that it is compiled in this crate and not, less carefully, in the caller's.
    fn fill_to_end<'a>(
        &'a self,
        initiation: &'a mut Initiation,
        on_progress: &'a mut (dyn FnMut(Filling) + Send),
    ) -> BoxFuture<'a, Result<FillEnd, InitiateError>> {
        Box::pin(async { Fill::begin(self, initiation).await?.run(on_progress).await })
    }

    /// The batch's writer at the cursor where the store has it.
    async fn reopen(
        &self,
        id: &BatchId,
        definition: &Definition,
    ) -> Result<BatchWriter, InitiateError> {
        let mut batch = NewBatch::new(id.clone());
        batch.tenant = definition.tenant.clone();
        Ok(self.client.open_batch(batch).await?)
    }
}

fn bad_name(error: NameError) -> InitiateError {
    InitiateError::Data(error.to_string())
}
