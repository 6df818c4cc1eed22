//! A worker's resources and the tasks that occupy them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use longshore::{ResourceAmount, UnitId};
use serde::{Deserialize, Serialize};

use super::prefill::PrefillEstimator;
use super::resource_pool::{ResourcePool, ResourceShare};
use super::resource_request::ResourceRequest;

/// Identifies a worker for as long as the server knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerKey(pub(super) u32);

#[cfg(test)]
impl WorkerKey {
    /// The key with this number.
    pub(crate) fn new(number: u32) -> Self {
        Self(number)
    }
}

impl std::fmt::Display for WorkerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Whether a worker accepts tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// It accepts tasks.
    Working,
    /// It ends its tasks and accepts no more.
    Draining,
    /// Its connection broke at this time.
    Disconnected(Duration),
}

/// A worker as the scheduler sees it.
#[derive(Debug, Clone)]
pub struct WorkerEntry {
    /// Its identity, new at each start of its process.
    pub uid: String,
    /// Number of threads.
    pub threads: u32,
    /// Named resources.
    pub resources: BTreeMap<String, u32>,
    /// Whether it accepts tasks.
    pub state: WorkerState,
    /// When its last message arrived.
    pub last_seen: Duration,
    /// When it last ended a task, or registered.
    pub idle_since: Duration,
    /// When it interrupts running tasks because its lifetime ends, if that is limited.
    pub interrupts_at: Option<Duration>,
    pub(super) prefill: PrefillEstimator,
    /// Threads of all assigned tasks, running or waiting at the worker.
    load: u32,
    pools: BTreeMap<String, ResourcePool>,
    /// What each assigned task has of the named resources.
    shares: HashMap<UnitId, Vec<(String, ResourceShare)>>,
    /// Its task must run alone.
    exclusive: bool,
    /// In the order of assignment.
    tasks: VecDeque<UnitId>,
    /// Free threads as `by_free_threads` has them; `None` if the worker is not in that index.
    pub(super) indexed_free: Option<u32>,
}

/// What is kept of a worker for the next server process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// Its number of threads.
    pub threads: u32,
    /// Units that it has run for a while.
    pub running: Vec<UnitId>,
}

impl WorkerEntry {
    /// A worker with these threads and resources, without tasks.
    pub fn new(uid: impl Into<String>, threads: u32, resources: BTreeMap<String, u32>) -> Self {
        Self {
            uid: uid.into(),
            threads: threads.max(1),
            pools: resources
                .iter()
                .map(|(name, has)| (name.clone(), ResourcePool::new(name, *has)))
                .collect(),
            resources,
            state: WorkerState::Working,
            last_seen: Duration::ZERO,
            idle_since: Duration::ZERO,
            interrupts_at: None,
            prefill: PrefillEstimator::default(),
            load: 0,
            shares: HashMap::new(),
            exclusive: false,
            tasks: VecDeque::new(),
            indexed_free: None,
        }
    }

    /// Threads that are free now.
    pub fn free_threads(&self) -> u32 {
        if self.exclusive { 0 } else { self.threads.saturating_sub(self.load) }
    }

    /// Threads of all assigned tasks.
    pub fn load(&self) -> u32 {
        self.load
    }

    /// All assigned tasks, in the order of assignment.
    pub fn tasks(&self) -> Vec<UnitId> {
        self.tasks.iter().copied().collect()
    }

    /// Number of assigned tasks.
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// Whether its task must run alone.
    pub(super) fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    /// How much of a resource a task that needs this much could get now.
    pub fn available(&self, resource: &str, needs: ResourceAmount) -> ResourceAmount {
        self.pools.get(resource).map_or_else(ResourceAmount::default, |pool| pool.available(needs))
    }

    /// The resources that no task occupies.
    pub fn free_resources(&self) -> impl Iterator<Item = (&str, ResourceAmount)> {
        self.pools.iter().map(|(name, pool)| (name.as_str(), pool.free()))
    }

    /// Threads' worth of tasks that are missing to a full prefill.
    pub(super) fn prefill_deficit(&self) -> u32 {
        if self.exclusive {
            return 0;
        }
        let most = self.threads.saturating_add(self.prefill.credit(self.threads));
        most.saturating_sub(self.load.max(self.threads))
    }

    /// Whether at least half of the prefill is used up.
    pub(super) fn needs_prefill(&self) -> bool {
        let credit = self.prefill.credit(self.threads);
        credit > 0 && self.prefill_deficit() >= credit.div_ceil(2)
    }

    pub(super) fn assign(&mut self, unit: UnitId, request: &ResourceRequest) {
        self.load += request.threads;
        self.exclusive |= request.exclusive;
        let mut shares = Vec::new();
        for (name, needs) in &request.resources {
            if let Some(pool) = self.pools.get_mut(name) {
                shares.push((name.clone(), pool.take(*needs)));
            }
        }
        if !shares.is_empty() {
            self.shares.insert(unit, shares);
        }
        self.tasks.push_back(unit);
    }

    pub(super) fn release(&mut self, unit: UnitId, request: &ResourceRequest) {
        // Tasks end roughly in the order of assignment, so the position is near the front.
        let Some(at) = self.tasks.iter().position(|task| *task == unit) else { return };
        self.tasks.remove(at);
        self.load = self.load.saturating_sub(request.threads);
        self.exclusive &= !request.exclusive;
        for (name, share) in self.shares.remove(&unit).unwrap_or_default() {
            if let Some(pool) = self.pools.get_mut(&name) {
                pool.give_back(&share);
            }
        }
    }

    /// Takes over tasks and statistics from this worker's entry before it reconnected.
    pub(super) fn restore_from(&mut self, previous: Self) {
        (self.load, self.tasks) = (previous.load, previous.tasks);
        (self.pools, self.shares) = (previous.pools, previous.shares);
        self.exclusive = previous.exclusive;
        (self.prefill, self.indexed_free, self.idle_since) =
            (previous.prefill, previous.indexed_free, previous.idle_since);
    }
}
