//! Definitions of scripts, by id. Each is sent to a worker once.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use longshore::{BatchId, UnitId};

use crate::scheduler::WorkerKey;
use crate::wire::ScriptDefinition;

/// Where a definition comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ScriptSource {
    /// The script of an array, or of this task of a job.
    Batch(BatchId, Option<u32>),
    /// A single unit's payload.
    Unit(UnitId),
}

struct CachedScript {
    definition: Arc<ScriptDefinition>,
    source: ScriptSource,
    /// Number of tasks in the scheduler that use it.
    uses: u64,
    sent_to: BTreeSet<WorkerKey>,
}

/// The definitions in use.
#[derive(Default)]
pub(super) struct ScriptCache {
    next: u64,
    entries: HashMap<u64, CachedScript>,
    by_source: HashMap<ScriptSource, u64>,
}

impl ScriptCache {
    pub(super) fn id_of(&self, source: &ScriptSource) -> Option<u64> {
        self.by_source.get(source).copied()
    }

    /// Cached scripts of arrays.
    pub(super) fn arrays(&self) -> HashSet<ScriptSource> {
        let is_array = |source: &&ScriptSource| matches!(source, ScriptSource::Batch(..));
        self.by_source.keys().filter(is_array).cloned().collect()
    }

    pub(super) fn insert(&mut self, source: ScriptSource, definition: ScriptDefinition) -> u64 {
        self.next += 1;
        let entry = CachedScript {
            definition: Arc::new(definition),
            source: source.clone(),
            uses: 0,
            sent_to: BTreeSet::new(),
        };
        self.entries.insert(self.next, entry);
        self.by_source.insert(source, self.next);
        self.next
    }

    /// The run time limit of the script with this id.
    pub(super) fn time_limit(&self, id: u64) -> Option<Duration> {
        self.entries.get(&id)?.definition.script.time
    }

    pub(super) fn add_use(&mut self, id: u64) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.uses += 1;
        }
    }

    /// Returns the definition if this worker does not have it yet, and marks it as sent.
    pub(super) fn take_unsent(&mut self, id: u64, worker: WorkerKey) -> Option<Arc<ScriptDefinition>> {
        let entry = self.entries.get_mut(&id)?;
        entry.sent_to.insert(worker).then(|| Arc::clone(&entry.definition))
    }

    /// A task is gone. Returns the workers that can drop the definition, if no task uses it and
    /// none will.
    pub(super) fn release(&mut self, id: u64) -> Option<BTreeSet<WorkerKey>> {
        let entry = self.entries.get_mut(&id)?;
        entry.uses = entry.uses.saturating_sub(1);
        let single = matches!(entry.source, ScriptSource::Unit(_));
        (entry.uses == 0 && single).then(|| self.remove(id))
    }

    /// Removes definitions of arrays that no task uses. Returns the workers that have them.
    pub(super) fn evict_unused(&mut self) -> Vec<(u64, BTreeSet<WorkerKey>)> {
        let unused = self.entries.iter().filter(|(_, entry)| entry.uses == 0);
        let unused: Vec<u64> = unused.map(|(id, _)| *id).collect();
        unused.into_iter().map(|id| (id, self.remove(id))).collect()
    }

    fn remove(&mut self, id: u64) -> BTreeSet<WorkerKey> {
        let Some(entry) = self.entries.remove(&id) else { return BTreeSet::new() };
        self.by_source.remove(&entry.source);
        entry.sent_to
    }

    /// The worker is gone, or has lost its definitions.
    pub(super) fn forget_worker(&mut self, worker: WorkerKey) {
        for entry in self.entries.values_mut() {
            entry.sent_to.remove(&worker);
        }
    }
}
