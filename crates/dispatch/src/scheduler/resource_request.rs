//! What a task takes up.

use std::collections::BTreeMap;

/// What a task takes up while it runs. Tasks with the same need wait in one line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ResourceRequest {
    /// Threads of its worker.
    pub threads: u32,
    /// What else, as `gpu` → 2.
    pub resources: BTreeMap<String, u32>,
    /// Nothing may run beside it: it was there each time a worker died.
    pub exclusive: bool,
}

impl ResourceRequest {
    /// Threads and nothing else.
    pub fn threads(threads: u32) -> Self {
        Self { threads: threads.max(1), ..Self::default() }
    }

    /// Whether it may be given before there is room for it.
    pub(super) fn allows_prefill(&self) -> bool {
        !self.exclusive && self.resources.is_empty()
    }
}
