//! Requests that list, inspect and change units and arrays.

use longshore::store::{Capacity, UnitActionResult};
use longshore::{BatchId, BatchStatus, Failure, Priority, QueueName, TenantId, Timestamp, UnitId, UnitState};
use serde::{Deserialize, Serialize};

use super::{RequestedResources, ScriptView};
use crate::script::Script;

/// An action on units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitOperation {
    /// Cancel waiting units at once and stop running ones.
    Cancel,
    /// Run failed or cancelled units again, with a fresh number of attempts.
    Retry,
}

/// An action on an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrayAction {
    /// Start no more of its units.
    Pause {
        /// Reason to show.
        reason: String,
    },
    /// Continue a paused array.
    Resume,
    /// Cancel the array and stop its running units.
    Cancel,
    /// Run its failed units again.
    Retry,
}

/// A change of a queue of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueAction {
    /// Change the settings of a queue, or of one tenant's lane of it.
    Set(QueueName, Option<TenantId>, QueueSettings),
    /// Cancel its units in this state.
    Cancel(QueueName, UnitState),
}

/// Settings of a queue or a lane; `None` leaves one unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueSettings {
    /// Whether claims skip it.
    pub paused: Option<bool>,
    /// The capacity.
    pub capacity: Option<Capacity>,
    /// A lane's weight.
    pub weight: Option<u32>,
    /// A lane's cap on running units; 0 removes it.
    pub cap: Option<u32>,
}

/// Filter and page of a list of units, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitQuery {
    /// Only units in this state.
    pub state: Option<UnitState>,
    /// Only units of this batch; a task is a batch of one.
    pub batch: Option<BatchId>,
    /// Cursor of the previous page.
    pub after: Option<String>,
    /// Page size.
    pub limit: u32,
}

/// Filter and page of a list of arrays, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayQuery {
    /// Only arrays with this status.
    pub status: Option<BatchStatus>,
    /// Cursor of the previous page.
    pub after: Option<String>,
    /// Page size.
    pub limit: u32,
}

/// A unit in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnitSummary {
    /// Its identity.
    pub unit: UnitId,
    /// Its state.
    pub state: UnitState,
    /// Its array.
    pub batch: Option<BatchId>,
    /// Its task in a job.
    #[serde(default)]
    pub task: Option<String>,
    /// Its index in the array.
    pub index: Option<u64>,
    /// The name or path of a script that was submitted alone.
    pub name: Option<String>,
    /// Attempts used so far.
    pub attempt: u32,
    /// Runs lost with their workers.
    pub lost: u32,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it entered its state.
    pub since: Timestamp,
    /// Why it failed, or why its last run did.
    pub failure: Option<Failure>,
}

/// All details of a unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnitDetails {
    /// Its state and result.
    #[serde(flatten)]
    pub view: ScriptView,
    /// The tenant that owns it.
    pub tenant: TenantId,
    /// Its array.
    pub batch: Option<BatchId>,
    /// Its task in a job.
    #[serde(default)]
    pub task: Option<String>,
    /// Its index in the array.
    pub index: Option<u64>,
    /// Its priority.
    pub priority: Priority,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it entered its state.
    pub since: Timestamp,
    /// A cancellation was requested while it ran.
    pub cancel_requested: bool,
    /// What it needs of its worker.
    pub request: RequestedResources,
    /// The script that it runs.
    pub script: Option<Script>,
    /// Its failed runs.
    pub past: Vec<PastFailure>,
}

/// A failed run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PastFailure {
    /// The attempt.
    pub attempt: u32,
    /// When it ended.
    pub at: Timestamp,
    /// The reason.
    pub failure: Failure,
}

impl From<UnitActionResult> for UnitOperationReport {
    fn from(done: UnitActionResult) -> Self {
        let UnitActionResult { changed, requested, skipped } = done;
        Self { changed, requested, skipped }
    }
}

/// Result of an action on units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UnitOperationReport {
    /// Units that changed at once.
    pub changed: u64,
    /// Running units that were asked to stop.
    pub requested: u64,
    /// Units in a state that does not allow the action.
    pub skipped: u64,
}
