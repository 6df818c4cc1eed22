//! What clients ask of a server, in JSON.

mod admin;

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::store::Refusal;
use longshore::{
    Batch, BatchId, BatchStatus, Dedup, Failure, Policy, Priority, TenantId, Timestamp, UnitId,
    UnitState,
};
use serde::{Deserialize, Serialize};

use crate::launch::{Asking, Explanation};
use crate::script::{Report, Script};

pub use admin::{ArrayAction, Arrays, Changed, Deed, Listed, PastFailure, Shown, Units};

/// A client's request. Each is answered by one [`Reply`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Take this in.
    Submit(Box<Submission>),
    /// How do you do?
    Status,
    /// What is known of this unit? If it has not ended, so much time may pass until it has.
    Unit(UnitId, Duration),
    /// How far is this array?
    Array(BatchId),
    /// What is there to be seen of this unit? Of this tenant's only, if one is named; so with the
    /// requests that follow.
    Show(Option<TenantId>, UnitId),
    /// Which units are there?
    Units(Option<TenantId>, Units),
    /// Do this to these units.
    Operate(Option<TenantId>, Vec<UnitId>, Deed),
    /// Which arrays are there?
    Arrays(Option<TenantId>, Arrays),
    /// Do this to this array, or only show it.
    Steer(Option<TenantId>, BatchId, Option<ArrayAction>),
    /// Why is nothing being launched?
    Explain,
    /// Have so many workers: at least, and at most.
    Scale {
        /// At least.
        min: u32,
        /// At most.
        max: u32,
    },
    /// Come to an end.
    Stop(Ending),
}

/// How a server comes to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Nothing new is begun; what runs is ended first, for at most this long.
    Drain(Duration),
    /// What runs is interrupted, and will run again some day.
    Now,
}

/// One script, or an array of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Submission {
    /// Whose it is.
    pub tenant: TenantId,
    /// What is run.
    pub script: Script,
    /// How often, and with what.
    pub items: Items,
    /// How early it goes.
    pub priority: Priority,
    /// Threads that each takes up.
    pub threads: u32,
    /// What else each takes up.
    pub resources: BTreeMap<String, u32>,
    /// What has to be done before.
    pub after: Vec<UnitId>,
    /// How a run is repeated.
    pub policy: Policy,
    /// Someone will wait for it.
    pub awaited: bool,
    /// When it is taken, and when it is run.
    #[serde(default)]
    pub conditions: Conditions,
}

/// When something is taken, and when it is run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// Not run before this time.
    pub not_before: Option<Timestamp>,
    /// Failed if it is not done by then.
    pub deadline: Option<Timestamp>,
    /// By what a script is recognised that was submitted before. An array is by its name.
    pub key: Option<Dedup>,
    /// How long there may be no room for it; if it does not say, a script is refused at once, and an
    /// array waits as long as it takes.
    pub room: Option<Duration>,
}

/// How often a script is run, and with what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Items {
    /// Once. The client makes the id, so that asking again changes nothing.
    Once(UnitId),
    /// Once for each of these, counted together under a name.
    Each {
        /// The name. Asking again with it goes on where it stopped.
        batch: BatchId,
        /// For what.
        of: Many,
        /// How many may run at once.
        at_most: Option<u32>,
        /// So many failures are too many: the rest is given up.
        max_fails: Option<u64>,
        /// The first one's id, from which [`nth`] makes the others', if the client must know them.
        #[serde(default)]
        first: Option<UnitId>,
    },
}

/// The id of a unit of an array, by its place from 0, whose first has the id `first`. Those of one
/// array lie together, as ids do that are made one after the other.
pub fn nth(first: UnitId, index: u64) -> UnitId {
    // The low 62 bits are random; what is above them says when it was made, and how.
    const RANDOM_BITS: u128 = (1 << 62) - 1;
    let id = u128::from_be_bytes(*first.as_bytes());
    let low = (id & RANDOM_BITS).wrapping_add(u128::from(index)) & RANDOM_BITS;
    UnitId::from_bytes(((id & !RANDOM_BITS) | low).to_be_bytes())
}

/// What an array is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Many {
    /// Every number of these ranges, each with its ends.
    Ranges(Vec<(u64, u64)>),
    /// Every line, numbered from 0.
    Lines(Vec<String>),
}

/// A server's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// It is in, durably.
    Submitted {
        /// How many.
        units: u64,
        /// The unit that has its key, if there was one before it.
        #[serde(default)]
        existing: Option<UnitId>,
    },
    /// It was not taken in, and why.
    NotTaken(Refusal),
    /// This is how.
    Status(Box<Status>),
    /// This is known.
    Unit(Box<UnitView>),
    /// So far.
    Array(ArrayView),
    /// This is to be seen.
    Shown(Box<Shown>),
    /// These units, and how the list goes on.
    Units(Vec<Listed>, Option<String>),
    /// It was done.
    Operated(Changed),
    /// These arrays, and how the list goes on.
    Arrays(Vec<Batch>, Option<String>),
    /// This is the array now.
    Steered(Box<Batch>),
    /// This is why.
    Explained(Explanation),
    /// It shall be done.
    Yes,
    /// It cannot be done, and why.
    Error(String),
}

/// What is known of a unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnitView {
    /// Its identity.
    pub unit: UnitId,
    /// Where it stands.
    pub state: UnitState,
    /// Attempts used so far.
    pub attempt: u32,
    /// Runs lost with their workers.
    pub lost: u32,
    /// Why it failed, or why its last run did.
    pub failure: Option<Failure>,
    /// What its worker told of its last run.
    pub report: Option<Report>,
}

/// How far an array is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayView {
    /// Its name.
    pub batch: BatchId,
    /// Where it stands.
    pub status: BatchStatus,
    /// How many units it has.
    pub total: u64,
    /// Those that were done.
    pub done: u64,
    /// Those that failed.
    pub failed: u64,
    /// Those that were cancelled.
    pub cancelled: u64,
}

/// How a pool does.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Status {
    /// The process of the server.
    pub pid: u32,
    /// How long it has been up.
    pub up: Duration,
    /// What is to come of it: `working`, `draining`.
    pub mood: String,
    /// What its workers are started by.
    pub base: String,
    /// Workers that there should be, at least and at most.
    pub size: (u32, u32),
    /// Threads of each worker that it launches.
    pub threads: u32,
    /// Its workers.
    pub workers: Vec<WorkerStatus>,
    /// Scripts that wait in the store.
    pub ready: u64,
    /// Scripts that wait for others, or for their time.
    pub later: u64,
    /// Scripts that the server has claimed; some run, some wait for room.
    pub claimed: u64,
    /// Scripts that run, as far as it is known.
    pub running: u64,
    /// Scripts that were done, failed and cancelled since the store was made.
    pub done: u64,
    /// Those that failed.
    pub failed: u64,
    /// Those that were cancelled.
    pub cancelled: u64,
    /// What whoever starts its workers has been asked and has not answered.
    #[serde(default)]
    pub asking: Option<Asking>,
}

/// How a worker does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its identity.
    pub uid: String,
    /// Where it runs.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// Threads in all.
    pub threads: u32,
    /// Threads of what it was given, running or not.
    pub load: u32,
    /// Scripts that it was given and has not ended.
    pub holds: u64,
    /// `working`, `draining`, `away`.
    pub mood: String,
    /// The load average of its machine.
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
            let ids: HashSet<UnitId> = (0..1000).map(|index| nth(first, index)).collect();
            assert_eq!((ids.len(), nth(first, 0)), (1000, first));
            assert!(ids.iter().all(|id| id.as_bytes()[..8] == first.as_bytes()[..8]));
        }
    }
}
