//! The worker API: sessions, starts, releases and finishes. Claims are in [`super::claim`].

use std::collections::BTreeSet;

use async_trait::async_trait;
use longshore_core::store::CheckpointRequest;
use longshore_core::store::{
    ClaimRequest, ClaimResult, FinishRequest, FinishResult, Heartbeat, HeartbeatReply, LeasedUnit,
    ProgressNote, WorkerApi,
};
use longshore_core::unit::check_size;
use longshore_core::unit_state::Event;
use longshore_core::worker_session::{Lease, NewSession, SessionEnd, WorkerCommand};
use longshore_core::{Error, Failure, Result, SessionId, Timestamp, UnitId, UnitState};

use super::MemoryStore;
use super::claim::held_unit;
use super::ledger::check_calls;
use super::record::UnitRecord;
use super::state::{SessionRecord, State};

#[async_trait]
impl WorkerApi for MemoryStore {
    async fn open_session(&self, session: NewSession) -> Result<()> {
        self.write(|state, now| state.open_session(session, now));
        Ok(())
    }

    async fn heartbeat(&self, session: SessionId, beat: Heartbeat) -> Result<HeartbeatReply> {
        self.write(|state, now| state.beat(session, &beat, now))
    }

    async fn close_session(&self, session: SessionId) -> Result<()> {
        self.write(|state, now| state.close_session(session, now));
        Ok(())
    }

    async fn adopt(&self, from: SessionId, to: SessionId) -> Result<Vec<LeasedUnit>> {
        self.write(|state, now| state.adopt(from, to, now))
    }

    async fn claim(&self, claim: ClaimRequest) -> Result<ClaimResult> {
        self.write(|state, now| state.claim(&claim, now))
    }

    async fn start(&self, session: SessionId, leases: &[Lease]) -> Result<Vec<Option<Timestamp>>> {
        Ok(self.write(|state, now| leases.iter().map(|lease| state.start(session, *lease, now)).collect()))
    }

    async fn release(&self, session: SessionId, leases: &[Lease]) -> Result<()> {
        self.write(|state, now| {
            for lease in leases {
                state.release(session, *lease, now);
            }
        });
        Ok(())
    }

    async fn checkpoint(&self, session: SessionId, lease: Lease, request: CheckpointRequest) -> Result<bool> {
        let CheckpointRequest { state: payload, sums, calls, effects } = request;
        check_size("checkpoint", &payload)?;
        check_calls(&calls)?;
        self.write(|state, now| {
            let Some(record) = state.leased_record(session, lease) else { return Ok(false) };
            if record.unit.checkpoint.as_ref() == Some(&payload) {
                return Ok(true);
            }
            if !effects.is_empty() {
                return Err(Error::EffectFailed(no_effects()));
            }
            let batch = record.unit.batch.clone();
            state.amend(lease.unit, |record| record.unit.checkpoint = Some(payload));
            if let Some(record) = batch.and_then(|batch| state.batches.get_mut(&batch)) {
                for (name, amount) in sums {
                    let sum = record.batch.sums.entry(name).or_default();
                    *sum = sum.saturating_add(amount);
                }
            }
            state.settle_calls(calls, now);
            Ok(true)
        })
    }

    async fn finish(&self, session: SessionId, finishes: Vec<FinishRequest>) -> Result<Vec<FinishResult>> {
        for finish in &finishes {
            finish.check_sizes()?;
            check_calls(&finish.calls)?;
        }
        Ok(self
            .write(|state, now| finishes.iter().map(|finish| state.finish(session, finish, now)).collect()))
    }

    async fn leases_of(&self, session: SessionId) -> Result<Vec<Lease>> {
        Ok(self.read(|state, _| {
            let held = state.held_by(session).into_iter();
            let fence = |id: UnitId| state.units.get(&id).map(|record| record.unit.fence);
            held.filter_map(|unit| fence(unit).map(|fence| Lease { unit, fence })).collect()
        }))
    }
}

impl State {
    fn open_session(&mut self, new: NewSession, now: Timestamp) {
        let id = new.id;
        let (order, held) = (WorkerCommand::Work, BTreeSet::new());
        let fresh = SessionRecord { new, beats: 0, opened_at: now, beat_at: now, cpu: None, order, held };
        self.sessions.entry(id).or_insert(fresh);
        self.dirty.sessions.insert(id);
    }

    fn beat(&mut self, session: SessionId, beat: &Heartbeat, now: Timestamp) -> Result<HeartbeatReply> {
        self.note_progress(session, &beat.progress);
        let known = self.sessions.get_mut(&session).ok_or(Error::SessionGone(session))?;
        known.beats += 1;
        known.beat_at = now;
        known.cpu = beat.cpu.or(known.cpu);
        let (order, held) = (known.order, known.held.clone());
        let units = || held.iter().filter_map(|id| self.units.get(id));
        let cancel = units().filter(|record| record.unit.cancel_requested);
        let unwanted = units().filter(|record| !record.is_started() && !self.is_runnable(record));
        Ok(HeartbeatReply {
            order,
            cancel: cancel.map(|record| record.unit.id).collect(),
            to_release: unwanted.map(|record| record.unit.id).collect(),
            held: held.len() as u64,
        })
    }

    fn close_session(&mut self, session: SessionId, now: Timestamp) {
        for id in self.held_by(session) {
            let started = self.units.get(&id).is_some_and(UnitRecord::is_started);
            self.revoke(id, &SessionEnd::Closed.event(started), now);
        }
        self.end_session(session, now);
    }

    /// Revokes a lease: raises the fence and applies `event`.
    pub(super) fn revoke(&mut self, id: UnitId, event: &Event<'_>, now: Timestamp) -> Option<UnitState> {
        self.amend(id, |record| record.unit.fence += 1);
        self.apply_event(id, event, now).ok()
    }

    pub(super) fn end_session(&mut self, session: SessionId, now: Timestamp) {
        if self.sessions.remove(&session).is_some() {
            self.dirty.sessions.insert(session);
        }
        self.leaders.retain(|_, (leader, _)| *leader != session);
        self.ledger.end_open_calls(session, now);
        self.close_replies_of(session, now);
    }

    fn adopt(&mut self, from: SessionId, to: SessionId, now: Timestamp) -> Result<Vec<LeasedUnit>> {
        if from == to {
            return Err(Error::Invalid("a session cannot adopt itself".into()));
        }
        if !self.sessions.contains_key(&to) {
            return Err(Error::SessionGone(to));
        }
        if !self.sessions.contains_key(&from) {
            // An earlier attempt may have succeeded, with its response lost.
            return self.previous_adoption(to).ok_or(Error::SessionGone(from));
        }
        let ids = self.held_by(from);
        for &id in &ids {
            self.update(id, |record| {
                record.unit.fence += 1;
                record.unit.session = Some(to);
            });
        }
        self.ledger.transfer_replies(from, to);
        self.end_session(from, now);
        Ok(ids.iter().filter_map(|id| self.units.get(id)).map(held_unit).collect())
    }

    fn previous_adoption(&self, to: SessionId) -> Option<Vec<LeasedUnit>> {
        let ids = self.held_by(to);
        let units = ids.iter().filter_map(|id| self.units.get(id)).map(held_unit);
        (!ids.is_empty()).then(|| units.collect())
    }

    fn start(&mut self, session: SessionId, lease: Lease, now: Timestamp) -> Option<Timestamp> {
        let record = self.leased_record(session, lease)?;
        if record.is_started() {
            return record.unit.started_at;
        }
        if record.is_late(now) || !self.is_runnable(record) {
            return None;
        }
        self.amend(lease.unit, |record| record.count_attempt(now));
        Some(now)
    }

    fn release(&mut self, session: SessionId, lease: Lease, now: Timestamp) {
        if self.leased_record(session, lease).is_some_and(|record| !record.is_started()) {
            self.revoke(lease.unit, &Event::Released, now);
        }
    }

    fn note_progress(&mut self, session: SessionId, notes: &[ProgressNote]) {
        for note in notes {
            if self.leased_record(session, note.lease).is_some() {
                let progress = Some(note.progress.clone());
                self.amend(note.lease.unit, |record| record.unit.progress = progress);
            }
        }
    }

    fn finish(&mut self, session: SessionId, finish: &FinishRequest, now: Timestamp) -> FinishResult {
        let lease = finish.lease;
        let Some(unit) = self.units.get(&lease.unit).map(|record| &record.unit) else {
            return FinishResult::LeaseLost;
        };
        let (fence, state) = (unit.fence, unit.state);
        if let Some(answer) = finish.answer_without_write(Some(session), fence, state, unit.session) {
            return answer;
        }
        if !finish.effects.is_empty() {
            return FinishResult::EffectFailed(no_effects());
        }
        if let Some(state) = finish.checkpoint.clone() {
            self.amend(lease.unit, |record| record.unit.checkpoint = Some(state));
        }
        self.amend(lease.unit, |record| record.count_attempt(now));
        let event = Event::Finished(&finish.outcome);
        let Ok(state) = self.apply_event(lease.unit, &event, now) else {
            return FinishResult::LeaseLost;
        };
        if state == UnitState::Done {
            self.amend(lease.unit, |record| record.unit.checkpoint = None);
        }
        self.settle_calls(finish.calls.clone(), now);
        FinishResult::Recorded(state)
    }

    /// The unit's record, if this session holds it under this lease.
    fn leased_record(&self, session: SessionId, lease: Lease) -> Option<&UnitRecord> {
        let record = self.units.get(&lease.unit)?;
        let holds = record.unit.session == Some(session) && record.unit.fence == lease.fence;
        holds.then_some(record)
    }

    /// The units a session holds.
    pub(super) fn held_by(&self, session: SessionId) -> Vec<UnitId> {
        let held = self.sessions.get(&session).map(|found| found.held.iter().copied().collect());
        held.unwrap_or_default()
    }
}

fn no_effects() -> Failure {
    Failure::new("unsupported", "the memory store has no database for SQL effects")
}
