//! After a write: advances batches, sends callbacks, publishes changes.

use std::collections::BTreeSet;

use longshore_core::batch::advance;
use longshore_core::store::Topic;
use longshore_core::unit_state::Event;
use longshore_core::{Batch, BatchId, SessionId, TenantId, Timestamp, UnitId, UnitState};

use super::record::{LaneKey, UnitRecord};
use super::state::State;

/// What a write changed.
#[derive(Default)]
pub(super) struct DirtySet {
    /// Queues, with the tenant of the changed lane.
    pub(super) queues: BTreeSet<LaneKey>,
    pub(super) batches: BTreeSet<BatchId>,
    pub(super) sessions: BTreeSet<SessionId>,
    /// Changed settings by name, with their tenant.
    pub(super) settings: BTreeSet<(&'static str, TenantId)>,
    /// Ended units that a client waits for, with their tenant.
    pub(super) ended: Vec<(UnitId, TenantId)>,
    /// A unit may have become claimable.
    pub(super) claimable: bool,
    advanced_batches: BTreeSet<BatchId>,
}

/// What a commit must wake: feed readers and workers.
pub(super) struct CommitNotice {
    pub(super) seq: Option<u64>,
    pub(super) claimable: bool,
}

impl State {
    /// Advances every changed batch, then publishes all changes.
    pub(super) fn commit(&mut self, now: Timestamp) -> CommitNotice {
        self.advance_dirty_batches(now);
        self.publish()
    }

    /// Sweeping a batch or enqueueing its callback may change further batches; repeats until none
    /// is left.
    pub(super) fn advance_dirty_batches(&mut self, now: Timestamp) {
        while let Some(id) = self.dirty.batches.pop_first() {
            self.advance(&id, now);
            self.dirty.advanced_batches.insert(id);
        }
    }

    fn advance(&mut self, id: &BatchId, now: Timestamp) {
        let Some(record) = self.batches.get_mut(id) else {
            return;
        };
        let step = advance(&mut record.batch, now);
        let batch = record.batch.clone();
        if step.callback_due {
            self.enqueue_callback(&batch, now);
        }
        if batch.status.is_aborted() && batch.counts.live() > 0 {
            self.sweep(id, usize::MAX, now);
        }
    }

    /// The callback belongs to no batch and is exempt from capacity limits.
    fn enqueue_callback(&mut self, batch: &Batch, now: Timestamp) {
        let Some(unit) = batch.callback_unit() else { return };
        let id = unit.id;
        self.insert(UnitRecord::new(unit, None, BTreeSet::new(), now));
        _ = self.apply_event(id, &Event::Unblocked, now);
    }

    /// Cancels the waiting units of an abandoned batch and requests cancellation of leased ones.
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
            } else if self.apply_event(id, &Event::Cancel, now).is_ok() {
                swept += 1;
            }
        }
        swept
    }

    fn publish(&mut self) -> CommitNotice {
        let before = self.feed.newest();
        let dirty = std::mem::take(&mut self.dirty);
        for (queue, tenant) in dirty.queues {
            self.feed.push(Topic::Queue(queue), Some(tenant));
        }
        for batch in dirty.advanced_batches {
            let owner = self.batches.get(&batch).map(|record| record.batch.tenant.clone());
            self.feed.push(Topic::Batch(batch), owner);
        }
        for (unit, tenant) in dirty.ended {
            self.feed.push(Topic::Unit(unit), Some(tenant));
        }
        for session in dirty.sessions {
            self.feed.push(Topic::Session(session), None);
        }
        for (setting, tenant) in dirty.settings {
            self.feed.push(Topic::Setting(setting.to_owned()), Some(tenant));
        }
        let seq = Some(self.feed.newest()).filter(|newest| *newest > before);
        CommitNotice { seq, claimable: dirty.claimable }
    }
}
