//! A worker's seat: what it has, and what of it is taken.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use longshore::UnitId;

use super::prefill::PrefillEstimator;
use super::resource_request::ResourceRequest;

/// A worker, as long as the server knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerKey(pub(super) u32);

#[cfg(test)]
impl WorkerKey {
    /// A seat of this number.
    pub(crate) fn new(number: u32) -> Self {
        Self(number)
    }
}

impl std::fmt::Display for WorkerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Whether a worker takes tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// It does.
    Working,
    /// It only ends what it has.
    Draining,
    /// Its connection has been gone since then.
    Disconnected(Duration),
}

/// What is known of a worker.
#[derive(Debug, Clone)]
pub struct WorkerEntry {
    /// Its identity, fresh at each of its starts.
    pub uid: String,
    /// Threads in all.
    pub threads: u32,
    /// What else it has.
    pub resources: BTreeMap<String, u32>,
    /// Whether it takes tasks.
    pub state: WorkerState,
    /// When it last gave a sign of life.
    pub last_seen: Duration,
    /// When it last ended a task, or came.
    pub idle_since: Duration,
    pub(super) prefill: PrefillEstimator,
    /// Threads of all that it was given and has not ended, running or not.
    load: u32,
    taken: BTreeMap<String, u32>,
    /// What it has must have nothing beside it.
    exclusive: bool,
    /// In the order in which they were given.
    tasks: VecDeque<UnitId>,
    /// Its room as the index has it.
    pub(super) indexed_free: Option<u32>,
}

impl WorkerEntry {
    /// A worker with so many threads, and what else it has.
    pub fn new(uid: impl Into<String>, threads: u32, resources: BTreeMap<String, u32>) -> Self {
        Self {
            uid: uid.into(),
            threads: threads.max(1),
            resources,
            state: WorkerState::Working,
            last_seen: Duration::ZERO,
            idle_since: Duration::ZERO,
            prefill: PrefillEstimator::default(),
            load: 0,
            taken: BTreeMap::new(),
            exclusive: false,
            tasks: VecDeque::new(),
            indexed_free: None,
        }
    }

    /// Threads that are free now.
    pub fn free_threads(&self) -> u32 {
        if self.exclusive { 0 } else { self.threads.saturating_sub(self.load) }
    }

    /// Threads of all that it was given and has not ended.
    pub fn load(&self) -> u32 {
        self.load
    }

    /// Everything that it was given and has not ended, in that order.
    pub fn tasks(&self) -> Vec<UnitId> {
        self.tasks.iter().copied().collect()
    }

    /// How many tasks it has.
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// Whether the task could run here, were it empty.
    pub fn could_fit(&self, request: &ResourceRequest) -> bool {
        let has = |(name, amount): (&String, &u32)| self.resources.get(name) >= Some(amount);
        request.threads <= self.threads && request.resources.iter().all(has)
    }

    /// Whether the task can run here now.
    pub(super) fn fits(&self, request: &ResourceRequest) -> bool {
        if request.exclusive && !self.tasks.is_empty() {
            return false;
        }
        let free = |(name, amount): (&String, &u32)| {
            let all = self.resources.get(name).copied().unwrap_or(0);
            all.saturating_sub(self.taken.get(name).copied().unwrap_or(0)) >= *amount
        };
        request.threads <= self.free_threads() && request.resources.iter().all(free)
    }

    /// Threads' worth of tasks that it should have beyond what runs, less what it has.
    pub(super) fn prefill_deficit(&self) -> u32 {
        if self.exclusive {
            return 0;
        }
        let most = self.threads.saturating_add(self.prefill.credit(self.threads));
        most.saturating_sub(self.load.max(self.threads))
    }

    /// Whether it is time to give it more ahead: half of that is used up.
    pub(super) fn needs_prefill(&self) -> bool {
        let credit = self.prefill.credit(self.threads);
        credit > 0 && self.prefill_deficit() >= credit.div_ceil(2)
    }

    pub(super) fn assign(&mut self, unit: UnitId, request: &ResourceRequest) {
        self.load += request.threads;
        self.exclusive |= request.exclusive;
        for (name, amount) in &request.resources {
            *self.taken.entry(name.clone()).or_default() += amount;
        }
        self.tasks.push_back(unit);
    }

    pub(super) fn release(&mut self, unit: UnitId, request: &ResourceRequest) {
        // What ends is near the front: it was given first.
        let Some(at) = self.tasks.iter().position(|task| *task == unit) else { return };
        self.tasks.remove(at);
        self.load = self.load.saturating_sub(request.threads);
        self.exclusive &= !request.exclusive;
        for (name, amount) in &request.resources {
            if let Some(taken) = self.taken.get_mut(name) {
                *taken = taken.saturating_sub(*amount);
            }
        }
    }

    /// Becomes what the same worker was before its connection broke.
    pub(super) fn restore_from(&mut self, previous: Self) {
        (self.load, self.taken, self.tasks) = (previous.load, previous.taken, previous.tasks);
        self.exclusive = previous.exclusive;
        (self.prefill, self.indexed_free, self.idle_since) =
            (previous.prefill, previous.indexed_free, previous.idle_since);
    }
}
