//! The change feed: the latest changes with their sequence numbers.

use std::collections::VecDeque;

use longshore_core::store::{Change, ChangeSet, Topic};
use longshore_core::{Scope, TenantId};

/// Entries kept. A reader that is further behind must read everything again.
const MAX_ENTRIES: usize = 10_000;

#[derive(Default)]
pub(super) struct ChangeFeed {
    seq: u64,
    entries: VecDeque<FeedEntry>,
}

struct FeedEntry {
    change: Change,
    /// The tenant that may see it; `None` for all.
    tenant: Option<TenantId>,
}

impl ChangeFeed {
    /// The sequence number of the newest entry.
    pub(super) fn newest(&self) -> u64 {
        self.seq
    }

    pub(super) fn push(&mut self, topic: Topic, tenant: Option<TenantId>) {
        self.seq += 1;
        let change = Change { seq: self.seq, topic };
        self.entries.push_back(FeedEntry { change, tenant });
        if self.entries.len() > MAX_ENTRIES {
            self.entries.pop_front();
        }
    }

    /// The changes after `since` that `scope` may see.
    pub(super) fn since(&self, scope: &Scope, since: u64) -> ChangeSet {
        let first = self.entries.front().map_or(self.seq + 1, |entry| entry.change.seq);
        let missed = since + 1 < first || since > self.seq;
        let entries = self.entries.iter().skip(Self::offset(since + 1, first));
        let visible = entries.filter(|entry| entry.is_visible_to(scope));
        let changes = visible.map(|entry| entry.change.clone()).collect();
        ChangeSet { cursor: self.seq, changes, missed }
    }

    fn offset(wanted: u64, first: u64) -> usize {
        usize::try_from(wanted.saturating_sub(first)).unwrap_or(usize::MAX)
    }
}

impl FeedEntry {
    fn is_visible_to(&self, scope: &Scope) -> bool {
        match (&self.change.topic, &self.tenant) {
            // Tenants do not see workers.
            (Topic::Session(_), _) => *scope == Scope::All,
            (_, Some(tenant)) => scope.covers(tenant),
            (_, None) => true,
        }
    }
}
