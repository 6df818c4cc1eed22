//! Sessions and leases: who works, and what each holds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::name::{Kind, SessionId, UnitId};
use crate::retry::Policy;
use crate::time::Timestamp;

/// One life of one worker process, as it announces itself.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSession {
    /// Fresh at each start.
    pub id: SessionId,
    /// For people: host, process id, program.
    pub label: String,
    /// Longshore's version, for people and rolling upgrades.
    pub version: String,
    /// The kinds it handles, each with its policy. A dead worker's units are judged by these.
    pub kinds: BTreeMap<Kind, Policy>,
    /// How many slots it has.
    pub slots: u32,
    /// After this long without a beat it counts as dead.
    pub ttl: std::time::Duration,
}

/// A session as the store knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Its identity.
    pub id: SessionId,
    /// For people.
    pub label: String,
    /// Longshore's version there.
    pub version: String,
    /// The kinds it handles.
    pub kinds: Vec<Kind>,
    /// How many slots it has.
    pub slots: u32,
    /// After this long without a beat it counts as dead.
    pub ttl: std::time::Duration,
    /// How often it has beaten. Reclaimers watch this number, not a clock.
    pub beats: u64,
    /// When it began.
    pub opened_at: Timestamp,
    /// When it last beat, for people only.
    pub beat_at: Timestamp,
    /// CPU time that it and its children had used at its last beat, if it says.
    pub cpu: Option<std::time::Duration>,
    /// How many units it holds.
    pub held: u64,
    /// What it has been asked to do.
    pub order: Order,
}

/// So many slots are no number that anybody chose: they are those of a server that hands units on.
const MANY: u32 = 1_000_000;

impl Session {
    /// The slots that units run in. None of a process that only keeps its books under a session, and none of
    /// a server that hands units on to however many workers come.
    pub fn own_slots(&self) -> u32 {
        if self.slots > MANY { 0 } else { self.slots }
    }
}

/// What an operator asks of a worker. In order of strength.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Go on.
    #[default]
    Work,
    /// Claim nothing new.
    Quiet,
    /// Finish what is held, then end.
    Drain,
    /// End now; what runs is interrupted.
    Stop,
}

/// A session's claim on a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// The unit.
    pub unit: UnitId,
    /// Its fence when it was claimed; it moves whenever the unit changes hands.
    pub fence: u64,
}
