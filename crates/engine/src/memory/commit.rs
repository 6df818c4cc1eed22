//! Closing the books after a verb: batches move on, callbacks go out, the feed hears of it.

use std::collections::BTreeSet;

use longshore_core::batch::advance;
use longshore_core::machine::Event;
use longshore_core::store::Topic;
use longshore_core::{
    Batch, BatchId, NewUnit, QueueName, SessionId, TenantId, Timestamp, UnitId, UnitState,
};

use super::record::Record;
use super::state::State;

/// What a verb touched.
#[derive(Default)]
pub(super) struct Touched {
    pub(super) queues: BTreeSet<QueueName>,
    pub(super) batches: BTreeSet<BatchId>,
    pub(super) sessions: BTreeSet<SessionId>,
    /// Settings by name, with whose they are.
    pub(super) settings: BTreeSet<(&'static str, TenantId)>,
    /// Units that ended and are awaited, with whose they are.
    pub(super) ended: Vec<(UnitId, TenantId)>,
    /// Something may have become claimable.
    pub(super) claimable: bool,
    heard: BTreeSet<BatchId>,
}

/// What others must hear of a commit.
pub(super) struct News {
    pub(super) seq: Option<u64>,
    pub(super) claimable: bool,
}

impl State {
    /// Moves on every batch that was touched, then announces everything.
    pub(super) fn commit(&mut self, now: Timestamp) -> News {
        self.advance_touched(now);
        self.announce()
    }

    /// Sweeping a batch or sending its callback touches batches again, until all is quiet.
    pub(super) fn advance_touched(&mut self, now: Timestamp) {
        while let Some(id) = self.touched.batches.pop_first() {
            self.advance(&id, now);
            self.touched.heard.insert(id);
        }
    }

    fn advance(&mut self, id: &BatchId, now: Timestamp) {
        let Some(record) = self.batches.get_mut(id) else {
            return;
        };
        let step = advance(&mut record.batch, now);
        let batch = record.batch.clone();
        if step.announce {
            self.call_back(&batch, now);
        }
        if batch.status.is_given_up() && batch.counts.live() > 0 {
            self.sweep(id, usize::MAX, now);
        }
    }

    /// The callback is part of no batch and exempt from capacity.
    fn call_back(&mut self, batch: &Batch, now: Timestamp) {
        let Some(callback) = &batch.callback else {
            return;
        };
        let mut unit = NewUnit::new(callback.kind.clone(), callback.payload(batch));
        unit.tenant = batch.tenant.clone();
        unit.queue = callback.queue.clone();
        let id = unit.id;
        self.insert(Record::new(unit, None, BTreeSet::new(), now));
        _ = self.happen(id, &Event::Unblocked, now);
    }

    /// Cancels what waits in a batch that was given up, and asks what runs to stop.
    pub(super) fn sweep(&mut self, id: &BatchId, limit: usize, now: Timestamp) -> u64 {
        let Some(record) = self.batches.get(id) else {
            return 0;
        };
        let live: Vec<(UnitId, bool)> = record
            .units
            .iter()
            .filter_map(|id| self.units.get(id))
            .filter(|record| !record.unit.state.is_final() && !record.unit.cancel_requested)
            .map(|record| (record.unit.id, record.unit.state == UnitState::Leased))
            .take(limit)
            .collect();
        let mut swept = 0;
        for (id, leased) in live {
            if leased {
                self.amend(id, |record| record.unit.cancel_requested = true);
            } else if self.happen(id, &Event::Cancel, now).is_ok() {
                swept += 1;
            }
        }
        swept
    }

    fn announce(&mut self) -> News {
        let before = self.feed.newest();
        let touched = std::mem::take(&mut self.touched);
        for queue in touched.queues {
            let owner = queue.owner().and_then(|owner| TenantId::new(owner).ok());
            self.feed.push(Topic::Queue(queue), owner);
        }
        for batch in touched.heard {
            let owner = self.batches.get(&batch).map(|record| record.batch.tenant.clone());
            self.feed.push(Topic::Batch(batch), owner);
        }
        for (unit, tenant) in touched.ended {
            self.feed.push(Topic::Unit(unit), Some(tenant));
        }
        for session in touched.sessions {
            self.feed.push(Topic::Session(session), None);
        }
        for (setting, tenant) in touched.settings {
            self.feed.push(Topic::Setting(setting.to_owned()), Some(tenant));
        }
        let seq = Some(self.feed.newest()).filter(|newest| *newest > before);
        News { seq, claimable: touched.claimable }
    }
}
