//! Enqueueing: single units, many at once, or a batch with a cursor.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::batch::{Batch, NewBatch};
use crate::name::{BatchId, Scope, TenantId, UnitId};
use crate::unit::NewUnit;

/// The result of sending one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendResult {
    /// It is stored. Also if the same id was sent before.
    Created(UnitId),
    /// This unit has its dedup key, and the sender asked for it.
    Existing(UnitId),
    /// It was rejected.
    Rejected(SendRejection),
}

/// Why a unit was rejected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SendRejection {
    /// This unit has its dedup key.
    #[error("its key is taken by unit {0}")]
    Duplicate(UnitId),
    /// A capacity is reached. Waiting may help: a change of the queue is announced when there is
    /// room.
    #[error("{bound} is full: {live} live units ({bytes} bytes), the limit is {limit}")]
    Full {
        /// The capacity that is reached.
        bound: CapacityScope,
        /// Live units now.
        live: u64,
        /// Their stored bytes.
        bytes: u64,
        /// The limit, for people.
        limit: String,
    },
    /// It depends on a unit that does not exist.
    #[error("it waits for unit {0}, which does not exist")]
    UnknownDependency(UnitId),
    /// Its id cannot be used: another tenant's unit has it.
    #[error("its id {0} cannot be used: send it with a new one")]
    IdTaken(UnitId),
    /// It would be the first one of a queue or kind, and its tenant has too many of these.
    #[error("its tenant has {limit} {what}, the limit: {what} that are not used are removed in time")]
    TooMany {
        /// What there are too many of, for people.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// Its tenant is suspended. Waiting helps only if an operator resumes it.
    #[error("tenant `{0}` is suspended")]
    Suspended(TenantId),
}

impl SendRejection {
    /// Whether it rejects the whole chunk of a batch: its rows must be sent again, so the cursor
    /// must not pass them.
    pub fn rejects_chunk(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Suspended(_) | Self::TooMany { .. })
    }
}

/// What a capacity applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CapacityScope {
    /// A queue, over all tenants.
    Queue,
    /// One tenant's lane of a queue.
    Lane,
    /// A tenant, over all queues.
    Tenant,
}

impl std::fmt::Display for CapacityScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Queue => "queue",
            Self::Lane => "lane",
            Self::Tenant => "tenant",
        })
    }
}

/// The result of opening a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum OpenBatchResult {
    /// The batch is new.
    Created(Batch),
    /// The batch exists: continue at its cursor.
    Existing(Batch),
}

/// A part of a batch, and the initiator's cursor before and after it.
#[derive(Debug, Clone)]
pub struct BatchChunk {
    /// The cursor that the initiator expects. Empty before the first chunk.
    pub expected: String,
    /// The cursor after the chunk.
    pub next: String,
    /// The units.
    pub units: Vec<NewUnit>,
}

/// The result of adding a chunk.
#[derive(Debug, Clone, PartialEq)]
pub enum AddChunkResult {
    /// The chunk and the cursor are stored; one result per unit. If a unit exceeds a capacity or
    /// its tenant is suspended, nothing of the chunk is stored and the results say why.
    Committed(Vec<SendResult>),
    /// Another initiator (or an earlier attempt of this chunk) moved the cursor: continue from
    /// here.
    CursorMoved(String),
}

/// Enqueueing.
#[async_trait]
pub trait Enqueue: Send + Sync + 'static {
    /// Stores units, one result each; a rejected unit does not affect the others. All units must be
    /// within `scope`.
    async fn send(&self, scope: &Scope, units: Vec<NewUnit>) -> Result<Vec<SendResult>>;

    /// Writes a batch's record, or returns the existing one.
    async fn open_batch(&self, scope: &Scope, batch: NewBatch) -> Result<OpenBatchResult>;

    /// Stores a chunk and moves the cursor, both or neither: an initiator that was killed continues
    /// without gap or repeat. Fails once the batch is sealed or has ended.
    async fn add_to_batch(&self, scope: &Scope, id: &BatchId, chunk: BatchChunk) -> Result<AddChunkResult>;
}
