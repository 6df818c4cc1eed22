//! Worker sessions and their leases.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::name::{Kind, SessionId, UnitId};
use crate::outcome::Outcome;
use crate::retry::Policy;
use crate::time::Timestamp;
use crate::unit_state::Event;
use crate::{Error, Result};

/// One run of a worker process, as it registers itself.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSession {
    /// New at each start.
    pub id: SessionId,
    /// Host, process id and program, for people.
    pub label: String,
    /// Longshore's version, for people and rolling upgrades.
    pub version: String,
    /// The kinds it handles, each with its policy, which applies to its units if it dies.
    pub kinds: BTreeMap<Kind, Policy>,
    /// Number of slots.
    pub slots: u32,
    /// Without a heartbeat for this long it counts as dead.
    pub ttl: std::time::Duration,
    /// The identity of its process, in a form that only processes of the same host understand. They
    /// take over as soon as that process has ended. `None`: only after the ttl.
    pub process: Option<String>,
}

impl NewSession {
    /// A session of this version with one slot and without kinds.
    pub fn new(id: SessionId, label: impl Into<String>) -> Self {
        Self {
            id,
            label: label.into(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kinds: BTreeMap::new(),
            slots: 1,
            ttl: std::time::Duration::from_secs(15),
            process: None,
        }
    }
}

/// A session as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Its identity.
    pub id: SessionId,
    /// Host, process id and program, for people.
    pub label: String,
    /// Its version of Longshore.
    pub version: String,
    /// The kinds it handles.
    pub kinds: Vec<Kind>,
    /// Number of slots.
    pub slots: u32,
    /// Without a heartbeat for this long it counts as dead.
    pub ttl: std::time::Duration,
    /// Number of heartbeats. The failure detector watches this number, not a clock.
    pub beats: u64,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When it last sent a heartbeat, for people only.
    pub beat_at: Timestamp,
    /// CPU time of it and its children at its last heartbeat, if it reports that.
    pub cpu: Option<std::time::Duration>,
    /// Number of units it holds.
    pub held: u64,
    /// The command that an operator gave it.
    #[serde(rename = "order")]
    pub command: WorkerCommand,
    /// The identity of its process: see [`NewSession::process`].
    #[serde(skip)]
    pub process: Option<String>,
}

/// A larger number of slots belongs to a server that forwards units to other workers.
const MAX_OWN_SLOTS: u32 = 1_000_000;

impl Session {
    /// The slots in which units run: none for a process that has a session only for its reply
    /// queues, and none for a server that forwards units to any number of workers.
    pub fn own_slots(&self) -> u32 {
        if self.slots > MAX_OWN_SLOTS { 0 } else { self.slots }
    }
}

/// An operator's command to a worker, in order of strength.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WorkerCommand {
    /// Work normally.
    #[default]
    Work,
    /// Claim nothing new.
    Quiet,
    /// Finish the units it holds, then exit.
    Drain,
    /// Exit now; running units are interrupted.
    Stop,
}

impl WorkerCommand {
    const ALL: [Self; 4] = [Self::Work, Self::Quiet, Self::Drain, Self::Stop];

    /// Its name, as stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Quiet => "quiet",
            Self::Drain => "drain",
            Self::Stop => "stop",
        }
    }
}

impl FromStr for WorkerCommand {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|order| order.as_str() == name);
        found.ok_or_else(|| Error::Invalid(format!("`{name}` is not a command to a worker")))
    }
}

/// How a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// In good order: its runs use no attempt.
    Closed,
    /// Its worker died.
    Lost,
}

impl SessionEnd {
    /// What happens to a unit that the session holds.
    pub fn event(self, started: bool) -> Event<'static> {
        static INTERRUPTED: Outcome = Outcome::Interrupted;
        match self {
            Self::Lost => Event::Lost,
            Self::Closed if started => Event::Finished(&INTERRUPTED),
            Self::Closed => Event::Released,
        }
    }
}

/// A session's lease on a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// The unit.
    pub unit: UnitId,
    /// The unit's fence when it was claimed; it changes whenever the unit changes hands.
    pub fence: u64,
}
