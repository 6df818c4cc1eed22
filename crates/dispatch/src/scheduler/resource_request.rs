//! Resources that a task needs.

use std::collections::BTreeMap;

/// Resources that a task occupies while it runs. Tasks with equal requests share a queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ResourceRequest {
    /// Threads of the worker.
    pub threads: u32,
    /// Named resources, as `gpu` → 2.
    pub resources: BTreeMap<String, u32>,
    /// The task runs alone on its worker, because workers died each time it ran.
    pub exclusive: bool,
}

impl ResourceRequest {
    /// A request for threads only.
    pub fn threads(threads: u32) -> Self {
        Self { threads: threads.max(1), ..Self::default() }
    }

    /// Whether the task may be assigned before its resources are free.
    pub(super) fn allows_prefill(&self) -> bool {
        !self.exclusive && self.resources.is_empty()
    }
}
