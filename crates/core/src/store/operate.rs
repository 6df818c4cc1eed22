//! Operating: what people and dashboards do to units, queues, batches and workers.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::batch::{Batch, BatchAction};
use crate::name::{BatchId, QueueName, Scope, SessionId, TenantId, UnitId};
use crate::session::Order;
use crate::unit::UnitState;

/// What is done to units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnitAction {
    /// Waiting units end now; running ones are asked to.
    Cancel,
    /// Failed, cancelled and scheduled units become ready, with fresh attempts. Of an ended batch
    /// this opens a new generation.
    Retry,
    /// Scheduled units become ready, with the attempts that they have: what they wait for has come.
    Wake,
}

/// Which units are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitSelection {
    /// These.
    Ids(Vec<UnitId>),
    /// All of a queue in this state.
    Queue(QueueName, UnitState),
}

/// What became of an operation on units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Operated {
    /// Units that changed at once.
    pub changed: u64,
    /// Running units that were asked to stop.
    pub requested: u64,
    /// Units whose state did not allow it.
    pub skipped: u64,
}

/// How much may be live in a queue or lane at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Capacity {
    /// Units; `None` is unbounded.
    pub units: Option<u64>,
    /// Bytes of payload; `None` is unbounded.
    pub bytes: Option<u64>,
}

/// A change of a queue; `None` leaves a setting as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueChange {
    /// Whether claims pass it by.
    pub paused: Option<bool>,
    /// Its bound.
    pub capacity: Option<Capacity>,
}

/// A change of one tenant's lane; `None` leaves a setting as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaneChange {
    /// Whether claims pass it by.
    pub paused: Option<bool>,
    /// Its share against other lanes.
    pub weight: Option<u32>,
    /// How many of its units may be leased at once; `Some(None)` lifts the cap.
    pub cap: Option<Option<u32>>,
    /// Its bound.
    pub capacity: Option<Capacity>,
}

/// Operating.
#[async_trait]
pub trait Operate: Send + Sync + 'static {
    /// Cancels or retries units. Ids outside `scope` or unknown are [`crate::Error::NotFound`]
    /// and then nothing was changed.
    async fn operate_units(
        &self,
        scope: &Scope,
        units: UnitSelection,
        action: UnitAction,
    ) -> Result<Operated>;

    /// Pauses, resumes, cancels, fails or retries a batch.
    async fn operate_batch(
        &self,
        scope: &Scope,
        batch: &BatchId,
        action: BatchAction,
    ) -> Result<Batch>;

    /// Changes a queue, which need not exist yet. A tenant may change its own queues; a shared one
    /// needs [`Scope::All`].
    async fn change_queue(
        &self,
        scope: &Scope,
        queue: &QueueName,
        change: QueueChange,
    ) -> Result<()>;

    /// Changes one tenant's lane of a queue.
    async fn change_lane(
        &self,
        scope: &Scope,
        queue: &QueueName,
        tenant: &TenantId,
        change: LaneChange,
    ) -> Result<()>;

    /// Asks a worker to go quiet, drain or stop, or to go on; it hears of it with its next beat.
    async fn order(&self, session: SessionId, order: Order) -> Result<()>;
}
