//! Queries: reads, pages, changes and wake-ups.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use longshore_core::page::{BatchCursor, UnitCursor};
use longshore_core::store::{
    ChangeSet, Page, Queries, QueueInfo, Queues, Totals, UnitFailure, UnitFilter, Violation,
};
use longshore_core::worker_session::Session;
use longshore_core::{Batch, BatchId, BatchStatus, Error, Payload, Result, Scope, Unit, UnitId};
use tokio::time::{Instant, timeout, timeout_at};

use super::MemoryStore;
use super::record::{LaneKey, UnitRecord};
use super::state::{LaneState, SessionRecord, State};

#[async_trait]
impl Queries for MemoryStore {
    async fn unit(&self, scope: &Scope, id: UnitId) -> Result<Unit> {
        self.read(|state, _| state.find(scope, id).map(|record| record.unit.clone()))
    }

    async fn units(
        &self,
        scope: &Scope,
        filter: &UnitFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Unit>> {
        let after = UnitCursor::parse(after)?;
        Ok(self.read(|state, _| {
            let newest_first = state.units.values().rev();
            let rest = newest_first.filter(|found| found.unit.id < after.id);
            let listed = rest.filter(|found| is_listed(&found.unit, scope, filter));
            let units = listed.map(|found| shown(&found.unit));
            let cursor = |unit: &Unit| UnitCursor::by_id(unit.id).to_string();
            Page::first(units, limit, cursor).within_bytes(|_, unit| cursor(unit))
        }))
    }

    async fn failures(&self, scope: &Scope, id: UnitId) -> Result<Vec<UnitFailure>> {
        self.read(|state, _| state.find(scope, id).map(|record| record.failures.clone()))
    }

    async fn queues(&self, scope: &Scope) -> Result<Vec<QueueInfo>> {
        Ok(self.read(|state, _| {
            let lanes = state.lanes.iter().filter(|(key, _)| scope.covers(&key.1));
            lanes.map(|(key, lane)| state.describe(key, lane)).collect()
        }))
    }

    async fn batch(&self, scope: &Scope, id: &BatchId) -> Result<Batch> {
        self.read(|state, _| {
            let batches = || state.batches.values().map(|record| &record.batch);
            let by_name = state.batches.get(&scope.batch_id(id)).map(|record| &record.batch);
            let number = scope.batch_number(id).and_then(|number| u64::try_from(number).ok());
            let by_number = || batches().find(|batch| Some(batch.number) == number);
            let found = by_name.or_else(by_number).cloned();
            found.filter(|batch| scope.covers(&batch.tenant)).ok_or_else(|| Error::not_found("batch", id))
        })
    }

    async fn definition(&self, scope: &Scope, id: &BatchId) -> Result<Option<Payload>> {
        self.read(|state, _| {
            let found =
                state.batches.get(&scope.batch_id(id)).filter(|found| scope.covers(&found.batch.tenant));
            let found = found.ok_or_else(|| Error::not_found("batch", id))?;
            Ok(found.definition.clone())
        })
    }

    async fn batches(
        &self,
        scope: &Scope,
        status: Option<BatchStatus>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Batch>> {
        let after = BatchCursor::parse(after)?;
        Ok(self.read(|state, _| {
            let mut all: Vec<&Batch> = state.batches.values().map(|found| &found.batch).collect();
            all.sort_by_cached_key(|batch| std::cmp::Reverse(BatchCursor::of(batch)));
            let listed = all.into_iter().filter(|batch| {
                let rest = BatchCursor::of(batch) < after;
                rest && scope.covers(&batch.tenant) && status.is_none_or(|s| s == batch.status)
            });
            let cursor = |batch: &Batch| BatchCursor::of(batch).to_string();
            Page::first(listed.cloned(), limit, cursor).within_bytes(|_, batch| cursor(batch))
        }))
    }

    async fn sessions(&self) -> Result<Vec<Session>> {
        Ok(self.read(|state, _| state.sessions.values().map(SessionRecord::describe).collect()))
    }

    async fn totals(&self, scope: &Scope, queues: &Queues) -> Result<Totals> {
        Ok(self.read(|state, _| {
            let lanes = state.lanes.iter().filter(|(key, _)| {
                let named = match queues {
                    Queues::All => true,
                    Queues::Named(names) => names.contains(&key.0),
                };
                named && scope.covers(&key.1)
            });
            let open =
                state.batches.values().map(|record| &record.batch).filter(|batch| {
                    !batch.sealed && !batch.status.is_aborted() && scope.covers(&batch.tenant)
                });
            let counts = lanes.map(|(_, lane)| lane.counts).sum();
            let (open_batches, sessions) = (open.count() as u64, state.sessions.len() as u64);
            Totals { counts, open_batches, sessions }
        }))
    }

    async fn changes(&self, scope: &Scope, since: u64, wait: Duration) -> Result<ChangeSet> {
        let mut changed = self.changed.subscribe();
        let until = Instant::now() + wait;
        let mut since = match since {
            u64::MAX => self.read(|state, _| state.feed.newest()),
            given => given,
        };
        loop {
            changed.borrow_and_update();
            let found = self.read(|state, _| state.feed.since(scope, since));
            if found.missed || !found.changes.is_empty() {
                return Ok(found);
            }
            // Changes that only other scopes may see advance the cursor.
            since = found.cursor;
            if timeout_at(until, changed.changed()).await.is_err() {
                return Ok(found);
            }
        }
    }

    async fn wait_for_ready(&self, last_seq: u64, wait: Duration) -> u64 {
        let raised = self.claimable_raised.notified();
        let claimable = self.claimable.load(Ordering::Acquire);
        // One notification raises the count. A timeout is no error: the current count is returned either way.
        if claimable > last_seq || timeout(wait, raised).await.is_err() {
            return claimable;
        }
        self.claimable.load(Ordering::Acquire)
    }

    async fn verify(&self) -> Result<Vec<Violation>> {
        Ok(self.read(|state, _| state.verify()))
    }
}

fn is_listed(unit: &Unit, scope: &Scope, filter: &UnitFilter) -> bool {
    scope.covers(&unit.tenant)
        && filter.state.is_none_or(|state| state == unit.state)
        && filter.queue.as_ref().is_none_or(|queue| *queue == unit.queue)
        && filter.kind.as_ref().is_none_or(|kind| *kind == unit.kind)
        && (filter.batch.is_none() || filter.batch.as_ref().map(|id| scope.batch_id(id)) == unit.batch)
}

/// A unit as lists show it: without its potentially large parts.
fn shown(unit: &Unit) -> Unit {
    let payload = Payload::from(Vec::new());
    Unit { payload, checkpoint: None, result: None, ..unit.clone() }
}

impl SessionRecord {
    fn describe(&self) -> Session {
        Session {
            id: self.new.id,
            label: self.new.label.clone(),
            version: self.new.version.clone(),
            kinds: self.new.kinds.keys().cloned().collect(),
            slots: self.new.slots,
            ttl: self.new.ttl,
            beats: self.beats,
            opened_at: self.opened_at,
            beat_at: self.beat_at,
            cpu: self.cpu,
            held: self.held.len() as u64,
            command: self.order,
            process: self.new.process.clone(),
        }
    }
}

impl State {
    fn find(&self, scope: &Scope, id: UnitId) -> Result<&UnitRecord> {
        let found = self.units.get(&id).filter(|record| scope.covers(&record.unit.tenant));
        found.ok_or_else(|| Error::not_found("unit", id))
    }

    fn describe(&self, key: &LaneKey, lane: &LaneState) -> QueueInfo {
        let ready = lane.ready.iter().filter_map(|(_, id)| self.units.get(id));
        QueueInfo {
            queue: key.0.clone(),
            tenant: key.1.clone(),
            paused: self.is_paused(key),
            queue_paused: self.queues.get(&key.0).is_some_and(|queue| queue.paused),
            lane_paused: lane.paused,
            suspended: self.is_suspended(&key.1),
            weight: lane.weight,
            cap: lane.cap,
            capacity: self.queues.get(&key.0).map(|queue| queue.capacity).unwrap_or_default(),
            lane_capacity: lane.capacity,
            counts: lane.counts,
            bytes: lane.bytes,
            oldest_ready: ready.map(|record| record.unit.since).min(),
        }
    }
}
