//! The books: units, what is counted about them, and the indexes that find them.
//!
//! Units change only by [`State::insert`], [`State::update`] and [`State::remove`], which keep
//! counts and indexes in step; nothing else writes to those. What is neither counted nor indexed
//! may be amended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longshore_core::machine::{Event, NotApplicable, runs_alone};
use longshore_core::session::{NewSession, Order};
use longshore_core::store::{Capacity, Tenant};
use longshore_core::{
    Batch, BatchId, Counts, Payload, Policy, QueueName, Schedule, SessionId, TenantId, Timestamp,
    UnitId, UnitState,
};

use super::commit::Touched;
use super::feed::Feed;
use super::ledger::Books;
use super::record::{LaneKey, Record};
use super::schedules::ScheduleKey;

/// Everything the store knows.
#[derive(Default)]
pub(super) struct State {
    pub(super) units: BTreeMap<UnitId, Record>,
    pub(super) queues: BTreeMap<QueueName, Queue>,
    pub(super) lanes: BTreeMap<LaneKey, Lane>,
    pub(super) batches: BTreeMap<BatchId, BatchRecord>,
    /// Records only: what a tenant has in its lanes is added up when asked for.
    pub(super) tenants: BTreeMap<TenantId, Tenant>,
    pub(super) sessions: BTreeMap<SessionId, SessionRecord>,
    pub(super) leaders: BTreeMap<String, (SessionId, Timestamp)>,
    pub(super) schedules: BTreeMap<ScheduleKey, Schedule>,
    pub(super) books: Books,
    pub(super) index: Index,
    pub(super) feed: Feed,
    pub(super) touched: Touched,
}

#[derive(Default)]
pub(super) struct Queue {
    pub(super) paused: bool,
    pub(super) capacity: Capacity,
}

pub(super) struct Lane {
    pub(super) paused: bool,
    pub(super) weight: u32,
    pub(super) cap: Option<u32>,
    pub(super) capacity: Capacity,
    pub(super) pass: u64,
    /// It was silent: the next claim levels its pass with those of the lanes it competes with.
    pub(super) rejoins: bool,
    pub(super) counts: Counts,
    /// Payload bytes of its live units.
    pub(super) bytes: u64,
    /// Its ready units by rank.
    pub(super) ready: BTreeSet<(Timestamp, UnitId)>,
    /// How many units are leased under each cap key.
    pub(super) capped: BTreeMap<String, u32>,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            paused: false,
            weight: 1,
            cap: None,
            capacity: Capacity::default(),
            pass: 0,
            rejoins: true,
            counts: Counts::default(),
            bytes: 0,
            ready: BTreeSet::new(),
            capped: BTreeMap::new(),
        }
    }
}

pub(super) struct BatchRecord {
    pub(super) batch: Batch,
    pub(super) units: BTreeSet<UnitId>,
    /// Units that were pruned, by the state they ended in: still part of the batch's counts.
    pub(super) pruned: Counts,
    pub(super) definition: Option<Payload>,
}

pub(super) struct SessionRecord {
    pub(super) new: NewSession,
    pub(super) beats: u64,
    pub(super) opened_at: Timestamp,
    pub(super) beat_at: Timestamp,
    pub(super) cpu: Option<Duration>,
    pub(super) order: Order,
    pub(super) held: BTreeSet<UnitId>,
}

/// Ways to find units other than by id, lane, batch or session.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Index {
    pub(super) scheduled: BTreeSet<(Timestamp, UnitId)>,
    /// Waiting units that have a deadline.
    pub(super) deadlines: BTreeSet<(Timestamp, UnitId)>,
    pub(super) ended: BTreeSet<(Timestamp, UnitId)>,
    /// Ready units that must run alone.
    pub(super) alone: BTreeSet<UnitId>,
    pub(super) keys: BTreeMap<(TenantId, QueueName, String), UnitId>,
    /// Who waits for a unit.
    pub(super) waiters: BTreeMap<UnitId, BTreeSet<UnitId>>,
}

impl Index {
    pub(super) fn add(&mut self, record: &Record) {
        let (unit, entry) = (&record.unit, (record.place, record.unit.id));
        match unit.state {
            UnitState::Scheduled => _ = self.scheduled.insert(entry),
            UnitState::Ready if runs_alone(unit.lost) => _ = self.alone.insert(unit.id),
            state if state.is_final() => _ = self.ended.insert(entry),
            _ => {}
        }
        if let Some(entry) = waiting_deadline(record) {
            self.deadlines.insert(entry);
        }
        if let Some(key) = taken_key(record) {
            self.keys.insert(key, unit.id);
        }
        for &other in &record.waits_for {
            self.waiters.entry(other).or_default().insert(unit.id);
        }
    }

    fn take_out(&mut self, record: &Record) {
        let (unit, entry) = (&record.unit, (record.place, record.unit.id));
        match unit.state {
            UnitState::Scheduled => _ = self.scheduled.remove(&entry),
            UnitState::Ready if runs_alone(unit.lost) => _ = self.alone.remove(&unit.id),
            state if state.is_final() => _ = self.ended.remove(&entry),
            _ => {}
        }
        if let Some(entry) = waiting_deadline(record) {
            self.deadlines.remove(&entry);
        }
        if let Some(key) = taken_key(record) {
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

fn waiting_deadline(record: &Record) -> Option<(Timestamp, UnitId)> {
    use UnitState::{Blocked, Ready, Scheduled};
    let waiting = matches!(record.unit.state, Blocked | Scheduled | Ready);
    record.unit.deadline.filter(|_| waiting).map(|deadline| (deadline, record.unit.id))
}

fn taken_key(record: &Record) -> Option<(TenantId, QueueName, String)> {
    let unit = &record.unit;
    let key = unit.key.clone().filter(|_| record.keeps_key())?;
    Some((unit.tenant.clone(), unit.queue.clone(), key))
}

impl Lane {
    pub(super) fn add(&mut self, record: &Record) {
        let unit = &record.unit;
        self.rejoins |= unit.state == UnitState::Ready && self.ready.is_empty();
        *self.counts.slot(unit.state) += 1;
        if !unit.state.is_final() {
            self.bytes += unit.payload.len() as u64;
        }
        match (unit.state, &unit.cap) {
            (UnitState::Ready, _) => _ = self.ready.insert((record.place, unit.id)),
            (UnitState::Leased, Some(cap)) => {
                *self.capped.entry(cap.key.clone()).or_default() += 1;
            }
            _ => {}
        }
    }

    fn take_out(&mut self, record: &Record) {
        let unit = &record.unit;
        *self.counts.slot(unit.state) -= 1;
        if !unit.state.is_final() {
            self.bytes -= unit.payload.len() as u64;
        }
        match (unit.state, &unit.cap) {
            (UnitState::Ready, _) => _ = self.ready.remove(&(record.place, unit.id)),
            (UnitState::Leased, Some(cap)) => self.uncap(&cap.key),
            _ => {}
        }
    }

    fn uncap(&mut self, key: &str) {
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
    /// Puts a new unit in the books.
    pub(super) fn insert(&mut self, record: Record) {
        self.count_in(&record);
        self.units.insert(record.unit.id, record);
    }

    /// Takes a unit out of the books, as if it had never been there.
    pub(super) fn remove(&mut self, id: UnitId) -> Option<Record> {
        let record = self.units.remove(&id)?;
        self.count_out(&record);
        Some(record)
    }

    /// Changes what is neither counted nor indexed, and of interest to its holder only.
    pub(super) fn amend(&mut self, id: UnitId, change: impl FnOnce(&mut Record)) {
        if let Some(record) = self.units.get_mut(&id) {
            change(record);
        }
    }

    /// Changes a unit.
    pub(super) fn update(&mut self, id: UnitId, change: impl FnOnce(&mut Record)) {
        let Some(mut record) = self.units.remove(&id) else {
            return;
        };
        self.count_out(&record);
        change(&mut record);
        self.count_in(&record);
        self.units.insert(id, record);
    }

    /// Asks the state machine and writes what it says; units that wait for this one follow.
    pub(super) fn happen(
        &mut self,
        id: UnitId,
        event: &Event<'_>,
        now: Timestamp,
    ) -> Result<UnitState, NotApplicable> {
        let Some(record) = self.units.get(&id) else {
            return Ok(UnitState::Cancelled);
        };
        let step = record.decide(event, &self.policy(record), now)?;
        let state = step.state;
        if state.is_final() && record.awaited {
            self.touched.ended.push((id, record.unit.tenant.clone()));
        }
        self.update(id, |record| record.apply(event, step, now));
        if state.is_final() {
            self.tell_waiters(id, state, now);
        }
        Ok(state)
    }

    /// The sender's policy, else the holder's for this kind, else the default.
    fn policy(&self, record: &Record) -> Policy {
        let unit = &record.unit;
        let of_kind = || {
            let holder = self.sessions.get(&unit.session?)?;
            holder.new.kinds.get(&unit.kind).cloned()
        };
        unit.policy.clone().or_else(of_kind).unwrap_or_default()
    }

    fn tell_waiters(&mut self, ended: UnitId, state: UnitState, now: Timestamp) {
        use longshore_core::unit::OnDependencyFailure::Release;
        let waiters = self.index.waiters.get(&ended).cloned().unwrap_or_default();
        for waiter in waiters {
            let Some(record) = self.units.get(&waiter) else {
                continue;
            };
            let good = state == UnitState::Done || record.on_failure == Release;
            if !good {
                // Only blocked units wait, and those take this event.
                _ = self.happen(waiter, &Event::DependencyFailed(ended), now);
                continue;
            }
            self.update(waiter, |record| _ = record.waits_for.remove(&ended));
            if self.units.get(&waiter).is_some_and(|record| record.waits_for.is_empty()) {
                _ = self.happen(waiter, &Event::Unblocked, now);
            }
        }
    }

    fn count_in(&mut self, record: &Record) {
        let unit = &record.unit;
        self.index.add(record);
        self.touched.claimable |= unit.state == UnitState::Ready;
        self.lanes.entry(record.lane()).or_default().add(record);
        self.touched.queues.insert(unit.queue.clone());
        if let Some(session) = unit.session.and_then(|id| self.sessions.get_mut(&id)) {
            session.held.insert(unit.id);
        }
        let Some(batch) = unit.batch.as_ref() else {
            return;
        };
        if let Some(record) = self.batches.get_mut(batch) {
            *record.batch.counts.slot(unit.state) += 1;
            record.units.insert(unit.id);
            self.touched.batches.insert(batch.clone());
        }
    }

    fn count_out(&mut self, record: &Record) {
        let unit = &record.unit;
        self.index.take_out(record);
        if let Some(lane) = self.lanes.get_mut(&record.lane()) {
            // A lease that ends may let another unit of a capped lane, tenant or key go.
            let tenant = self.tenants.get(&unit.tenant);
            let capped = lane.cap.is_some()
                || unit.cap.is_some()
                || tenant.is_some_and(|tenant| tenant.cap.is_some());
            self.touched.claimable |= capped && unit.state == UnitState::Leased;
            lane.take_out(record);
        }
        self.touched.queues.insert(unit.queue.clone());
        if let Some(session) = unit.session.and_then(|id| self.sessions.get_mut(&id)) {
            session.held.remove(&unit.id);
        }
        let Some(batch) = unit.batch.as_ref() else {
            return;
        };
        if let Some(record) = self.batches.get_mut(batch) {
            *record.batch.counts.slot(unit.state) -= 1;
            record.units.remove(&unit.id);
            self.touched.batches.insert(batch.clone());
        }
    }

    /// Whether units of this lane may be claimed as far as queue, lane and tenant go.
    pub(super) fn is_flowing(&self, lane: &LaneKey) -> bool {
        !self.is_paused(lane) && !self.is_suspended(&lane.1)
    }

    /// Whether the queue or this lane of it is paused.
    pub(super) fn is_paused(&self, lane: &LaneKey) -> bool {
        let queue_paused = self.queues.get(&lane.0).is_some_and(|queue| queue.paused);
        let lane_paused = self.lanes.get(lane).is_some_and(|lane| lane.paused);
        queue_paused || lane_paused
    }

    /// Whether a unit may run: nothing it belongs to is paused, suspended or given up, and
    /// nobody wants it cancelled.
    pub(super) fn is_wanted(&self, record: &Record) -> bool {
        let open = |id| self.batches.get(id).is_none_or(|found| found.batch.status.is_open());
        let unit = &record.unit;
        self.is_flowing(&record.lane())
            && unit.batch.as_ref().is_none_or(open)
            && !unit.cancel_requested
    }
}
