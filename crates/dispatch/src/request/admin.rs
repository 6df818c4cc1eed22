//! What people look at and do: units and arrays.

use longshore::{BatchId, BatchStatus, Failure, Priority, TenantId, Timestamp, UnitId, UnitState};
use serde::{Deserialize, Serialize};

use super::UnitView;
use crate::script::Script;

/// What is done to units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// Those that wait end now, those that run are stopped.
    Cancel,
    /// Those that failed or were cancelled run again, with fresh attempts.
    Retry,
}

/// What is done to an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrayAction {
    /// Begin no more of it.
    Pause {
        /// Why, for people.
        reason: String,
    },
    /// Go on with it.
    Resume,
    /// Give it up: what runs is stopped.
    Cancel,
    /// Run what failed again.
    Retry,
}

/// Which units are listed, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Units {
    /// In this state.
    pub state: Option<UnitState>,
    /// Of this array.
    pub batch: Option<BatchId>,
    /// Where an earlier list stopped.
    pub after: Option<String>,
    /// At most so many.
    pub limit: u32,
}

/// Which arrays are listed, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrays {
    /// With this status.
    pub status: Option<BatchStatus>,
    /// Where an earlier list stopped.
    pub after: Option<String>,
    /// At most so many.
    pub limit: u32,
}

/// A unit in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listed {
    /// Its identity.
    pub unit: UnitId,
    /// Where it stands.
    pub state: UnitState,
    /// The array it belongs to.
    pub batch: Option<BatchId>,
    /// Its place there.
    pub index: Option<u64>,
    /// The name or path of a lone script.
    pub name: Option<String>,
    /// Attempts used so far.
    pub attempt: u32,
    /// Runs lost with their workers.
    pub lost: u32,
    /// When it was sent.
    pub created_at: Timestamp,
    /// Since when it stands there.
    pub since: Timestamp,
    /// Why it failed, or why its last run did.
    pub failure: Option<Failure>,
}

/// Everything about a unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// Where it stands, and what its worker told.
    #[serde(flatten)]
    pub view: UnitView,
    /// Whose it is.
    pub tenant: TenantId,
    /// The array it belongs to.
    pub batch: Option<BatchId>,
    /// Its place there.
    pub index: Option<u64>,
    /// How early it goes.
    pub priority: Priority,
    /// When it was sent.
    pub created_at: Timestamp,
    /// Since when it stands where it does.
    pub since: Timestamp,
    /// Somebody asked for it to be cancelled while it ran.
    pub cancel_requested: bool,
    /// What is run.
    pub script: Option<Script>,
    /// Runs that did not end well.
    pub past: Vec<PastFailure>,
}

/// One run that did not end well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PastFailure {
    /// Which attempt.
    pub attempt: u32,
    /// When it ended.
    pub at: Timestamp,
    /// Why.
    pub failure: Failure,
}

/// What became of a deed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Changed {
    /// Units that changed at once.
    pub changed: u64,
    /// Running units that are being stopped.
    pub requested: u64,
    /// Units whose state did not allow it.
    pub skipped: u64,
}
