//! Protocol between a server and its peers.
//!
//! A connection begins with a [`Hello`] and a [`Welcome`] in JSON, which any version can read.
//! After that, workers exchange [`FromWorker`] and [`ToWorker`] in postcard, and clients exchange
//! [`crate::request`]s in JSON. [`frame`] turns messages into bytes.

pub mod frame;

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::worker_session::Lease;
use longshore::{ResourceAmount, Rights, UnitId};
use serde::{Deserialize, Serialize};

use crate::script::{RunReport, Script};

/// The only protocol version that this program speaks. Raise it with every change of a message: messages
/// in postcard have no field names, so a peer of another version would misread them.
pub const PROTOCOL_VERSION: u16 = 3;

/// Maximum frame size before the peer has presented the secret.
pub const MAX_UNAUTHENTICATED_FRAME: usize = 4 * 1024;
/// Maximum frame size after that.
pub const MAX_FRAME: usize = 64 * 1024 * 1024;

/// What a connecting peer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerRole {
    /// It runs scripts.
    Worker,
    /// It submits scripts and sends requests.
    Client,
}

impl PeerRole {
    /// All roles.
    pub const ALL: [Self; 2] = [Self::Worker, Self::Client];
}

/// The first message of a connecting peer.
#[derive(Clone, Serialize, Deserialize)]
pub struct Hello {
    /// Oldest protocol version that the peer speaks.
    pub oldest: u16,
    /// Newest protocol version that the peer speaks.
    pub newest: u16,
    /// The peer's role.
    pub role: PeerRole,
    /// The secret of the role's access file in base64.
    pub secret: String,
}

/// The server's reply to a peer with the right secret. A peer with a wrong one gets no reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Welcome {
    /// Use this protocol version.
    Version(u16),
    /// There is no common version.
    Refused(String),
}

/// The newest version that both sides speak.
pub fn negotiate_version(oldest: u16, newest: u16) -> Result<u16, String> {
    if oldest <= PROTOCOL_VERSION && PROTOCOL_VERSION <= newest {
        return Ok(PROTOCOL_VERSION);
    }
    Err(format!(
        "the server speaks protocol version {PROTOCOL_VERSION}, the peer speaks {oldest} to {newest}; run the \
         same version of Longshore on both sides"
    ))
}

/// A worker's registration, sent first on each new connection.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Register {
    /// Identity, new at each start of the process.
    pub uid: String,
    /// Host name.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Longshore version of the worker.
    pub version: String,
    /// Launch number, if the pool launched the worker.
    pub launch: Option<u64>,
    /// Threads that its scripts may use together.
    pub threads: u32,
    /// Named resources, as `gpu` → 4.
    pub resources: BTreeMap<String, u32>,
    /// Time until it interrupts running scripts because its lifetime ends, if that is limited.
    pub interrupts_in: Option<Duration>,
    /// Leases that it still has: waiting, running, or ended and not yet acknowledged.
    pub held_leases: Vec<Lease>,
}

/// Load of a worker's machine.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct WorkerLoad {
    /// Number of running scripts.
    pub running: u32,
    /// Load average of the last minute.
    pub load_average: f32,
    /// Available memory in MiB.
    pub available_memory: u64,
}

/// A worker's report about a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TaskEvent {
    /// The script started.
    Started(Lease),
    /// The script ended. The worker repeats this until the server acknowledges it.
    Ended(Lease, Box<RunReport>),
    /// The script was not started; the worker returns the task.
    Returned(Lease),
}

/// Message of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromWorker {
    /// Registers the worker.
    Register(Box<Register>),
    /// Reports that the worker is alive, and its load.
    Heartbeat(WorkerLoad),
    /// Reports task events in order.
    TaskEvents(Vec<TaskEvent>),
    /// The worker accepts no more tasks and leaves when its tasks have ended.
    Draining,
    /// The worker has no tasks and leaves.
    Leaving,
}

/// A task for a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskOrder {
    /// The unit's lease.
    pub lease: Lease,
    /// The rights that the unit was sent with.
    pub rights: Rights,
    /// The script, sent earlier by [`ToWorker::Script`].
    pub script_id: u64,
    /// Attempt number, from 1.
    pub attempt: u32,
    /// When the unit was submitted, in microseconds since 1970.
    pub queued: i64,
    /// Index in the array.
    pub index: Option<u64>,
    /// Line of the file that the array was made from.
    pub line: Option<String>,
    /// Threads that it occupies.
    pub threads: u32,
    /// Named resources that it occupies.
    pub resources: BTreeMap<String, ResourceAmount>,
    /// Time left until the unit's deadline.
    pub time_left: Option<Duration>,
}

/// What the tasks of an array share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScriptDefinition {
    /// What to run.
    pub script: Script,
    /// Name of the array.
    pub batch: Option<String>,
}

/// Message of the server to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToWorker {
    /// The worker is registered. It must stop and drop the tasks in `forget`.
    Registered {
        /// Interval between heartbeats.
        heartbeat_interval: Duration,
        /// A server that sends nothing for this long, not even [`ToWorker::HeartbeatReceived`], cannot be
        /// reached over this connection.
        silence_limit: Duration,
        /// Leases that no longer belong to the worker.
        forget: Vec<Lease>,
    },
    /// Defines the script with this id for the orders that follow.
    Script(u64, Box<ScriptDefinition>),
    /// No order will use the script with this id again.
    DropScript(u64),
    /// Run these tasks in order, each when its resources are free.
    Run(Vec<TaskOrder>),
    /// Return these tasks if they have not started.
    Retract(Vec<Lease>),
    /// Cancel these units.
    Cancel(Vec<UnitId>),
    /// Acknowledges the ends of these tasks: they are recorded, or no longer needed.
    ResultsRecorded(Vec<Lease>),
    /// Accept no more tasks, end the current ones and leave. Tasks that run longer than this are
    /// interrupted.
    Drain(Duration),
    /// Leave now and interrupt running scripts.
    Stop(String),
    /// Acknowledges a heartbeat.
    HeartbeatReceived,
}
