//! A worker's seat: what it has, and what of it is taken.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use longshore::UnitId;

use super::need::Need;
use super::pace::Pace;

/// A worker, as long as the server knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeatId(pub(super) u32);

#[cfg(test)]
impl SeatId {
    /// A seat of this number.
    pub(crate) fn new(number: u32) -> Self {
        Self(number)
    }
}

impl std::fmt::Display for SeatId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Whether a worker takes tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// It does.
    Working,
    /// It only ends what it has.
    Draining,
    /// Its connection has been gone since then.
    Away(Duration),
}

/// What is known of a worker.
#[derive(Debug, Clone)]
pub struct Seat {
    /// Its identity, fresh at each of its starts.
    pub uid: String,
    /// Threads in all.
    pub threads: u32,
    /// What else it has.
    pub resources: BTreeMap<String, u32>,
    /// Whether it takes tasks.
    pub mood: Mood,
    /// When it last gave a sign of life.
    pub heard: Duration,
    /// When it last ended a task, or came.
    pub idle_since: Duration,
    pub(super) pace: Pace,
    /// Threads of all that it was given and has not ended, running or not.
    load: u32,
    taken: BTreeMap<String, u32>,
    /// What it has must have nothing beside it.
    alone: bool,
    /// In the order in which they were given.
    tasks: VecDeque<UnitId>,
    /// Its room as the index has it.
    pub(super) noted: Option<u32>,
}

impl Seat {
    /// A worker with so many threads, and what else it has.
    pub fn new(uid: impl Into<String>, threads: u32, resources: BTreeMap<String, u32>) -> Self {
        Self {
            uid: uid.into(),
            threads: threads.max(1),
            resources,
            mood: Mood::Working,
            heard: Duration::ZERO,
            idle_since: Duration::ZERO,
            pace: Pace::default(),
            load: 0,
            taken: BTreeMap::new(),
            alone: false,
            tasks: VecDeque::new(),
            noted: None,
        }
    }

    /// Threads that are free now.
    pub fn room(&self) -> u32 {
        if self.alone { 0 } else { self.threads.saturating_sub(self.load) }
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
    pub fn holds(&self) -> usize {
        self.tasks.len()
    }

    /// Whether the task could run here, were it empty.
    pub fn could_hold(&self, need: &Need) -> bool {
        let has = |(name, amount): (&String, &u32)| self.resources.get(name) >= Some(amount);
        need.threads <= self.threads && need.resources.iter().all(has)
    }

    /// Whether the task can run here now.
    pub(super) fn fits(&self, need: &Need) -> bool {
        if need.alone && !self.tasks.is_empty() {
            return false;
        }
        let free = |(name, amount): (&String, &u32)| {
            let all = self.resources.get(name).copied().unwrap_or(0);
            all.saturating_sub(self.taken.get(name).copied().unwrap_or(0)) >= *amount
        };
        need.threads <= self.room() && need.resources.iter().all(free)
    }

    /// Threads' worth of tasks that it should have beyond what runs, less what it has.
    pub(super) fn appetite(&self) -> u32 {
        if self.alone {
            return 0;
        }
        let most = self.threads.saturating_add(self.pace.credit(self.threads));
        most.saturating_sub(self.load.max(self.threads))
    }

    /// Whether it is time to give it more ahead: half of that is used up.
    pub(super) fn is_hungry(&self) -> bool {
        let credit = self.pace.credit(self.threads);
        credit > 0 && self.appetite() >= credit.div_ceil(2)
    }

    pub(super) fn sit(&mut self, unit: UnitId, need: &Need) {
        self.load += need.threads;
        self.alone |= need.alone;
        for (name, amount) in &need.resources {
            *self.taken.entry(name.clone()).or_default() += amount;
        }
        self.tasks.push_back(unit);
    }

    pub(super) fn leave(&mut self, unit: UnitId, need: &Need) {
        // What ends is near the front: it was given first.
        let Some(at) = self.tasks.iter().position(|task| *task == unit) else { return };
        self.tasks.remove(at);
        self.load = self.load.saturating_sub(need.threads);
        self.alone &= !need.alone;
        for (name, amount) in &need.resources {
            if let Some(taken) = self.taken.get_mut(name) {
                *taken = taken.saturating_sub(*amount);
            }
        }
    }

    /// Becomes what the same worker was before its connection broke.
    pub(super) fn take_over(&mut self, known: Self) {
        (self.load, self.taken, self.tasks) = (known.load, known.taken, known.tasks);
        self.alone = known.alone;
        (self.pace, self.noted, self.idle_since) = (known.pace, known.noted, known.idle_since);
    }
}
