//! Resources that a task needs.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::{ResourceAmount, Unit};

/// Resources that a task occupies while it runs. Tasks with equal requests share a queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ResourceRequest {
    /// Threads of the worker.
    pub threads: u32,
    /// Named resources, as `gpu` → 0.5.
    pub resources: BTreeMap<String, ResourceAmount>,
    /// The task runs alone on its worker, because workers died each time it ran.
    pub exclusive: bool,
    /// Its time limit: a worker with less lifetime left does not start it.
    pub time: Option<Duration>,
}

impl ResourceRequest {
    /// A request for threads only.
    pub fn threads(threads: u32) -> Self {
        Self { threads: threads.max(1), ..Self::default() }
    }

    /// The request of a unit: its weight. The time limit is its script's.
    pub fn of_unit(unit: &Unit) -> Self {
        let (threads, resources) = (unit.weight.slots, ResourceAmount::of_weight(&unit.weight.resources));
        Self { threads, resources, ..Self::default() }
    }

    /// Whether the task may be assigned before its resources are free.
    pub(super) fn allows_prefill(&self) -> bool {
        !self.exclusive && self.resources.is_empty()
    }
}
