//! Enqueueing: admission, dedup, dependencies, and batches with their cursor.

use std::collections::BTreeSet;
use std::convert::Infallible;

use async_trait::async_trait;
use longshore_core::admission::{LimitUsage, UnitDependencies};
use longshore_core::batch::Sums;
use longshore_core::store::{
    AddChunkResult, BatchChunk, CapacityScope, Enqueue, OpenBatchResult, SendRejection, SendResult,
};
use longshore_core::unit::DedupWindow;
use longshore_core::unit_state::Event;
use longshore_core::{
    Batch, BatchId, BatchStatus, Counts, Error, NewBatch, NewUnit, Result, Scope, TenantId, Timestamp, UnitId,
};

use super::MemoryStore;
use super::post_write::DirtySet;
use super::record::UnitRecord;
use super::state::{BatchRecord, LaneState, State};

#[async_trait]
impl Enqueue for MemoryStore {
    async fn send(&self, scope: &Scope, units: Vec<NewUnit>) -> Result<Vec<SendResult>> {
        scope.check_units(&units)?;
        Ok(self.write(|state, now| {
            units.into_iter().map(|unit| state.enqueue(scope, unit, None, now)).collect()
        }))
    }

    async fn open_batch(&self, scope: &Scope, batch: NewBatch) -> Result<OpenBatchResult> {
        self.write(|state, now| state.open_batch(scope, batch, now))
    }

    async fn add_to_batch(&self, scope: &Scope, id: &BatchId, chunk: BatchChunk) -> Result<AddChunkResult> {
        scope.check_units(&chunk.units)?;
        self.write(|state, now| state.add_to_batch(scope, id, chunk, now))
    }
}

impl State {
    /// Enqueues one unit, or returns why not.
    pub(super) fn enqueue(
        &mut self,
        scope: &Scope,
        unit: NewUnit,
        batch: Option<&BatchId>,
        now: Timestamp,
    ) -> SendResult {
        if let Some(found) = self.units.get(&unit.id) {
            return match found.unit.tenant == unit.tenant {
                true => SendResult::Created(unit.id),
                false => SendResult::Rejected(SendRejection::IdTaken(unit.id)),
            };
        }
        if self.is_suspended(&unit.tenant) {
            return SendResult::Rejected(SendRejection::Suspended(unit.tenant));
        }
        if let Some(answer) = self.duplicate(&unit) {
            return answer;
        }
        let state_of = |id: UnitId| {
            let found = self.units.get(&id).filter(|found| found.unit.tenant == unit.tenant);
            Ok::<_, Infallible>(found.map(|found| found.unit.state))
        };
        let Ok(dependencies) = UnitDependencies::resolve(&unit.dependencies, state_of);
        let UnitDependencies { open, failed } = match dependencies {
            Ok(dependencies) => dependencies,
            Err(unknown) => return SendResult::Rejected(unknown),
        };
        let too_many = self.stream_rejection(scope, &unit, batch);
        if let Some(rejection) = too_many.or_else(|| self.capacity_rejection(&unit)) {
            return SendResult::Rejected(rejection);
        }
        let (id, free) = (unit.id, open.is_empty());
        self.insert(UnitRecord::new(unit, batch.cloned(), open.into_iter().collect(), now));
        let event = failed.map_or(Event::Unblocked, Event::DependencyFailed);
        if free {
            // It was just inserted as blocked, and a blocked unit accepts both events.
            _ = self.apply_event(id, &event, now);
        }
        SendResult::Created(id)
    }

    /// Whether the unit would be the first one of a queue or stream, and its tenant has too many.
    fn stream_rejection(
        &self,
        scope: &Scope,
        unit: &NewUnit,
        batch: Option<&BatchId>,
    ) -> Option<SendRejection> {
        let lane = (unit.queue.clone(), unit.tenant.clone());
        if !self.lanes.contains_key(&lane) {
            let rejection = scope.check_new_queue(self.lanes_of(&unit.tenant).count() as u64);
            if rejection.is_some() {
                return rejection;
            }
        }
        let streams = self.streams.get(&unit.tenant)?;
        if streams.contains_key(&(lane.0, unit.kind.clone(), batch.cloned())) {
            return None;
        }
        scope.check_new_stream(streams.len() as u64, self.batches_of(&unit.tenant))
    }

    fn batches_of(&self, tenant: &TenantId) -> u64 {
        self.batches.values().filter(|record| record.batch.tenant == *tenant).count() as u64
    }

    fn duplicate(&mut self, unit: &NewUnit) -> Option<SendResult> {
        let dedup = unit.dedup.as_ref()?;
        let key = (unit.tenant.clone(), unit.queue.clone(), dedup.key.clone());
        let first = *self.index.keys.get(&key)?;
        let holder = self.units.get(&first)?;
        if !holder.window.keeps_key_against(holder.ended_at(), dedup.window) {
            // The holder gives up its key permanently.
            self.amend(first, |record| record.window = DedupWindow::WhileLive);
            return None;
        }
        Some(dedup.on_duplicate.answer(first))
    }

    /// Whether the lane, the queue or the tenant has no capacity for this unit.
    fn capacity_rejection(&self, unit: &NewUnit) -> Option<SendRejection> {
        let add = unit.stored_bytes();
        let lane = self.lanes.get(&(unit.queue.clone(), unit.tenant.clone()));
        let of_lane = lane
            .and_then(|lane| lane.usage(LimitUsage::new(CapacityScope::Lane, lane.capacity)).rejection(add));
        let of_queue = || {
            let mut usage = LimitUsage::new(CapacityScope::Queue, self.queues.get(&unit.queue)?.capacity);
            if usage.is_limited() {
                let lanes = self.lanes.iter().filter(|(key, _)| key.0 == unit.queue);
                usage = lanes.fold(usage, |usage, (_, lane)| lane.usage(usage));
            }
            usage.rejection(add)
        };
        let of_tenant = || {
            let usage = LimitUsage::new(CapacityScope::Tenant, self.tenants.get(&unit.tenant)?.capacity);
            self.lanes_of(&unit.tenant).fold(usage, |usage, (_, lane)| lane.usage(usage)).rejection(add)
        };
        of_lane.or_else(of_queue).or_else(of_tenant)
    }

    fn open_batch(&mut self, scope: &Scope, new: NewBatch, now: Timestamp) -> Result<OpenBatchResult> {
        new.check()?;
        scope.require(&new.tenant)?;
        let new = NewBatch { id: new.full_id(), ..new };
        if let Some(found) = self.batches.get(&new.id) {
            return Ok(OpenBatchResult::Existing(found.batch.clone()));
        }
        let (suspended, existing) = (self.is_suspended(&new.tenant), self.batches_of(&new.tenant));
        scope.check_new_batch(&new.tenant, suspended, existing)?;
        let definition = new.definition.clone();
        self.last_batch += 1;
        let batch = new_batch(new, self.last_batch, now);
        let (units, pruned) = (BTreeSet::new(), Counts::default());
        self.dirty.batches.insert(batch.id.clone());
        let record = BatchRecord { batch: batch.clone(), units, pruned, definition };
        self.batches.insert(batch.id.clone(), record);
        Ok(OpenBatchResult::Created(batch))
    }

    fn add_to_batch(
        &mut self,
        scope: &Scope,
        id: &BatchId,
        chunk: BatchChunk,
        now: Timestamp,
    ) -> Result<AddChunkResult> {
        let batch = self.batch_mut(scope, id)?;
        let id = &batch.id.clone();
        if let Some(moved) = batch.check_chunk(&chunk)? {
            return Ok(moved);
        }
        let known = chunk.units.iter().filter(|unit| self.units.contains_key(&unit.id));
        let known: BTreeSet<UnitId> = known.map(|unit| unit.id).collect();
        let enqueue = |unit| self.enqueue(scope, unit, Some(id), now);
        let mut answers: Vec<SendResult> = chunk.units.into_iter().map(enqueue).collect();
        if let Some(full) = answers.iter().find(|sent| sent.keeps_chunk_out()).cloned() {
            self.roll_back_chunk(&mut answers, &full, &known);
        } else {
            self.batch_mut(scope, id)?.cursor = chunk.next;
            self.dirty.batches.insert(id.clone());
        }
        Ok(AddChunkResult::Committed(answers))
    }

    /// Removes the stored units of a rejected chunk: it is stored completely or not at all.
    fn roll_back_chunk(&mut self, answers: &mut [SendResult], full: &SendResult, known: &BTreeSet<UnitId>) {
        for answer in answers {
            if let SendResult::Created(id) = *answer
                && !known.contains(&id)
            {
                self.remove(id);
                *answer = full.clone();
            }
        }
        // Nothing changed, so nothing is published: a sender that waits for capacity would be woken
        // by its own attempts.
        self.dirty = DirtySet::default();
    }

    /// The batch, if it is within `scope`.
    pub(super) fn batch_mut(&mut self, scope: &Scope, id: &BatchId) -> Result<&mut Batch> {
        let found = self.batches.get_mut(&scope.batch_id(id)).map(|record| &mut record.batch);
        found.filter(|batch| scope.covers(&batch.tenant)).ok_or_else(|| Error::not_found("batch", id))
    }

    /// Advances batches now, to return the record as readers will see it.
    pub(super) fn advance_batch(&mut self, scope: &Scope, id: &BatchId, now: Timestamp) -> Result<Batch> {
        self.advance_dirty_batches(now);
        self.batch_mut(scope, id).cloned()
    }
}

impl LaneState {
    /// `usage` with the lane's units added.
    fn usage(&self, usage: LimitUsage) -> LimitUsage {
        LimitUsage {
            live: usage.live + self.counts.live(),
            bytes: usage.bytes + self.bytes,
            stored: usage.stored.map(|stored| stored + self.stored),
            ..usage
        }
    }
}

fn new_batch(new: NewBatch, number: u64, now: Timestamp) -> Batch {
    Batch {
        id: new.id,
        number,
        tenant: new.tenant,
        kind: new.kind,
        status: BatchStatus::Queued,
        reason: None,
        initiated_by: new.initiated_by,
        initiated_at: now,
        started_at: None,
        completed_at: None,
        paused_at: None,
        paused_ms: 0,
        workers: new.workers,
        expected: new.expected,
        notes: new.notes,
        cursor: String::new(),
        sealed: false,
        generation: 1,
        threshold: new.threshold,
        forgiven: 0,
        callback: new.callback,
        announced: 0,
        counts: Counts::default(),
        sums: Sums::new(),
    }
}
