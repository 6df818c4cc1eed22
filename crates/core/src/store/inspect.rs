//! Inspecting: reads that stay cheap however much the store holds.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::batch::{Batch, BatchStatus};
use crate::counts::Counts;
use crate::name::{BatchId, Kind, QueueName, Scope, SessionId, TenantId, UnitId};
use crate::outcome::Failure;
use crate::session::Session;
use crate::store::Capacity;
use crate::time::Timestamp;
use crate::unit::{Payload, Unit, UnitState};

/// Part of a list, and the way to the next part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    /// This part.
    pub items: Vec<T>,
    /// Pass it to get the next part; `None` at the end.
    pub next: Option<String>,
}

/// Which units are listed. Newest first.
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

/// A queue, or one tenant's lane of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueInfo {
    /// The queue.
    pub queue: QueueName,
    /// The lane's tenant.
    pub tenant: TenantId,
    /// Whether claims pass this lane by: it is paused, or the whole queue.
    pub paused: bool,
    /// Whether the whole queue is paused.
    pub queue_paused: bool,
    /// Whether this lane of it is.
    pub lane_paused: bool,
    /// Whether the lane's tenant is suspended: claims pass all its lanes by.
    pub suspended: bool,
    /// The lane's share.
    pub weight: u32,
    /// How many of the lane's units may be leased at once.
    pub cap: Option<u32>,
    /// The queue's bound.
    pub capacity: Capacity,
    /// The lane's own bound.
    pub lane_capacity: Capacity,
    /// The lane's units by state.
    pub counts: Counts,
    /// Bytes of payload of its live units.
    pub bytes: u64,
    /// When its oldest ready unit became ready.
    pub oldest_ready: Option<Timestamp>,
}

/// Sums over everything a worker could see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Totals {
    /// Units by state.
    pub counts: Counts,
    /// Batches that are neither sealed nor given up.
    pub open_batches: u64,
    /// Workers.
    pub sessions: u64,
}

/// One run that did not end well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnitFailure {
    /// Which attempt.
    pub attempt: u32,
    /// When it ended.
    pub at: Timestamp,
    /// Who ran it.
    pub session: Option<SessionId>,
    /// Why.
    #[serde(flatten)]
    pub failure: Failure,
}

/// What a change was about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Topic {
    /// Units entered, left or were steered in this queue.
    Queue(QueueName),
    /// A batch's counters or status moved.
    Batch(BatchId),
    /// A unit ended whose sender waits for it ([`crate::NewUnit::awaited`]).
    Unit(UnitId),
    /// A worker came, went or was given an order.
    Session(SessionId),
    /// Something that caches hold changed: profiles, tenants, settings.
    Setting(String),
}

/// One entry of the change feed. Coalesced: one per topic and commit, not one per unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Its place in the feed.
    pub seq: u64,
    /// What it was about.
    pub topic: Topic,
}

/// A stretch of the change feed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ChangeSet {
    /// Pass it to go on from here.
    pub cursor: u64,
    /// What changed.
    pub changes: Vec<Change>,
    /// The feed was pruned past `since`: look at everything anew.
    pub missed: bool,
}

/// Something that `verify` found wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Which rule, by its invariant's name.
    pub rule: String,
    /// What was found.
    pub found: String,
}

/// Inspecting.
#[async_trait]
pub trait Inspect: Send + Sync + 'static {
    /// One unit.
    async fn unit(&self, scope: &Scope, id: UnitId) -> Result<Unit>;

    /// Units, newest first: by when they entered `filter.state` if that is set, else by when they
    /// were sent. Payloads, checkpoints and results are left out (empty).
    async fn units(
        &self,
        scope: &Scope,
        filter: &UnitFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Unit>>;

    /// The runs of a unit that did not end well, oldest first.
    async fn failures(&self, scope: &Scope, id: UnitId) -> Result<Vec<UnitFailure>>;

    /// Queues, one entry per lane, by name.
    async fn queues(&self, scope: &Scope) -> Result<Vec<QueueInfo>>;

    /// One batch.
    async fn batch(&self, scope: &Scope, id: &BatchId) -> Result<Batch>;

    /// What a batch's workers must know: [`crate::NewBatch::definition`].
    async fn definition(&self, scope: &Scope, id: &BatchId) -> Result<Option<Payload>>;

    /// Batches, newest first.
    async fn batches(
        &self,
        scope: &Scope,
        status: Option<BatchStatus>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Batch>>;

    /// Workers.
    async fn sessions(&self) -> Result<Vec<Session>>;

    /// Sums over the named queues, or all.
    async fn totals(&self, scope: &Scope, queues: &super::Queues) -> Result<Totals>;

    /// What changed after `since`; with nothing new, waits up to `wait` for it. `since` of
    /// `u64::MAX` means from now on.
    async fn changes(&self, scope: &Scope, since: u64, wait: Duration) -> Result<ChangeSet>;

    /// Returns as soon as something may have become claimable since `seen`, at the latest after
    /// `wait`, with the number to pass next time (first time: 0). A hint: it may wake for nothing,
    /// but never misses a commit made after the call that returned `seen`.
    async fn wake(&self, seen: u64, wait: Duration) -> u64;

    /// Brings the store's schema up to date. Harmless when it is.
    async fn migrate(&self) -> Result<u32>;

    /// Recounts everything against the kept counts and checks the invariants.
    async fn verify(&self) -> Result<Vec<Violation>>;
}
