//! Work that must wait until other transactions can see a commit.

use std::collections::{BTreeMap, BTreeSet};

use crate::notifier::FeedEntry;
use crate::streams::{Stream, StreamCache};

/// Work to run after the commit.
#[derive(Debug, Clone, Default)]
pub(crate) struct PostCommit {
    /// Units became claimable.
    pub(crate) wake_workers: bool,
    /// Batches that may have to advance, because their counters or record changed.
    pub(crate) batches: BTreeSet<i64>,
    /// Entries for the change feed.
    pub(crate) changes: BTreeSet<FeedEntry>,
    /// Rows written to `longshore_stream_delta`.
    pub(crate) deltas: usize,
    /// A claim skipped rows that other transactions had locked; they may be released soon.
    pub(crate) skipped: bool,
    /// Streams in which a claim may have skipped locked units.
    pub(crate) rechecks: Vec<i64>,
    /// Cap keys of units that ended in a caller's transaction, and how many: that many can be
    /// unparked.
    pub(crate) unparks: BTreeMap<Vec<u8>, i64>,
    /// The transaction wrote to the dependency outbox.
    pub(crate) outbox: bool,
}

impl PostCommit {
    /// Whether the transaction changed nothing.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { wake_workers, batches, changes, deltas, skipped: _, rechecks: _, unparks, outbox } = self;
        let nothing = batches.is_empty() && changes.is_empty() && unparks.is_empty();
        nothing && !wake_workers && *deltas == 0 && !outbox
    }

    /// Adds the work of another transaction.
    pub(crate) fn merge(&mut self, other: Self) {
        self.wake_workers |= other.wake_workers;
        self.batches.extend(other.batches);
        self.changes.extend(other.changes);
        self.deltas += other.deltas;
        self.skipped |= other.skipped;
        self.rechecks.extend(other.rechecks);
        for (key, units) in other.unparks {
            *self.unparks.entry(key).or_default() += units;
        }
        self.outbox |= other.outbox;
    }

    /// Adds an entry to the change feed.
    pub(super) fn announce(&mut self, topic: &'static str, name: impl Into<String>, tenant: Option<&str>) {
        let tenant = tenant.map(str::to_owned);
        self.changes.insert(FeedEntry { topic, name: name.into(), tenant });
    }

    /// Announces a stream with changed counts.
    pub(crate) fn note_stream(&mut self, streams: &StreamCache, stream: &Stream, released: bool) {
        if stream.batch_num != 0 {
            self.batches.insert(stream.batch_num);
        }
        // A unit of a capped lane ended or was released, so another may be claimed.
        self.wake_workers |= released && streams.may_be_capped(stream.lane);
        self.announce("queue", stream.queue.as_str(), Some(stream.tenant.as_str()));
        if let Some(batch) = &stream.batch {
            self.announce("batch", batch.as_str(), Some(stream.tenant.as_str()));
        }
    }
}
