//! What scripts have in common: known here by a number, and told to each worker once.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use longshore::{BatchId, UnitId};

use crate::board::SeatId;
use crate::wire::Body;

/// Where a body comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// An array's definition.
    Batch(BatchId),
    /// A lone unit's payload.
    Unit(UnitId),
}

struct Entry {
    body: Arc<Body>,
    source: Source,
    /// Tasks on the board that have it.
    uses: u64,
    told: BTreeSet<SeatId>,
}

/// All that are known.
#[derive(Default)]
pub(super) struct Bodies {
    next: u64,
    entries: HashMap<u64, Entry>,
    by_source: HashMap<Source, u64>,
}

impl Bodies {
    pub(super) fn number_of(&self, source: &Source) -> Option<u64> {
        self.by_source.get(source).copied()
    }

    /// The arrays whose bodies are known.
    pub(super) fn batches(&self) -> HashSet<BatchId> {
        let sources = self.by_source.keys();
        let batches = sources.filter_map(|source| match source {
            Source::Batch(batch) => Some(batch.clone()),
            Source::Unit(_) => None,
        });
        batches.collect()
    }

    pub(super) fn insert(&mut self, source: Source, body: Body) -> u64 {
        self.next += 1;
        let entry =
            Entry { body: Arc::new(body), source: source.clone(), uses: 0, told: BTreeSet::new() };
        self.entries.insert(self.next, entry);
        self.by_source.insert(source, self.next);
        self.next
    }

    pub(super) fn used(&mut self, number: u64) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.uses += 1;
        }
    }

    /// The body, if this worker has not been told of it; it counts as told then.
    pub(super) fn tell(&mut self, number: u64, seat: SeatId) -> Option<Arc<Body>> {
        let entry = self.entries.get_mut(&number)?;
        entry.told.insert(seat).then(|| Arc::clone(&entry.body))
    }

    /// A task is gone. If none has this body any more and none will come, those who were told may
    /// forget it.
    pub(super) fn unused(&mut self, number: u64) -> Option<BTreeSet<SeatId>> {
        let entry = self.entries.get_mut(&number)?;
        entry.uses = entry.uses.saturating_sub(1);
        let lone = matches!(entry.source, Source::Unit(_));
        (entry.uses == 0 && lone).then(|| self.remove(number))
    }

    /// Bodies of arrays that no task has.
    pub(super) fn idle(&mut self) -> Vec<(u64, BTreeSet<SeatId>)> {
        let idle = self.entries.iter().filter(|(_, entry)| entry.uses == 0);
        let idle: Vec<u64> = idle.map(|(number, _)| *number).collect();
        idle.into_iter().map(|number| (number, self.remove(number))).collect()
    }

    fn remove(&mut self, number: u64) -> BTreeSet<SeatId> {
        let Some(entry) = self.entries.remove(&number) else { return BTreeSet::new() };
        self.by_source.remove(&entry.source);
        entry.told
    }

    /// A worker is gone, or knows nothing any more.
    pub(super) fn untell(&mut self, seat: SeatId) {
        for entry in self.entries.values_mut() {
            entry.told.remove(&seat);
        }
    }
}
