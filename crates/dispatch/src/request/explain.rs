//! Why a unit does not run: what the store holds back, and what keeps each worker from it.

use std::collections::BTreeMap;
use std::fmt;

use longshore::{BatchId, HumanDuration, ResourceAmount, TenantId, Timestamp, UnitId, UnitState, duration};
use serde::{Deserialize, Serialize};

use crate::scheduler::{Obstacle, ResourceRequest, amount, label};

/// What a script needs of its worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RequestedResources {
    /// Threads.
    pub threads: u32,
    /// Named resources; `mem` is memory in MiB.
    pub resources: BTreeMap<String, ResourceAmount>,
    /// Its time limit: a worker with less lifetime left does not start it.
    pub time: Option<HumanDuration>,
}

impl From<ResourceRequest> for RequestedResources {
    fn from(request: ResourceRequest) -> Self {
        let ResourceRequest { threads, resources, time, .. } = request;
        Self { threads, resources, time: time.map(HumanDuration) }
    }
}

impl fmt::Display for RequestedResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.threads, if self.threads == 1 { "thread" } else { "threads" })?;
        for (name, number) in &self.resources {
            write!(f, ", {} {}", amount(name, *number), label(name))?;
        }
        match self.time {
            Some(HumanDuration(time)) => write!(f, ", at most {}", duration::format(time)),
            None => Ok(()),
        }
    }
}

/// Where the server has a unit that it has claimed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "place", rename_all = "snake_case")]
pub enum TaskPosition {
    /// In the server's queue.
    Queued,
    /// At a worker that had it before the server was restarted, if that reconnects.
    Restored,
    /// At a worker, where it waits for the scripts before it.
    Assigned {
        /// The worker's host name.
        host: String,
    },
    /// It runs.
    Running {
        /// The worker's host name.
        host: String,
    },
}

/// A reason why the store does not hand a unit out, or why no worker is there for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum WaitReason {
    /// It waits for other units.
    Dependencies,
    /// It is due later.
    Scheduled {
        /// When it is due.
        at: Timestamp,
    },
    /// Its array is paused.
    BatchPaused {
        /// The array.
        batch: BatchId,
        /// Why it was paused.
        why: String,
    },
    /// The queue is paused.
    QueuePaused,
    /// The tenant's lane of the queue is paused.
    LanePaused {
        /// The tenant.
        tenant: TenantId,
    },
    /// The tenant is suspended.
    Suspended {
        /// The tenant.
        tenant: TenantId,
    },
    /// As many units of its array run as may.
    ArrayCap {
        /// How many may run.
        limit: u32,
        /// How many run, or wait at a worker.
        running: u64,
    },
    /// Units with its cap key share a limit.
    CapKey {
        /// The key.
        key: String,
        /// How many may run.
        limit: u32,
    },
    /// As many units of the tenant run as may.
    TenantCap {
        /// How many may run.
        limit: u32,
        /// How many run, or wait at a worker.
        running: u64,
    },
    /// The pool shuts down.
    ShuttingDown,
    /// No worker is connected.
    NoWorkers,
    /// A worker has room for it: it is given out with the next claim, or after more urgent ones.
    NextClaim,
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dependencies => f.write_str("it waits for scripts that it was submitted after"),
            Self::Scheduled { at } => write!(f, "it is due at {at}"),
            Self::BatchPaused { batch, why } => write!(f, "paused: array `{batch}` ({why})"),
            Self::QueuePaused => f.write_str("paused: the queue"),
            Self::LanePaused { tenant } => write!(f, "paused: tenant `{tenant}` in this queue"),
            Self::Suspended { tenant } => write!(f, "suspended: tenant `{tenant}`"),
            Self::ArrayCap { limit, running } => {
                write!(f, "cap: {running} scripts of its array run, of {limit} at most")
            }
            Self::CapKey { key, limit } => write!(f, "cap: at most {limit} scripts with key `{key}` run"),
            Self::TenantCap { limit, running } => {
                write!(f, "cap: {running} scripts of its tenant run, of {limit} at most")
            }
            Self::ShuttingDown => f.write_str("the pool is shutting down"),
            Self::NoWorkers => f.write_str("no worker is connected; `longshore dispatch explain` says why"),
            Self::NextClaim => f.write_str("a worker has room for it: it is its turn after more urgent ones"),
        }
    }
}

/// What keeps a worker from a unit. Without obstacle, the unit fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerObstacles {
    /// The worker's identity.
    pub uid: String,
    /// Its host name.
    pub host: String,
    /// Its process id.
    pub pid: u32,
    /// Why it is not given the unit now.
    pub obstacles: Vec<Obstacle>,
}

/// Waiting scripts with the same request, which no worker of the pool can ever run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfitScripts {
    /// How many were found.
    pub scripts: u64,
    /// One of them.
    pub unit: UnitId,
    /// What keeps it from the worker that comes closest.
    pub obstacles: Vec<Obstacle>,
}

/// Why a unit does not run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnitExplanation {
    /// The unit.
    pub unit: UnitId,
    /// Its state.
    pub state: UnitState,
    /// What it needs.
    pub request: RequestedResources,
    /// Where the server has it, if it has claimed it.
    pub position: Option<TaskPosition>,
    /// What it waits for, whichever worker might run it.
    pub reasons: Vec<WaitReason>,
    /// If no worker of the pool can ever run it: what keeps it from the worker that comes closest.
    pub unfit: Vec<Obstacle>,
    /// The workers, each with its obstacles. Empty if the unit has ended or runs.
    pub workers: Vec<WorkerObstacles>,
}
