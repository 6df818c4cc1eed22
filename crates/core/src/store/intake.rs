//! Sending: one by one, many at once, or as a batch with a cursor.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::batch::{Batch, NewBatch};
use crate::name::{BatchId, Scope, TenantId, UnitId};
use crate::unit::NewUnit;

/// What became of one sent unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// It is in the store. Also the answer when the same id was sent before.
    Created(UnitId),
    /// Its key is taken by this unit, and the sender wanted to know it.
    Existing(UnitId),
    /// It was not taken.
    Refused(Refusal),
}

/// Why a unit was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// Its key is taken by this unit.
    #[error("its key is taken by unit {0}")]
    Duplicate(UnitId),
    /// A bound is reached. Waiting may help: a change of the queue is announced as room appears.
    #[error("{bound} is full: {live} live units ({bytes} bytes), the limit is {limit}")]
    Full {
        /// Whose bound.
        bound: Bound,
        /// Live units under it now.
        live: u64,
        /// Their payloads' bytes.
        bytes: u64,
        /// Which bound was hit, in words.
        limit: String,
    },
    /// It waits for a unit that the store does not know.
    #[error("it waits for unit {0}, which does not exist")]
    UnknownDependency(UnitId),
    /// Its tenant is suspended. Waiting helps only if somebody resumes it.
    #[error("tenant `{0}` is suspended")]
    Suspended(TenantId),
}

impl Refusal {
    /// Whether a chunk of a batch that meets it must stay out as a whole: its rows are to be sent
    /// again, so the cursor must not pass them.
    pub fn keeps_chunk_out(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Suspended(_))
    }
}

/// What has a capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// A queue, over all tenants.
    Queue,
    /// One tenant's part of a queue.
    Lane,
    /// A tenant, over all queues.
    Tenant,
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Queue => "queue",
            Self::Lane => "lane",
            Self::Tenant => "tenant",
        })
    }
}

/// A batch that was opened.
#[derive(Debug, Clone, PartialEq)]
pub enum Opened {
    /// Its record was written just now.
    Created(Batch),
    /// It was there already: take up at its cursor.
    Existing(Batch),
}

/// A part of a batch, and where the initiator stands before and after it.
#[derive(Debug, Clone)]
pub struct BatchChunk {
    /// The cursor that the initiator believes in. Empty before the first chunk.
    pub expected: String,
    /// The cursor once the chunk is in.
    pub next: String,
    /// The units.
    pub units: Vec<NewUnit>,
}

/// What became of a chunk.
#[derive(Debug, Clone, PartialEq)]
pub enum Added {
    /// The chunk and the cursor are in; one answer per unit. If any unit met a bound or its
    /// tenant is suspended, nothing of the chunk is in and the answers say why.
    Committed(Vec<Sent>),
    /// Somebody moved the cursor (or an earlier try of this chunk did): go on from here.
    CursorMoved(String),
}

/// Sending.
#[async_trait]
pub trait Intake: Send + Sync + 'static {
    /// Takes units in, one answer each; a refused unit does not hold up its neighbours. All units
    /// must be within `scope`.
    async fn send(&self, scope: &Scope, units: Vec<NewUnit>) -> Result<Vec<Sent>>;

    /// Writes a batch's record, or finds it.
    async fn open_batch(&self, scope: &Scope, batch: NewBatch) -> Result<Opened>;

    /// Takes in a chunk and moves the cursor, both or neither: a killed initiator goes on without
    /// gap or repeat. Refused once the batch is sealed or given up.
    async fn add_to_batch(&self, scope: &Scope, id: &BatchId, chunk: BatchChunk) -> Result<Added>;

    /// Says that all units are in. Sealing twice is harmless.
    async fn seal_batch(&self, scope: &Scope, id: &BatchId) -> Result<Batch>;
}
