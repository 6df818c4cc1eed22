//! Requests about a pool's workers and allocations.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::{HumanDuration, ResourceAmount, UnitId};
use serde::{Deserialize, Serialize};

use super::WorkerStatus;
use crate::launch::{Allocation, Explanation};

/// A change of an allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationChange {
    /// Its name.
    pub name: String,
    /// The change.
    pub action: AllocationAction,
}

/// An action on an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllocationAction {
    /// Launch no more workers; the present ones stay.
    Pause,
    /// Launch workers again.
    Resume,
    /// Change the number of workers.
    Resize {
        /// Minimum.
        min: u32,
        /// Maximum.
        max: u32,
        /// The scripts of workers that leave may run on for this long.
        drain: Duration,
    },
    /// Release all workers, then forget the allocation.
    Remove {
        /// The scripts of its workers may run on for this long.
        drain: Duration,
    },
}

/// An allocation, and what its launcher does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationStatus {
    /// Its description.
    #[serde(flatten)]
    pub allocation: Allocation,
    /// It is removed when its workers have left.
    pub is_leaving: bool,
    /// How many workers are wanted, registered and pending, and why.
    pub explanation: Explanation,
}

/// An action on workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerAction {
    /// Only describe them.
    Show,
    /// They accept no more scripts and leave when theirs have ended, or after this long.
    Drain(Duration),
    /// They leave at once; their scripts are interrupted and run again elsewhere.
    Stop,
}

/// Details of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerDetails {
    /// Its status.
    #[serde(flatten)]
    pub status: WorkerStatus,
    /// Its Longshore version.
    pub version: String,
    /// Its launch number, if the pool launched it.
    pub launch: Option<u64>,
    /// Its named resources: amount, and how much no script occupies.
    pub resources: BTreeMap<String, (u32, ResourceAmount)>,
    /// Available memory of its machine in MiB.
    pub available_memory: u64,
    /// Time until it interrupts its scripts because its lifetime ends.
    pub interrupts_in: Option<HumanDuration>,
    /// Its scripts that run.
    pub running: Vec<UnitId>,
    /// Its scripts that have not reported a start.
    pub waiting: Vec<UnitId>,
}
