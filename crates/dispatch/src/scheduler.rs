//! Who works, what waits, and who gets what: every decision of a server, without a socket.
//!
//! Events go in (`on_register`, `on_heartbeat`, `on_task_done`, `on_worker_lost`, …), and
//! [`Board::schedule`] says what is given to whom. Time is a parameter: how long the server has been
//! up, on a monotonic clock.
//!
//! What waits is grouped by what it needs: one that does not fit holds up its like, and nobody else.
//! Scripts go to the worker that they fill best; beyond what runs, a worker gets a little ahead, so
//! that it need not ask before it goes on. One that fits nowhere for a while has a worker kept for it.

mod assignment;
mod prefill;
mod resource_request;
mod tasks;
#[cfg(test)]
mod tests;
mod worker_entry;
mod workers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use longshore::UnitId;
use longshore::session::Lease;

pub use assignment::Assignment;
pub use resource_request::ResourceRequest;
pub use worker_entry::{WorkerEntry, WorkerKey, WorkerState};

/// A task as the server has claimed it, with whatever belongs to it.
#[derive(Debug, Clone)]
pub struct Task<C> {
    /// The claim.
    pub lease: Lease,
    /// The claim as its worker was told of it: an adopted task is known there by an older one.
    pub worker_lease: Lease,
    /// Smaller goes first.
    pub rank: i64,
    /// What it takes up.
    pub request: ResourceRequest,
    /// Whatever belongs to it.
    pub data: C,
    location: Location,
    /// Since when it is here, or waits again.
    since: Duration,
}

/// Where a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Location {
    /// Here.
    Waiting,
    /// With a worker that may come back: the server was restarted.
    Restored,
    /// With a worker.
    AtWorker(WorkerKey, Stage),
}

/// How far a task is with its worker, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Assigned,
    Started,
}

/// What a worker's loss means.
#[derive(Debug, Default)]
pub struct WorkerLoss {
    /// These had begun, or may have: they count as lost. Gone from the board.
    pub lost: Vec<Lease>,
    /// So many had not, and wait again.
    pub requeued: usize,
}

/// What a worker must hear when it has introduced itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReconnectDiff {
    /// It holds these, and they are not its own any more.
    pub forget: Vec<Lease>,
    /// So many that it should hold it does not: they wait again.
    pub missing: usize,
}

/// The state of all this.
#[derive(Debug)]
pub struct TaskScheduler<C> {
    workers: BTreeMap<WorkerKey, WorkerEntry>,
    by_uid: HashMap<String, WorkerKey>,
    next_key: u32,
    tasks: HashMap<UnitId, Task<C>>,
    waiting: BTreeMap<ResourceRequest, BTreeSet<(i64, UnitId)>>,
    restored: BTreeSet<UnitId>,
    /// Seats by their free threads, those that take tasks only.
    by_free_threads: BTreeSet<(u32, WorkerKey)>,
    /// Seats that should get tasks ahead.
    prefill_candidates: BTreeSet<WorkerKey>,
    /// Seats that are kept for a task that fits nowhere else.
    reserved: BTreeMap<WorkerKey, UnitId>,
}

impl<C> Default for TaskScheduler<C> {
    fn default() -> Self {
        Self {
            workers: BTreeMap::new(),
            by_uid: HashMap::new(),
            next_key: 0,
            tasks: HashMap::new(),
            waiting: BTreeMap::new(),
            restored: BTreeSet::new(),
            by_free_threads: BTreeSet::new(),
            prefill_candidates: BTreeSet::new(),
            reserved: BTreeMap::new(),
        }
    }
}

/// What there is.
impl<C> TaskScheduler<C> {
    /// The workers.
    pub fn workers(&self) -> impl Iterator<Item = (WorkerKey, &WorkerEntry)> {
        self.workers.iter().map(|(id, worker)| (*id, worker))
    }

    /// One worker.
    pub fn worker(&self, id: WorkerKey) -> Option<&WorkerEntry> {
        self.workers.get(&id)
    }

    /// A worker by its identity.
    pub fn worker_by_uid(&self, uid: &str) -> Option<WorkerKey> {
        self.by_uid.get(uid).copied()
    }

    /// How many tasks wait here.
    pub fn waiting(&self) -> usize {
        self.waiting.values().map(BTreeSet::len).sum()
    }

    /// Threads of all tasks, wherever they are.
    pub fn threads(&self) -> u64 {
        let queues = self.waiting.iter();
        let waiting =
            queues.map(|(request, queue)| queue.len() as u64 * u64::from(request.threads));
        let workers = self.workers.values().map(|worker| u64::from(worker.load()));
        waiting.chain(workers).sum::<u64>() + self.restored.len() as u64
    }

    /// How many tasks there are, wherever.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether there is no task.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    fn unindex(&mut self, id: WorkerKey) {
        self.prefill_candidates.remove(&id);
        self.by_free_threads.retain(|(_, worker)| *worker != id);
    }

    /// Notes again how much room a seat has.
    fn reindex(&mut self, id: WorkerKey) {
        let Some(worker) = self.workers.get_mut(&id) else { return self.unindex(id) };
        if let Some(free_threads) = worker.indexed_free.take() {
            self.by_free_threads.remove(&(free_threads, id));
        }
        self.prefill_candidates.remove(&id);
        if worker.state != WorkerState::Working {
            return;
        }
        worker.indexed_free = Some(worker.free_threads());
        self.by_free_threads.insert((worker.free_threads(), id));
        if worker.needs_prefill() {
            self.prefill_candidates.insert(id);
        }
    }
}
