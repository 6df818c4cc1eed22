//! Queries that stay cheap at any size of the store.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::batch::{Batch, BatchStatus};
use crate::counts::Counts;
use crate::name::{BatchId, Kind, QueueName, Scope, SessionId, TenantId, UnitId};
use crate::outcome::Failure;
use crate::store::Capacity;
use crate::time::Timestamp;
use crate::unit::{Payload, Unit, UnitState};
use crate::worker_session::Session;

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Cursor of the next page; `None` at the end.
    pub next: Option<String>,
}

/// Selects units. Newest first.
#[derive(Debug, Clone, Default)]
pub struct UnitFilter {
    /// In this state.
    pub state: Option<UnitState>,
    /// In this queue.
    pub queue: Option<QueueName>,
    /// Of this kind.
    pub kind: Option<Kind>,
    /// Of this batch.
    pub batch: Option<BatchId>,
}

/// One tenant's lane of a queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueInfo {
    /// The queue.
    pub queue: QueueName,
    /// The lane's tenant.
    pub tenant: TenantId,
    /// Whether claims skip this lane: it is paused, or the whole queue.
    pub paused: bool,
    /// Whether the whole queue is paused.
    pub queue_paused: bool,
    /// Whether this lane is paused.
    pub lane_paused: bool,
    /// Whether the lane's tenant is suspended: claims skip all its lanes.
    pub suspended: bool,
    /// The lane's weight.
    pub weight: u32,
    /// How many of the lane's units may be leased at once.
    pub cap: Option<u32>,
    /// The queue's capacity.
    pub capacity: Capacity,
    /// The lane's own capacity.
    pub lane_capacity: Capacity,
    /// The lane's units by state.
    pub counts: Counts,
    /// Stored bytes of its live units.
    pub bytes: u64,
    /// When its oldest ready unit became ready.
    pub oldest_ready: Option<Timestamp>,
}

/// Totals over the queues that a worker could claim from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Totals {
    /// Units by state.
    pub counts: Counts,
    /// Batches that are neither sealed nor ended.
    pub open_batches: u64,
    /// Open sessions.
    pub sessions: u64,
}

/// A run that did not succeed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnitFailure {
    /// The attempt.
    pub attempt: u32,
    /// When it ended.
    pub at: Timestamp,
    /// The session that ran it.
    pub session: Option<SessionId>,
    /// The failure.
    #[serde(flatten)]
    pub failure: Failure,
}

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Topic {
    /// Units entered or left this queue, or its settings changed.
    Queue(QueueName),
    /// The counters or the status of this batch.
    Batch(BatchId),
    /// This unit ended, and a client waits for it ([`crate::NewUnit::awaited`]).
    Unit(UnitId),
    /// This session was opened, ended or given a command.
    Session(SessionId),
    /// Cached data: profiles, tenants, settings.
    Setting(String),
}

/// One entry of the change feed. Coalesced: one per topic and commit, not one per unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Its position in the feed.
    pub seq: u64,
    /// What changed.
    pub topic: Topic,
}

/// Consecutive entries of the change feed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ChangeSet {
    /// Pass it as `since` to continue.
    pub cursor: u64,
    /// The entries.
    pub changes: Vec<Change>,
    /// The feed was pruned past `since`: reload everything.
    pub missed: bool,
}

/// A violated invariant, found by `verify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The invariant's name.
    pub rule: String,
    /// What was found.
    pub found: String,
}

/// Queries.
#[async_trait]
pub trait Queries: Send + Sync + 'static {
    /// One unit.
    async fn unit(&self, scope: &Scope, id: UnitId) -> Result<Unit>;

    /// Units, newest first: by when they entered `filter.state` if that is set, else by when they
    /// were sent. Payloads, checkpoints and results are empty.
    async fn units(
        &self,
        scope: &Scope,
        filter: &UnitFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Unit>>;

    /// The runs of a unit that did not succeed, oldest first.
    async fn failures(&self, scope: &Scope, id: UnitId) -> Result<Vec<UnitFailure>>;

    /// Lanes, by queue and tenant.
    async fn queues(&self, scope: &Scope) -> Result<Vec<QueueInfo>>;

    /// One batch, by its name, or by its [`Batch::number`] if no batch has that name.
    async fn batch(&self, scope: &Scope, id: &BatchId) -> Result<Batch>;

    /// A batch's opaque data for its workers: [`crate::NewBatch::definition`].
    async fn definition(&self, scope: &Scope, id: &BatchId) -> Result<Option<Payload>>;

    /// Batches, newest first.
    async fn batches(
        &self,
        scope: &Scope,
        status: Option<BatchStatus>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Batch>>;

    /// Open sessions.
    async fn sessions(&self) -> Result<Vec<Session>>;

    /// Totals over the named queues, or all.
    async fn totals(&self, scope: &Scope, queues: &super::Queues) -> Result<Totals>;

    /// Changes after `since`; if there are none, waits up to `wait` for one. A `since` of
    /// `u64::MAX` means from now on.
    async fn changes(&self, scope: &Scope, since: u64, wait: Duration) -> Result<ChangeSet>;

    /// Returns when a unit may have become claimable since `seen`, at the latest after `wait`, with
    /// the number to pass next time (first time: 0). It may wake spuriously, but never misses a
    /// commit made after the call that returned `seen`.
    async fn wait_for_ready(&self, seen: u64, wait: Duration) -> u64;

    /// Recounts everything, compares with the stored counters, and checks the invariants.
    async fn verify(&self) -> Result<Vec<Violation>>;
}
