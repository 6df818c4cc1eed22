//! Administration of units, queues, batches and workers, by operators and the dashboard.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::batch::{Batch, BatchAction};
use crate::name::{BatchId, QueueName, Scope, SessionId, TenantId, UnitId};
use crate::unit::{Payload, UnitState};
use crate::unit_state::Event;
use crate::worker_session::WorkerCommand;

/// An action on units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnitAction {
    /// Cancels waiting units; asks running ones to stop.
    Cancel,
    /// Makes failed, cancelled and scheduled units ready, with all attempts. Opens a new generation
    /// of an ended batch.
    Retry,
    /// Makes scheduled units ready, with the attempts they have left: the event they wait for has
    /// occurred.
    Wake,
}

impl UnitAction {
    /// The event of a unit that is not running.
    pub fn event(self) -> Event<'static> {
        match self {
            Self::Cancel => Event::Cancel,
            Self::Retry => Event::Retry,
            Self::Wake => Event::Wake,
        }
    }
}

/// Selects units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitSelection {
    /// By id.
    Ids(Vec<UnitId>),
    /// All units of a queue in this state.
    Queue(QueueName, UnitState),
}

/// The result of an action on units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnitActionResult {
    /// Units that were changed.
    pub changed: u64,
    /// Running units that were asked to stop.
    pub requested: u64,
    /// Units in a state that did not permit the action.
    pub skipped: u64,
}

/// How much may be live in a queue, lane or tenant at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Capacity {
    /// Units; `None` is unbounded.
    pub units: Option<u64>,
    /// Bytes of the units ([`crate::NewUnit::stored_bytes`]); `None` is unbounded.
    pub bytes: Option<u64>,
}

/// A change of a queue; `None` leaves a setting unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueChange {
    /// Whether claims skip it.
    pub paused: Option<bool>,
    /// Its capacity.
    pub capacity: Option<Capacity>,
}

/// A change of one tenant's lane; `None` leaves a setting unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaneChange {
    /// Whether claims skip it.
    pub paused: Option<bool>,
    /// Its weight relative to other lanes.
    pub weight: Option<u32>,
    /// How many of its units may be leased at once; `Some(None)` removes the cap.
    pub cap: Option<Option<u32>>,
    /// Its capacity.
    pub capacity: Option<Capacity>,
}

/// A change of the settings of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingsChange {
    /// Changes the queue, which need not exist yet. A tenant may change its own queues; a shared
    /// queue needs [`Scope::All`].
    Queue(QueueChange),
    /// Changes one tenant's lane of the queue.
    Lane(TenantId, LaneChange),
}

/// Administration.
#[async_trait]
pub trait Admin: Send + Sync + 'static {
    /// Applies an action to units. [`crate::Error::NotFound`], without effect, if an id is unknown
    /// or outside `scope`.
    async fn apply_unit_action(
        &self,
        scope: &Scope,
        units: UnitSelection,
        action: UnitAction,
    ) -> Result<UnitActionResult>;

    /// Seals, pauses, resumes, cancels, fails or retries a batch.
    async fn apply_batch_action(&self, scope: &Scope, batch: &BatchId, action: BatchAction) -> Result<Batch>;

    /// Replaces a batch's definition, if it is still `from`. May be repeated.
    async fn change_definition(
        &self,
        scope: &Scope,
        batch: &BatchId,
        from: Payload,
        to: Payload,
    ) -> Result<()>;

    /// Changes the settings of a queue or a lane.
    async fn change_settings(&self, scope: &Scope, queue: &QueueName, change: SettingsChange) -> Result<()>;

    /// Commands a worker to work, go quiet, drain or stop. It receives the command with its next
    /// heartbeat.
    async fn command_worker(&self, session: SessionId, order: WorkerCommand) -> Result<()>;
}
