//! What a server and its peers say to each other.
//!
//! A connection begins with a [`Hello`] and a [`Welcome`] in JSON, which any version can read; then
//! workers speak [`FromWorker`] and [`ToWorker`] in a compact form, clients [`crate::request`]s in
//! JSON. How messages become bytes is in [`frame`].

pub mod frame;

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::UnitId;
use longshore::session::Lease;
use serde::{Deserialize, Serialize};

use crate::script::{Report, Script};

/// The newest version of the protocol that this program speaks, and the only one so far.
pub const PROTOCOL_VERSION: u16 = 1;

/// The largest frame from somebody who has not shown the secret.
pub const MAX_UNAUTHENTICATED_FRAME: usize = 4 * 1024;
/// The largest frame otherwise.
pub const MAX_FRAME: usize = 64 * 1024 * 1024;

/// Who begins a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerRole {
    /// Runs scripts.
    Worker,
    /// Submits and asks.
    Client,
}

/// The first word, of whoever connects.
#[derive(Clone, Serialize, Deserialize)]
pub struct Hello {
    /// The oldest version it speaks.
    pub oldest: u16,
    /// The newest.
    pub newest: u16,
    /// What it is.
    pub role: PeerRole,
    /// The secret of the access file, in base64.
    pub secret: String,
}

/// The answer to somebody who knows the secret. Nobody else gets one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Welcome {
    /// Go on in this version.
    Version(u16),
    /// There is no version that both speak.
    Refused(String),
}

/// The newest version that both speak.
pub fn negotiate_version(oldest: u16, newest: u16) -> Result<u16, String> {
    if oldest <= PROTOCOL_VERSION && PROTOCOL_VERSION <= newest {
        return Ok(PROTOCOL_VERSION);
    }
    Err(format!("the server speaks version {PROTOCOL_VERSION}, you speak {oldest} to {newest}"))
}

/// A worker as it introduces itself, at first and after each loss of the connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Register {
    /// Fresh at each start of the process.
    pub uid: String,
    /// Where it runs.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// Longshore's version there.
    pub version: String,
    /// What it was launched as, if a pool launched it.
    pub launch: Option<u64>,
    /// How many threads its scripts may use together.
    pub threads: u32,
    /// What else its scripts may take up, as `gpu` → 4.
    pub resources: BTreeMap<String, u32>,
    /// How long it will still live, if it knows.
    pub lifetime: Option<Duration>,
    /// What it holds from earlier: waiting, running, or ended and not yet acknowledged.
    pub held_leases: Vec<Lease>,
}

/// How busy a worker's machine is.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct WorkerLoad {
    /// Scripts that run.
    pub running: u32,
    /// The machine's load average of the last minute.
    pub load_average: f32,
    /// Its memory that could be used, in MiB.
    pub available_memory: u64,
}

/// What became of a script.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TaskEvent {
    /// It has begun.
    Started(Lease),
    /// It has ended. Repeated until it is acknowledged.
    Ended(Lease, Box<Report>),
    /// It was not begun, and goes back.
    Returned(Lease),
}

/// A worker's words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromWorker {
    /// Here I am.
    Register(Box<Register>),
    /// I live.
    Heartbeat(WorkerLoad),
    /// This happened, in this order.
    TaskEvents(Vec<TaskEvent>),
    /// I take nothing new and will leave when I have ended what I hold.
    Draining,
    /// I hold nothing any more, and leave.
    Leaving,
}

/// A script to be run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskOrder {
    /// Which unit, and which of its lives.
    pub lease: Lease,
    /// What is run: a [`ToWorker::Body`] that came before.
    pub script_id: u64,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// When it was sent, in microseconds since 1970.
    pub queued: i64,
    /// Its place in an array.
    pub index: Option<u64>,
    /// Its line of the file that the array was made of.
    pub line: Option<String>,
    /// How many threads it takes up.
    pub threads: u32,
    /// What else it takes up.
    pub resources: BTreeMap<String, u32>,
    /// How long it may take from now on, by the unit's deadline.
    pub time_left: Option<Duration>,
}

/// What scripts of an array have in common.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScriptDefinition {
    /// What is run.
    pub script: Script,
    /// The array's name.
    pub batch: Option<String>,
}

/// The server's words to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToWorker {
    /// You are one of mine. What you hold and is not yours any more is to be ended and forgotten.
    Registered {
        /// How often to beat.
        heartbeat_interval: Duration,
        /// What is not yours any more.
        forget: Vec<Lease>,
    },
    /// Orders will name this by its number.
    Script(u64, Box<ScriptDefinition>),
    /// No order will name this number again.
    DropScript(u64),
    /// Run these, in this order, each as soon as it fits.
    Run(Vec<TaskOrder>),
    /// Give these back if they have not begun.
    Retract(Vec<Lease>),
    /// End these.
    Cancel(Vec<UnitId>),
    /// The ends of these are recorded, or nobody wants them any more.
    ResultsRecorded(Vec<Lease>),
    /// Take nothing new, end what you hold, and leave.
    Drain,
    /// Leave now; what runs is interrupted.
    Stop(String),
}
