//! Requests of clients to a server and its replies, in JSON.

mod admin;
mod explain;
mod pool;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use longshore::store::{QueueInfo, SendRejection};
use longshore::{Batch, BatchId, Dedup, Failure, Policy, Priority, TenantId, Timestamp, UnitId, UnitState};
use serde::{Deserialize, Serialize};

use crate::launch::{Allocation, Explanation, PendingQuery};
use crate::scheduler::Obstacle;
use crate::script::{RunReport, Script};

pub use admin::{
    ArrayAction, ArrayQuery, PastFailure, QueueAction, QueueSettings, UnitDetails, UnitOperation,
    UnitOperationReport, UnitQuery, UnitSummary,
};
pub use explain::{
    RequestedResources, TaskPosition, UnfitScripts, UnitExplanation, WaitReason, WorkerObstacles,
};
pub use pool::{AllocationAction, AllocationChange, AllocationStatus, WorkerAction, WorkerDetails};

/// A client's request. The server answers each with one [`ServerReply`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientRequest {
    /// Submit a script or an array.
    Submit(Box<Submission>),
    /// Submit scripts and arrays that depend on each other, all or none.
    SubmitJob(Box<JobSubmission>),
    /// Report the status of the pool.
    Status,
    /// Return a unit. If it has not ended, wait up to this long for its end.
    Unit(UnitId, Duration),
    /// Return all details of a unit. If a tenant is named, only that tenant's units are visible;
    /// this also holds for the requests below.
    Show(Option<TenantId>, UnitId),
    /// List units.
    Units(Option<TenantId>, UnitQuery),
    /// Cancel or retry units.
    Operate(Option<TenantId>, Vec<UnitId>, UnitOperation),
    /// List batches: arrays, jobs and single scripts.
    Arrays(Option<TenantId>, ArrayQuery),
    /// Find the unit of a task: `12.3` of an array, `etl.clean` or `etl.fetch.3` of a job, `12` if that is a
    /// single script.
    FindTask(Option<TenantId>, BatchId),
    /// Pause, resume, cancel or retry a batch or a task, which is a batch of one; without an action, only
    /// return it.
    Steer(Option<TenantId>, BatchId, Option<ArrayAction>),
    /// List the pool's queues, after a change if one is named.
    Queues(Option<TenantId>, Option<QueueAction>),
    /// Explain why no workers are being launched.
    Explain,
    /// Explain why a unit does not run.
    ExplainUnit(Option<TenantId>, UnitId),
    /// List the pool's allocations.
    Allocations,
    /// Add an allocation, or only return the script of its jobs.
    AddAllocation(Box<Allocation>, bool),
    /// Change an allocation.
    ChangeAllocation(AllocationChange),
    /// Describe, drain or stop workers: by their identity, its beginning, or the name of their host. All, if none
    /// is named.
    Workers(Vec<String>, WorkerAction),
    /// Shut the server down.
    Stop(ShutdownMode),
    /// Name the session that sends the following requests of this connection: its waits report the failures
    /// of its submissions.
    Identify(String),
    /// If no script is left, return how many have failed: since a wait last found the pool idle, or since the
    /// session's own first submission after its last wait, whichever is earlier.
    Idle,
}

impl ClientRequest {
    /// How long the server may take to reply; `None` if the work may take any time.
    pub(crate) fn reply_timeout(&self) -> Option<Duration> {
        match self {
            Self::Submit(_) | Self::SubmitJob(_) | Self::Operate(..) | Self::Steer(..) => None,
            Self::Unit(_, wait) => Some(REPLY_TIMEOUT.saturating_add(*wait)),
            _ => Some(REPLY_TIMEOUT),
        }
    }
}

/// How long a server may take to reply. A server that is stopped or frozen does not.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// How a server shuts down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShutdownMode {
    /// Start no more scripts and wait up to this long for running ones.
    Drain(Duration),
    /// Interrupt running scripts. They run again under the next server.
    Now,
}

/// One script, or an array of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Submission {
    /// The tenant that owns it.
    pub tenant: TenantId,
    /// What to run.
    pub script: Script,
    /// How many runs, and their parameters.
    pub items: Items,
    /// Scheduling priority.
    pub priority: Priority,
    /// Threads of each run.
    pub threads: u32,
    /// Named resources of each run.
    pub resources: BTreeMap<String, u32>,
    /// Units that must be done first.
    pub after: Vec<UnitId>,
    /// Retry policy.
    pub policy: Policy,
    /// The user that submits it, as `user@host`.
    #[serde(default)]
    pub initiated_by: String,
    /// A client will wait for the end.
    pub awaited: bool,
    /// When to accept it and when to run it.
    #[serde(default)]
    pub conditions: SubmitConditions,
}

/// Scripts and arrays that depend on each other. They are one batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSubmission {
    /// Its name. If a batch has it already, the server adds a suffix.
    pub name: BatchId,
    /// Number of failures at which the rest is given up.
    pub max_failures: Option<u64>,
    /// The tasks, each after its dependencies.
    pub tasks: Vec<NewTask>,
}

/// A task of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewTask {
    /// Its name in the job.
    pub id: String,
    /// The positions of the tasks that must be done first.
    pub after: Vec<usize>,
    /// What to run. The name, the limit on failures and the dependencies in it are not used.
    pub submission: Submission,
}

/// When a submission is accepted, and when it is run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SubmitConditions {
    /// Earliest start.
    pub not_before: Option<TimePoint>,
    /// The units fail if they are not done by then.
    pub deadline: Option<TimePoint>,
    /// Dedup key of a script. An array is deduplicated by its name.
    pub key: Option<Dedup>,
    /// How long to wait while the queue is full. By default a script is rejected at once, and an
    /// array waits without limit.
    #[serde(rename = "room")]
    pub full_timeout: Option<Duration>,
}

/// A time, or a distance from the store's time. The client's clock decides neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimePoint {
    /// At this time.
    At(Timestamp),
    /// This long after the submission.
    After(Duration),
}

impl TimePoint {
    /// The time, for a submission at `now`.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::After(distance) => now + distance,
        }
    }
}

/// How many runs a submission has, and their parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Items {
    /// One run. The client chooses the id, so that repeating the request changes nothing.
    Once(UnitId),
    /// An array: one run per item, counted together under a name.
    Each {
        /// The array's name. Repeating a request with it continues where the first one stopped.
        batch: BatchId,
        /// The items.
        #[serde(rename = "of")]
        items: ArrayItems,
        /// Maximum number of items that run at the same time.
        #[serde(rename = "at_most")]
        max_running: Option<u32>,
        /// Number of failures at which the rest of the array is given up.
        #[serde(rename = "max_fails")]
        max_failures: Option<u64>,
    },
}

/// The id from which [`nth_unit_id`] derives the ids of a batch's units: of an array by their index,
/// of a job by their position. It depends on the batch only, so a task is found without a search.
pub fn first_unit_id(array: &Batch) -> UnitId {
    const NAMESPACE: [u8; 16] = *b"longshore arrays";
    let created = u64::try_from(array.initiated_at.as_micros() / 1000).unwrap_or(0);
    UnitId::from_name(&NAMESPACE, array.id.as_str().as_bytes()).at_millis(created)
}

/// The id of an array's unit at `index` (from 0), derived from the id of its first unit. Like ids
/// that are generated one after another, the ids of an array are close together.
pub fn nth_unit_id(first: UnitId, index: u64) -> UnitId {
    // The low 62 bits are random. The bits above them hold the time and the version.
    const RANDOM_BITS: u128 = (1 << 62) - 1;
    let id = u128::from_be_bytes(*first.as_bytes());
    let low = (id & RANDOM_BITS).wrapping_add(u128::from(index)) & RANDOM_BITS;
    UnitId::from_bytes(((id & !RANDOM_BITS) | low).to_be_bytes())
}

/// The items of an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrayItems {
    /// Every number of these inclusive ranges.
    Ranges(Vec<(u64, u64)>),
    /// Every line, numbered from 0.
    Lines(Vec<String>),
}

/// Maximum number of runs of an array.
pub const MAX_ARRAY: u64 = 10_000_000;

impl ArrayItems {
    /// Whether no number is in two ranges.
    pub fn are_distinct(&self) -> bool {
        let Self::Ranges(ranges) = self else { return true };
        let mut sorted = ranges.clone();
        sorted.sort_unstable();
        sorted.windows(2).all(|pair| pair[0].1 < pair[1].0)
    }

    /// Number of runs.
    pub fn count(&self) -> u64 {
        match self {
            Self::Ranges(ranges) => ranges.iter().fold(0, |sum: u64, (first, last)| {
                sum.saturating_add(last.saturating_sub(*first).saturating_add(1))
            }),
            Self::Lines(lines) => lines.len() as u64,
        }
    }
}

/// A server's reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerReply {
    /// The submission is stored durably.
    Submitted {
        /// Number of units.
        units: u64,
        /// The unit that already has the dedup key.
        #[serde(default)]
        existing: Option<UnitId>,
        /// Why no worker of the pool can ever run it, if that is so.
        #[serde(default)]
        unfit: Vec<Obstacle>,
        /// The batch's number.
        #[serde(default)]
        number: Option<u64>,
        /// The batch's name.
        #[serde(default)]
        batch: Option<BatchId>,
    },
    /// The job is stored durably.
    JobSubmitted {
        /// The batch.
        batch: BatchId,
        /// Its number.
        number: u64,
        /// Its tasks, in the order of the submission.
        tasks: Vec<SubmittedTask>,
    },
    /// The store rejected the submission.
    NotTaken(SendRejection),
    /// Status of the pool.
    Status(Box<PoolStatus>),
    /// A unit.
    Unit(Box<ScriptView>),
    /// Details of a unit.
    Shown(Box<UnitDetails>),
    /// A page of units, and the cursor of the next page.
    Units(Vec<UnitSummary>, Option<String>),
    /// The unit of a task.
    Found(UnitId),
    /// The queues, one entry per tenant.
    Queues(Vec<QueueInfo>),
    /// Result of cancelling or retrying units.
    Operated(UnitOperationReport),
    /// A page of batches, and the cursor of the next page.
    Arrays(Vec<Batch>, Option<String>),
    /// The batch after the action.
    Steered(Box<Batch>),
    /// The allocations.
    Allocations(Vec<AllocationStatus>),
    /// The script of an allocation's jobs.
    JobScript(String),
    /// The workers that a request named.
    Workers(Vec<WorkerDetails>),
    /// Why no workers are being launched.
    Explained(Explanation),
    /// Why a unit does not run.
    UnitExplained(Box<UnitExplanation>),
    /// The failures that concern the waiting client; `None` if scripts are left.
    Idle(Option<IdleReport>),
    /// The request is accepted.
    Yes,
    /// The request failed.
    Error(String),
}

/// What a client that waits for a pool learns when no script is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleReport {
    /// Since when failures are counted.
    pub since: Timestamp,
    /// Number of scripts that failed since then.
    pub failed: u64,
    /// Whether no failure since the client's first submission may have been pruned.
    pub is_complete: bool,
}

/// A unit's state and result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScriptView {
    /// Its identity.
    pub unit: UnitId,
    /// Its state.
    pub state: UnitState,
    /// Attempts used so far.
    pub attempt: u32,
    /// Runs lost with their workers.
    pub lost: u32,
    /// Why it failed, or why its last run did.
    pub failure: Option<Failure>,
    /// The report of its last run.
    pub report: Option<RunReport>,
}

/// A stored task of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubmittedTask {
    /// Its name in the job.
    pub id: String,
    /// Its first unit.
    pub first: UnitId,
    /// Number of its units.
    pub units: u64,
    /// Why no worker of the pool can ever run it, if that is so.
    #[serde(default)]
    pub unfit: Vec<Obstacle>,
}

/// Status of a pool.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PoolStatus {
    /// The server's process id.
    pub pid: u32,
    /// Uptime of the server.
    pub up: Duration,
    /// `working` or `draining`.
    #[serde(rename = "mood")]
    pub state: String,
    /// The base system that starts its workers.
    pub base: String,
    /// Minimum and maximum number of workers.
    pub size: (u32, u32),
    /// Threads of each worker that it launches.
    pub threads: u32,
    /// Roots of each worker that it launches.
    #[serde(default)]
    pub roots: Vec<PathBuf>,
    /// Environment variables that submitters may set on such a worker.
    #[serde(default)]
    pub allowed_env: Vec<String>,
    /// Its workers.
    pub workers: Vec<WorkerStatus>,
    /// Scripts that are ready in the store.
    pub ready: u64,
    /// Scripts that are blocked by others or scheduled for later.
    #[serde(rename = "later")]
    pub not_ready: u64,
    /// Scripts that the server has claimed, running or waiting for free threads.
    pub claimed: u64,
    /// Running scripts, as of the workers' last heartbeats.
    pub running: u64,
    /// Scripts done since the store was created.
    pub done: u64,
    /// Scripts failed since then.
    pub failed: u64,
    /// Scripts cancelled since then.
    pub cancelled: u64,
    /// Waiting scripts that no worker of the pool can ever run.
    #[serde(default)]
    pub unfit: Vec<UnfitScripts>,
    /// The query that the base system has not answered yet.
    #[serde(default)]
    #[serde(rename = "asking")]
    pub pending_query: Option<PendingQuery>,
}

/// Status of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its identity.
    pub uid: String,
    /// Its host name.
    pub host: String,
    /// Its process id.
    pub pid: u32,
    /// Number of threads.
    pub threads: u32,
    /// Threads of its assigned scripts, running or waiting.
    pub load: u32,
    /// Number of its assigned scripts.
    #[serde(rename = "holds")]
    pub tasks: u64,
    /// `working`, `draining`, `away`.
    pub mood: String,
    /// Load average of its machine.
    pub average: f32,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_of_an_array_are_all_different_and_as_old_as_the_first() {
        let full = UnitId::from_bytes([0xff; 16]);
        for first in [UnitId::new(), full] {
            let ids: HashSet<UnitId> = (0..1000).map(|index| nth_unit_id(first, index)).collect();
            assert_eq!((ids.len(), nth_unit_id(first, 0)), (1000, first));
            assert!(ids.iter().all(|id| id.as_bytes()[..8] == first.as_bytes()[..8]));
        }
    }
}
