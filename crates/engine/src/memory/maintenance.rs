//! Maintenance: reclaim, promote, prune, lead.

use std::time::Duration;

use async_trait::async_trait;
use longshore_core::failure_detector::{SessionBeats, StalledSession};
use longshore_core::store::{Maintenance, PromoteResult, PruneResult, ReclaimResult, Retention};
use longshore_core::unit_state::Event;
use longshore_core::{BatchId, Result, SessionId, Timestamp, UnitId, UnitState};

use super::MemoryStore;
use super::state::{SessionRecord, State};

#[async_trait]
impl Maintenance for MemoryStore {
    async fn session_beats(&self) -> Result<Vec<SessionBeats>> {
        Ok(self.read(|state, _| {
            let beats = |(id, session): (&SessionId, &SessionRecord)| SessionBeats {
                session: *id,
                ttl: session.new.ttl,
                beats: session.beats,
                process: session.new.process.clone(),
            };
            state.sessions.iter().map(beats).collect()
        }))
    }

    async fn reclaim(&self, dead: &[StalledSession]) -> Result<ReclaimResult> {
        Ok(self.write(|state, now| {
            let mut found = ReclaimResult::default();
            for dead in dead {
                state.reclaim(*dead, &mut found, now);
            }
            found
        }))
    }

    async fn promote(&self, limit: u32) -> Result<PromoteResult> {
        Ok(self.write(|state, now| state.promote(limit as usize, now)))
    }

    async fn prune(&self, retention: Retention, limit: u32) -> Result<PruneResult> {
        Ok(self.write(|state, now| state.prune(retention, limit as usize, now)))
    }

    async fn acquire_leadership(&self, role: &str, session: SessionId, ttl: Duration) -> Result<bool> {
        Ok(self.write(|state, now| {
            let free = match state.leaders.get(role) {
                // A term that ends later than a term granted now was granted before the clock went
                // back.
                Some((leader, until)) => *leader == session || *until <= now || *until > now + ttl,
                None => true,
            };
            if free {
                state.leaders.insert(role.to_owned(), (session, now + ttl));
            }
            free
        }))
    }
}

impl State {
    fn reclaim(&mut self, dead: StalledSession, found: &mut ReclaimResult, now: Timestamp) {
        let same = |beats: u64| beats == dead.beats;
        if !self.sessions.get(&dead.session).is_some_and(|session| same(session.beats)) {
            return;
        }
        for id in self.held_by(dead.session) {
            match self.revoke(id, &Event::Lost, now) {
                Some(UnitState::Ready | UnitState::Scheduled) => found.requeued += 1,
                Some(UnitState::Failed) => found.failed += 1,
                _ => {}
            }
        }
        self.end_session(dead.session, now);
        found.sessions += 1;
    }

    fn promote(&mut self, limit: usize, now: Timestamp) -> PromoteResult {
        let mut done = PromoteResult::default();
        let mut left = limit;
        let late = due_ids(&self.index.deadlines, now, left);
        for id in &late {
            done.expired += u64::from(self.apply_event(*id, &Event::Expired, now).is_ok());
        }
        left -= late.len();
        let due = due_ids(&self.index.scheduled, now, left);
        for id in &due {
            done.due += u64::from(self.apply_event(*id, &Event::Due, now).is_ok());
        }
        left -= due.len();
        let given_up = self
            .batches
            .iter()
            .filter(|(_, record)| record.batch.status.is_aborted() && record.batch.counts.live() > 0);
        let given_up: Vec<BatchId> = given_up.map(|(id, _)| id.clone()).collect();
        for id in given_up {
            let swept = self.sweep(&id, left, now);
            done.cancelled += swept;
            left = left.saturating_sub(usize::try_from(swept).unwrap_or(usize::MAX));
        }
        done.more = left == 0;
        let next = self.index.scheduled.first().filter(|_| !done.more);
        done.next_due = next.map(|(due, _)| due.since(now));
        done
    }

    fn prune(&mut self, retention: Retention, limit: usize, now: Timestamp) -> PruneResult {
        let keep_for = |state| match state {
            UnitState::Failed => retention.failed,
            _ => retention.done,
        };
        let old = |id: &UnitId| {
            let record = self.units.get(id)?;
            (record.sort_key + keep_for(record.unit.state) <= now).then_some(*id)
        };
        let units: Vec<UnitId> = self.index.ended.iter().filter_map(|(_, id)| old(id)).take(limit).collect();
        let mut done = PruneResult { more: units.len() == limit, ..PruneResult::default() };
        for id in units {
            self.prune_unit(id);
            done.units += 1;
        }
        for id in self.expired_batches(retention.batches, now) {
            done.units += self.prune_batch(&id);
            done.batches += 1;
        }
        done.lanes = self.prune_lanes();
        done.audit_entries = self.ledger.prune_audit_log(now - retention.audit_log, limit);
        self.ledger.prune_tokens(now - retention.audit_log);
        done.calls = self.ledger.prune_calls(retention.calls_until(now), limit);
        done.more |= done.audit_entries.max(done.calls) == limit as u64;
        done
    }

    /// Removes lanes and queues without units and settings. The first lane of a queue with settings stays,
    /// so that the queue is listed.
    fn prune_lanes(&mut self) -> u64 {
        let before = self.lanes.len();
        self.queues.retain(|_, queue| queue.has_settings());
        let (queues, mut listed) = (&self.queues, None);
        self.lanes.retain(|(queue, _), lane| {
            let is_first = listed.as_ref() != Some(queue);
            listed = Some(queue.clone());
            lane.is_needed() || (is_first && queues.contains_key(queue))
        });
        (before - self.lanes.len()) as u64
    }

    /// Removes a unit's record; its batch still counts it.
    fn prune_unit(&mut self, id: UnitId) {
        let Some(record) = self.remove(id) else {
            return;
        };
        let state = record.unit.state;
        let batch = record.unit.batch.as_ref().and_then(|id| self.batches.get_mut(id));
        if let Some(batch) = batch {
            *batch.batch.counts.counter_mut(state) += 1;
            *batch.pruned.counter_mut(state) += 1;
        }
    }

    fn expired_batches(&self, keep_for: Duration, now: Timestamp) -> Vec<BatchId> {
        let old = self.batches.values().map(|record| &record.batch).filter(|batch| {
            let over = batch.status.is_final() && batch.counts.live() == 0;
            over && batch.completed_at.is_some_and(|at| at + keep_for <= now)
        });
        old.map(|batch| batch.id.clone()).collect()
    }

    /// Removes a batch and all its units.
    fn prune_batch(&mut self, id: &BatchId) -> u64 {
        let Some(record) = self.batches.get(id) else {
            return 0;
        };
        let units: Vec<UnitId> = record.units.iter().copied().collect();
        for unit in &units {
            self.remove(*unit);
        }
        self.batches.remove(id);
        units.len() as u64
    }
}

fn due_ids(
    index: &std::collections::BTreeSet<(Timestamp, UnitId)>,
    now: Timestamp,
    limit: usize,
) -> Vec<UnitId> {
    index.iter().take_while(|(at, _)| *at <= now).take(limit).map(|(_, id)| *id).collect()
}
