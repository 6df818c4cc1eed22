//! The store's data: units, counts and indexes.
//!
//! Units change only by [`State::insert`], [`State::update`] and [`State::remove`], which keep
//! counts and indexes consistent; nothing else writes to those. [`State::amend`] changes what is
//! neither counted nor indexed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longshore_core::admission::ROW_BYTES;
use longshore_core::store::{Capacity, Tenant};
use longshore_core::stride_scheduler::StrideState;
use longshore_core::unit_state::{Event, InvalidTransition, runs_alone};
use longshore_core::worker_session::{NewSession, WorkerCommand};
use longshore_core::{
    Batch, BatchId, Counts, Payload, Policy, QueueName, Schedule, SessionId, TenantId, Timestamp, UnitId,
    UnitState,
};

use super::change_feed::ChangeFeed;
use super::ledger::LedgerState;
use super::post_write::DirtySet;
use super::record::{LaneKey, StreamKey, UnitRecord};
use super::schedules::ScheduleKey;

/// All data of the store.
#[derive(Default)]
pub(super) struct State {
    pub(super) units: BTreeMap<UnitId, UnitRecord>,
    pub(super) queues: BTreeMap<QueueName, QueueState>,
    pub(super) lanes: BTreeMap<LaneKey, LaneState>,
    pub(super) stride: StrideState<QueueName>,
    /// Each tenant's streams, with the number of their units.
    pub(super) streams: BTreeMap<TenantId, BTreeMap<StreamKey, u64>>,
    pub(super) batches: BTreeMap<BatchId, BatchRecord>,
    /// The number of the newest batch.
    pub(super) last_batch: u64,
    /// Without counts: they are summed over the lanes on demand.
    pub(super) tenants: BTreeMap<TenantId, Tenant>,
    pub(super) sessions: BTreeMap<SessionId, SessionRecord>,
    pub(super) leaders: BTreeMap<String, (SessionId, Timestamp)>,
    pub(super) schedules: BTreeMap<ScheduleKey, Schedule>,
    pub(super) ledger: LedgerState,
    pub(super) index: Index,
    pub(super) feed: ChangeFeed,
    pub(super) dirty: DirtySet,
}

#[derive(Default)]
pub(super) struct QueueState {
    pub(super) paused: bool,
    pub(super) capacity: Capacity,
}

pub(super) struct LaneState {
    pub(super) paused: bool,
    pub(super) weight: u32,
    pub(super) cap: Option<u32>,
    pub(super) capacity: Capacity,
    pub(super) counts: Counts,
    /// Stored bytes of live units.
    pub(super) bytes: u64,
    /// Bytes of all units, with [`ROW_BYTES`] each.
    pub(super) stored: u64,
    /// Ready units by rank.
    pub(super) ready: BTreeSet<(Timestamp, UnitId)>,
    /// The number of leased units per cap key.
    pub(super) capped: BTreeMap<String, u32>,
}

impl QueueState {
    pub(super) fn has_settings(&self) -> bool {
        self.paused || self.capacity != Capacity::default()
    }
}

impl LaneState {
    /// Whether it has units or settings.
    pub(super) fn is_needed(&self) -> bool {
        let is_set = self.paused || self.weight != 1 || self.cap.is_some();
        is_set || self.capacity != Capacity::default() || self.counts.total() > 0
    }
}

impl Default for LaneState {
    fn default() -> Self {
        Self {
            paused: false,
            weight: 1,
            cap: None,
            capacity: Capacity::default(),
            counts: Counts::default(),
            bytes: 0,
            stored: 0,
            ready: BTreeSet::new(),
            capped: BTreeMap::new(),
        }
    }
}

pub(super) struct BatchRecord {
    pub(super) batch: Batch,
    pub(super) units: BTreeSet<UnitId>,
    /// Pruned units by final state; the batch still counts them.
    pub(super) pruned: Counts,
    pub(super) definition: Option<Payload>,
}

pub(super) struct SessionRecord {
    pub(super) new: NewSession,
    pub(super) beats: u64,
    pub(super) opened_at: Timestamp,
    pub(super) beat_at: Timestamp,
    pub(super) cpu: Option<Duration>,
    pub(super) order: WorkerCommand,
    pub(super) held: BTreeSet<UnitId>,
}

/// Indexes of units beyond id, lane, batch and session.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Index {
    pub(super) scheduled: BTreeSet<(Timestamp, UnitId)>,
    /// Waiting units with a deadline.
    pub(super) deadlines: BTreeSet<(Timestamp, UnitId)>,
    pub(super) ended: BTreeSet<(Timestamp, UnitId)>,
    /// Ready units that must run alone.
    pub(super) alone: BTreeSet<UnitId>,
    pub(super) keys: BTreeMap<(TenantId, QueueName, String), UnitId>,
    /// The units that depend on a unit.
    pub(super) waiters: BTreeMap<UnitId, BTreeSet<UnitId>>,
}

impl Index {
    pub(super) fn add(&mut self, record: &UnitRecord) {
        let (unit, entry) = (&record.unit, (record.sort_key, record.unit.id));
        match unit.state {
            UnitState::Scheduled => _ = self.scheduled.insert(entry),
            UnitState::Ready if runs_alone(unit.lost) => _ = self.alone.insert(unit.id),
            state if state.is_final() => _ = self.ended.insert(entry),
            _ => {}
        }
        if let Some(entry) = waiting_deadline(record) {
            self.deadlines.insert(entry);
        }
        if let Some(key) = dedup_key(record) {
            self.keys.insert(key, unit.id);
        }
        for &other in &record.waits_for {
            self.waiters.entry(other).or_default().insert(unit.id);
        }
    }

    fn remove(&mut self, record: &UnitRecord) {
        let (unit, entry) = (&record.unit, (record.sort_key, record.unit.id));
        match unit.state {
            UnitState::Scheduled => _ = self.scheduled.remove(&entry),
            UnitState::Ready if runs_alone(unit.lost) => _ = self.alone.remove(&unit.id),
            state if state.is_final() => _ = self.ended.remove(&entry),
            _ => {}
        }
        if let Some(entry) = waiting_deadline(record) {
            self.deadlines.remove(&entry);
        }
        if let Some(key) = dedup_key(record) {
            self.keys.remove(&key);
        }
        for other in &record.waits_for {
            if let Some(waiters) = self.waiters.get_mut(other) {
                waiters.remove(&unit.id);
                if waiters.is_empty() {
                    self.waiters.remove(other);
                }
            }
        }
    }
}

fn waiting_deadline(record: &UnitRecord) -> Option<(Timestamp, UnitId)> {
    use UnitState::{Blocked, Ready, Scheduled};
    let waiting = matches!(record.unit.state, Blocked | Scheduled | Ready);
    record.unit.deadline.filter(|_| waiting).map(|deadline| (deadline, record.unit.id))
}

fn dedup_key(record: &UnitRecord) -> Option<(TenantId, QueueName, String)> {
    let unit = &record.unit;
    let key = unit.key.clone().filter(|_| record.keeps_key())?;
    Some((unit.tenant.clone(), unit.queue.clone(), key))
}

impl LaneState {
    pub(super) fn add(&mut self, record: &UnitRecord) {
        let unit = &record.unit;
        *self.counts.counter_mut(unit.state) += 1;
        self.stored += record.bytes + ROW_BYTES;
        if !unit.state.is_final() {
            self.bytes += record.bytes;
        }
        match (unit.state, &unit.cap) {
            (UnitState::Ready, _) => _ = self.ready.insert((record.sort_key, unit.id)),
            (UnitState::Leased, Some(cap)) => {
                *self.capped.entry(cap.key.clone()).or_default() += 1;
            }
            _ => {}
        }
    }

    fn remove(&mut self, record: &UnitRecord) {
        let unit = &record.unit;
        *self.counts.counter_mut(unit.state) -= 1;
        self.stored -= record.bytes + ROW_BYTES;
        if !unit.state.is_final() {
            self.bytes -= record.bytes;
        }
        match (unit.state, &unit.cap) {
            (UnitState::Ready, _) => _ = self.ready.remove(&(record.sort_key, unit.id)),
            (UnitState::Leased, Some(cap)) => self.release_cap(&cap.key),
            _ => {}
        }
    }

    fn release_cap(&mut self, key: &str) {
        let Some(count) = self.capped.get_mut(key) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.capped.remove(key);
        }
    }
}

impl State {
    /// Adds a new unit.
    pub(super) fn insert(&mut self, record: UnitRecord) {
        self.index_unit(&record);
        let streams = self.streams.entry(record.unit.tenant.clone()).or_default();
        *streams.entry(record.stream()).or_default() += 1;
        self.units.insert(record.unit.id, record);
    }

    /// Removes a unit and all its counts.
    pub(super) fn remove(&mut self, id: UnitId) -> Option<UnitRecord> {
        let record = self.units.remove(&id)?;
        self.unindex_unit(&record);
        let stream = record.stream();
        if let Some(streams) = self.streams.get_mut(&record.unit.tenant)
            && let Some(units) = streams.get_mut(&stream)
        {
            *units -= 1;
            if *units == 0 {
                streams.remove(&stream);
            }
        }
        Some(record)
    }

    /// Changes data that is neither counted nor indexed, and concerns its holder only.
    pub(super) fn amend(&mut self, id: UnitId, change: impl FnOnce(&mut UnitRecord)) {
        if let Some(record) = self.units.get_mut(&id) {
            change(record);
        }
    }

    /// Changes a unit.
    pub(super) fn update(&mut self, id: UnitId, change: impl FnOnce(&mut UnitRecord)) {
        let Some(mut record) = self.units.remove(&id) else {
            return;
        };
        self.unindex_unit(&record);
        change(&mut record);
        self.index_unit(&record);
        self.units.insert(id, record);
    }

    /// Applies an event by the state machine, then resolves units that depend on this one.
    pub(super) fn apply_event(
        &mut self,
        id: UnitId,
        event: &Event<'_>,
        now: Timestamp,
    ) -> Result<UnitState, InvalidTransition> {
        let Some(record) = self.units.get(&id) else {
            return Ok(UnitState::Cancelled);
        };
        let step = record.decide(event, &self.policy(record), now)?;
        let state = step.state;
        if state.is_final() && record.awaited {
            self.dirty.ended.push((id, record.unit.tenant.clone()));
        }
        let batch = record.unit.batch.as_ref().and_then(|id| self.batches.get(id));
        let generation = batch.map(|record| record.batch.generation).filter(|_| step.retried);
        self.update(id, |record| {
            record.unit.generation += u32::from(step.retried);
            record.unit.batch_generation = generation.unwrap_or(record.unit.batch_generation);
            record.apply(event, step, now);
        });
        if state.is_final() {
            self.resolve_dependents(id, state, now);
        }
        Ok(state)
    }

    /// The sender's policy, else the holder's for this kind, else the default.
    fn policy(&self, record: &UnitRecord) -> Policy {
        let unit = &record.unit;
        let of_kind = || {
            let holder = self.sessions.get(&unit.session?)?;
            holder.new.kinds.get(&unit.kind).cloned()
        };
        unit.policy.clone().or_else(of_kind).unwrap_or_default()
    }

    fn resolve_dependents(&mut self, ended: UnitId, state: UnitState, now: Timestamp) {
        use longshore_core::unit::OnDependencyFailure::Release;
        let waiters = self.index.waiters.get(&ended).cloned().unwrap_or_default();
        for waiter in waiters {
            let Some(record) = self.units.get(&waiter) else {
                continue;
            };
            let good = state == UnitState::Done || record.on_failure == Release;
            if !good {
                // Only blocked units have dependencies, and a blocked unit accepts this event.
                _ = self.apply_event(waiter, &Event::DependencyFailed(ended), now);
                continue;
            }
            self.update(waiter, |record| _ = record.waits_for.remove(&ended));
            if self.units.get(&waiter).is_some_and(|record| record.waits_for.is_empty()) {
                _ = self.apply_event(waiter, &Event::Unblocked, now);
            }
        }
    }

    fn index_unit(&mut self, record: &UnitRecord) {
        let unit = &record.unit;
        self.index.add(record);
        self.dirty.claimable |= unit.state == UnitState::Ready;
        self.lanes.entry(record.lane()).or_default().add(record);
        self.dirty.queues.insert(record.lane());
        if let Some(session) = unit.session.and_then(|id| self.sessions.get_mut(&id)) {
            session.held.insert(unit.id);
        }
        let Some(batch) = unit.batch.as_ref() else {
            return;
        };
        if let Some(record) = self.batches.get_mut(batch) {
            *record.batch.counts.counter_mut(unit.state) += 1;
            record.units.insert(unit.id);
            self.dirty.batches.insert(batch.clone());
        }
    }

    fn unindex_unit(&mut self, record: &UnitRecord) {
        let unit = &record.unit;
        self.index.remove(record);
        if let Some(lane) = self.lanes.get_mut(&record.lane()) {
            // The end of a lease may unblock another unit of a capped lane, tenant or key.
            let tenant = self.tenants.get(&unit.tenant);
            let capped =
                lane.cap.is_some() || unit.cap.is_some() || tenant.is_some_and(|tenant| tenant.cap.is_some());
            self.dirty.claimable |= capped && unit.state == UnitState::Leased;
            lane.remove(record);
        }
        self.dirty.queues.insert(record.lane());
        if let Some(session) = unit.session.and_then(|id| self.sessions.get_mut(&id)) {
            session.held.remove(&unit.id);
        }
        let Some(batch) = unit.batch.as_ref() else {
            return;
        };
        if let Some(record) = self.batches.get_mut(batch) {
            *record.batch.counts.counter_mut(unit.state) -= 1;
            record.units.remove(&unit.id);
            self.dirty.batches.insert(batch.clone());
        }
    }

    /// Whether neither queue, lane nor tenant prevents claims from this lane.
    pub(super) fn is_lane_active(&self, lane: &LaneKey) -> bool {
        !self.is_paused(lane) && !self.is_suspended(&lane.1)
    }

    /// Whether the queue or this lane of it is paused.
    pub(super) fn is_paused(&self, lane: &LaneKey) -> bool {
        let queue_paused = self.queues.get(&lane.0).is_some_and(|queue| queue.paused);
        let lane_paused = self.lanes.get(lane).is_some_and(|lane| lane.paused);
        queue_paused || lane_paused
    }

    /// Whether a unit may run: its lane and batch are active, and no cancellation is requested.
    pub(super) fn is_runnable(&self, record: &UnitRecord) -> bool {
        let open = |id| self.batches.get(id).is_none_or(|found| found.batch.status.is_open());
        let unit = &record.unit;
        self.is_lane_active(&record.lane()) && unit.batch.as_ref().is_none_or(open) && !unit.cancel_requested
    }
}
