//! The change feed: the last entries, each with its place.

use std::collections::VecDeque;

use longshore_core::store::{Change, ChangeSet, Topic};
use longshore_core::{Scope, TenantId};

/// How many entries are kept. A reader that is further behind looks at everything anew.
const KEPT: usize = 10_000;

#[derive(Default)]
pub(super) struct Feed {
    seq: u64,
    entries: VecDeque<Entry>,
}

struct Entry {
    change: Change,
    /// Whose business it is; `None` is everybody's.
    tenant: Option<TenantId>,
}

impl Feed {
    /// The place of the newest entry.
    pub(super) fn newest(&self) -> u64 {
        self.seq
    }

    pub(super) fn push(&mut self, topic: Topic, tenant: Option<TenantId>) {
        self.seq += 1;
        let change = Change { seq: self.seq, topic };
        self.entries.push_back(Entry { change, tenant });
        if self.entries.len() > KEPT {
            self.entries.pop_front();
        }
    }

    /// What happened after `since`, as far as `scope` may see.
    pub(super) fn since(&self, scope: &Scope, since: u64) -> ChangeSet {
        let first = self.entries.front().map_or(self.seq + 1, |entry| entry.change.seq);
        let missed = since + 1 < first || since > self.seq;
        let entries = self.entries.iter().skip(Self::offset(since + 1, first));
        let seen = entries.filter(|entry| entry.is_seen_by(scope));
        let changes = seen.map(|entry| entry.change.clone()).collect();
        ChangeSet { cursor: self.seq, changes, missed }
    }

    fn offset(wanted: u64, first: u64) -> usize {
        usize::try_from(wanted.saturating_sub(first)).unwrap_or(usize::MAX)
    }
}

impl Entry {
    fn is_seen_by(&self, scope: &Scope) -> bool {
        match (&self.change.topic, &self.tenant) {
            // Workers are not a tenant's business.
            (Topic::Session(_), _) => *scope == Scope::All,
            (_, Some(tenant)) => scope.covers(tenant),
            (_, None) => true,
        }
    }
}
