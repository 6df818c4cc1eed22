//! The server's scheduling decisions, without I/O.
//!
//! The server reports events (`on_register`, `on_heartbeat`, `on_task_done`, `on_worker_lost`, …);
//! [`TaskScheduler::schedule`] returns which worker gets which task. Time is a parameter: the
//! server's uptime on a monotonic clock.
//!
//! Waiting tasks are queued by their [`ResourceRequest`]: a task that fits nowhere blocks only its
//! own queue. A task goes to the worker with the least free threads that suffice. A fast worker
//! also gets tasks ahead (prefill), so that it need not ask before it starts the next one. If a
//! task fits nowhere for half a second, a worker is reserved for it.

mod assignment;
mod obstacle;
mod prefill;
mod resource_pool;
mod resource_request;
mod tasks;
#[cfg(test)]
mod tests;
mod worker_entry;
mod workers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use longshore::UnitId;
use longshore::worker_session::Lease;

use crate::launch::Demand;

pub use assignment::Assignment;
pub use obstacle::{GPU, MEMORY, Obstacle, amount, label};
pub use resource_pool::{ResourcePool, ResourceShare};
pub use resource_request::ResourceRequest;
pub use worker_entry::{WorkerEntry, WorkerKey, WorkerRecord, WorkerState};

/// A task that the server has claimed, with the caller's `data`.
#[derive(Debug, Clone)]
pub struct Task<C> {
    /// The lease in the store.
    pub lease: Lease,
    /// The lease that the worker knows. It is older than `lease` if the server was restarted and
    /// adopted the task.
    pub worker_lease: Lease,
    /// Smaller ranks run first.
    pub rank: i64,
    /// Resources that the task needs.
    pub request: ResourceRequest,
    /// The caller's data.
    pub data: C,
    location: Location,
    /// When the task was added, last requeued, or started.
    since: Duration,
}

/// Where a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Location {
    /// In a queue of the scheduler.
    Waiting,
    /// Adopted after a server restart; the worker that holds it may reconnect.
    Restored,
    /// Assigned to a worker.
    AtWorker(WorkerKey, Stage),
}

/// How far the worker has reported to be with a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Assigned,
    Started,
}

/// The tasks of a lost worker.
#[derive(Debug)]
pub struct WorkerLoss<C> {
    /// Tasks that had started, or may have. They count as lost and are removed from the scheduler.
    pub lost: Vec<Task<C>>,
    /// Number of tasks that had not started; they are queued again.
    pub requeued: usize,
}

/// The difference between the tasks a worker reports and the tasks the scheduler assigned to it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReconnectDiff {
    /// Leases that the worker holds and must drop: they belong to it no longer.
    pub forget: Vec<Lease>,
    /// Number of assigned tasks that the worker does not hold; they are queued again.
    pub missing: usize,
}

/// Workers and tasks of a server.
#[derive(Debug)]
pub struct TaskScheduler<C> {
    workers: BTreeMap<WorkerKey, WorkerEntry>,
    by_uid: HashMap<String, WorkerKey>,
    next_key: u32,
    tasks: HashMap<UnitId, Task<C>>,
    waiting: BTreeMap<ResourceRequest, BTreeSet<(i64, UnitId)>>,
    restored: BTreeSet<UnitId>,
    /// Working workers by free threads.
    by_free_threads: BTreeSet<(u32, WorkerKey)>,
    /// Workers that should be prefilled.
    prefill_candidates: BTreeSet<WorkerKey>,
    /// Workers reserved for a task that fits nowhere else.
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

impl<C> TaskScheduler<C> {
    /// All workers.
    pub fn workers(&self) -> impl Iterator<Item = (WorkerKey, &WorkerEntry)> {
        self.workers.iter().map(|(id, worker)| (*id, worker))
    }

    /// The worker with this key.
    pub fn worker(&self, id: WorkerKey) -> Option<&WorkerEntry> {
        self.workers.get(&id)
    }

    /// Number of queued tasks.
    pub fn waiting(&self) -> usize {
        self.waiting.values().map(BTreeSet::len).sum()
    }

    /// All tasks, by request.
    pub fn demand(&self) -> Vec<Demand> {
        let mut counts: HashMap<&ResourceRequest, u64> = HashMap::new();
        for task in self.tasks.values() {
            *counts.entry(&task.request).or_default() += 1;
        }
        let counts = counts.into_iter();
        counts.map(|(request, scripts)| Demand { request: request.clone(), scripts }).collect()
    }

    /// Number of tasks, wherever they are.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether there are no tasks.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    fn unindex(&mut self, id: WorkerKey) {
        self.prefill_candidates.remove(&id);
        self.by_free_threads.retain(|(_, worker)| *worker != id);
    }

    /// Updates the worker in the indexes after its load or state has changed.
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
