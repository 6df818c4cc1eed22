//! Enqueueing: admission, dedup, dependencies, and batches with their cursor.

use std::collections::BTreeSet;

use async_trait::async_trait;
use longshore_core::batch::{BatchRefusal, Sums};
use longshore_core::machine::Event;
use longshore_core::store::{Added, BatchChunk, Bound, Capacity, Intake, Opened, Refusal, Sent};
use longshore_core::unit::{DedupWindow, OnDependencyFailure, OnDuplicate};
use longshore_core::{
    Batch, BatchId, BatchStatus, Counts, Error, NewBatch, NewUnit, Result, Scope, Timestamp,
    UnitId, UnitState,
};

use super::MemoryStore;
use super::post_write::DirtySet;
use super::record::UnitRecord;
use super::state::{BatchRecord, State};

#[async_trait]
impl Intake for MemoryStore {
    async fn send(&self, scope: &Scope, units: Vec<NewUnit>) -> Result<Vec<Sent>> {
        check_units(scope, &units)?;
        Ok(self.write(|state, now| {
            units.into_iter().map(|unit| state.enqueue(unit, None, now)).collect()
        }))
    }

    async fn open_batch(&self, scope: &Scope, batch: NewBatch) -> Result<Opened> {
        self.write(|state, now| state.open_batch(scope, batch, now))
    }

    async fn add_to_batch(&self, scope: &Scope, id: &BatchId, chunk: BatchChunk) -> Result<Added> {
        check_units(scope, &chunk.units)?;
        self.write(|state, now| state.add_to_batch(scope, id, chunk, now))
    }
}

pub(super) fn check_units(scope: &Scope, units: &[NewUnit]) -> Result<()> {
    for unit in units {
        unit.check()?;
        if !scope.covers(&unit.tenant) {
            return Err(Error::Invalid(format!("no access to tenant `{}`", unit.tenant)));
        }
    }
    Ok(())
}

/// The state of a new unit's dependencies. Units of another tenant count as unknown.
enum Dependencies {
    Pending(BTreeSet<UnitId>),
    Failed(UnitId),
    Unknown(UnitId),
}

impl State {
    /// Enqueues one unit, or returns why not.
    pub(super) fn enqueue(
        &mut self,
        unit: NewUnit,
        batch: Option<&BatchId>,
        now: Timestamp,
    ) -> Sent {
        if self.units.contains_key(&unit.id) {
            return Sent::Created(unit.id);
        }
        if self.is_suspended(&unit.tenant) {
            return Sent::Refused(Refusal::Suspended(unit.tenant));
        }
        if let Some(answer) = self.duplicate(&unit) {
            return answer;
        }
        let (pending, failed) = match self.dependencies(&unit) {
            Dependencies::Pending(pending) => (pending, None),
            Dependencies::Failed(on) => (BTreeSet::new(), Some(on)),
            Dependencies::Unknown(on) => return Sent::Refused(Refusal::UnknownDependency(on)),
        };
        if let Some(refusal) = self.capacity_refusal(&unit) {
            return Sent::Refused(refusal);
        }
        let (id, free) = (unit.id, pending.is_empty());
        self.insert(UnitRecord::new(unit, batch.cloned(), pending, now));
        let event = failed.map_or(Event::Unblocked, Event::DependencyFailed);
        if free {
            // It was just inserted as blocked, and a blocked unit accepts both events.
            _ = self.apply_event(id, &event, now);
        }
        Sent::Created(id)
    }

    fn duplicate(&mut self, unit: &NewUnit) -> Option<Sent> {
        let dedup = unit.dedup.as_ref()?;
        let key = (unit.tenant.clone(), unit.queue.clone(), dedup.key.clone());
        let first = *self.index.keys.get(&key)?;
        let holder = self.units.get(&first)?;
        if !holder.window.holds_against(holder.ended_at(), dedup.window) {
            // The holder gives up its key permanently.
            self.amend(first, |record| record.window = DedupWindow::WhileLive);
            return None;
        }
        Some(match dedup.on_duplicate {
            OnDuplicate::Existing => Sent::Existing(first),
            OnDuplicate::Refused => Sent::Refused(Refusal::Duplicate(first)),
        })
    }

    fn dependencies(&self, unit: &NewUnit) -> Dependencies {
        let mut pending = BTreeSet::new();
        let mut failed = None;
        for &on in &unit.after.units {
            let found = self.units.get(&on).filter(|found| found.unit.tenant == unit.tenant);
            let Some(found) = found else {
                return Dependencies::Unknown(on);
            };
            match found.unit.state {
                UnitState::Failed | UnitState::Cancelled
                    if unit.after.on_failure == OnDependencyFailure::Cancel =>
                {
                    failed = Some(on);
                }
                state if state.is_final() => {}
                _ => _ = pending.insert(on),
            }
        }
        failed.map_or(Dependencies::Pending(pending), Dependencies::Failed)
    }

    /// Whether the lane, the queue or the tenant has no capacity for this unit.
    fn capacity_refusal(&self, unit: &NewUnit) -> Option<Refusal> {
        let add = unit.payload.len() as u64;
        let lane = self.lanes.get(&(unit.queue.clone(), unit.tenant.clone()));
        let of_lane = lane.and_then(|lane| {
            exceeded(Bound::Lane, lane.capacity, lane.counts.live(), lane.bytes, add)
        });
        let of_queue = || {
            let capacity = self.queues.get(&unit.queue)?.capacity;
            if capacity == Capacity::default() {
                return None;
            }
            let lanes = self.lanes.iter().filter(|(key, _)| key.0 == unit.queue);
            let (live, bytes) = lanes.fold((0, 0), |(live, bytes), (_, lane)| {
                (live + lane.counts.live(), bytes + lane.bytes)
            });
            exceeded(Bound::Queue, capacity, live, bytes, add)
        };
        let of_tenant = || {
            let capacity = self.tenants.get(&unit.tenant)?.capacity;
            let (counts, bytes) = self.tenant_counts(&unit.tenant);
            exceeded(Bound::Tenant, capacity, counts.live(), bytes, add)
        };
        of_lane.or_else(of_queue).or_else(of_tenant)
    }

    fn open_batch(&mut self, scope: &Scope, new: NewBatch, now: Timestamp) -> Result<Opened> {
        new.check()?;
        if !scope.covers(&new.tenant) {
            return Err(Error::Invalid(format!("no access to tenant `{}`", new.tenant)));
        }
        if let Some(found) = self.batches.get(&new.id) {
            if found.batch.tenant != new.tenant {
                return Err(Error::Invalid(format!("the batch name `{}` is taken", new.id)));
            }
            return Ok(Opened::Existing(found.batch.clone()));
        }
        let definition = new.definition.clone();
        let batch = new_batch(new, now);
        let (units, pruned) = (BTreeSet::new(), Counts::default());
        self.dirty.batches.insert(batch.id.clone());
        let record = BatchRecord { batch: batch.clone(), units, pruned, definition };
        self.batches.insert(batch.id.clone(), record);
        Ok(Opened::Created(batch))
    }

    fn add_to_batch(
        &mut self,
        scope: &Scope,
        id: &BatchId,
        chunk: BatchChunk,
        now: Timestamp,
    ) -> Result<Added> {
        let batch = self.batch_mut(scope, id)?;
        if chunk.units.iter().any(|unit| unit.tenant != batch.tenant) {
            let tenant = &batch.tenant;
            return Err(Error::Invalid(format!("batch `{id}` takes units of `{tenant}` only")));
        }
        if batch.cursor != chunk.expected {
            return Ok(Added::CursorMoved(batch.cursor.clone()));
        }
        if batch.sealed || batch.status.is_final() {
            let (batch, status) = (id.clone(), batch.status);
            return Err(BatchRefusal { batch, status, wanted: "added to" }.into());
        }
        let known = chunk.units.iter().filter(|unit| self.units.contains_key(&unit.id));
        let known: BTreeSet<UnitId> = known.map(|unit| unit.id).collect();
        let enqueue = |unit| self.enqueue(unit, Some(id), now);
        let mut answers: Vec<Sent> = chunk.units.into_iter().map(enqueue).collect();
        if let Some(full) = answers.iter().find(|sent| rejects_chunk(sent)).cloned() {
            self.roll_back_chunk(&mut answers, &full, &known);
        } else {
            self.batch_mut(scope, id)?.cursor = chunk.next;
            self.dirty.batches.insert(id.clone());
        }
        Ok(Added::Committed(answers))
    }

    /// Removes the stored units of a rejected chunk: it is stored completely or not at all.
    fn roll_back_chunk(&mut self, answers: &mut [Sent], full: &Sent, known: &BTreeSet<UnitId>) {
        for answer in answers {
            if let Sent::Created(id) = *answer
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
        let found = self.batches.get_mut(id).map(|record| &mut record.batch);
        found
            .filter(|batch| scope.covers(&batch.tenant))
            .ok_or_else(|| Error::not_found("batch", id))
    }

    /// Advances batches now, to return the record as readers will see it.
    pub(super) fn advance_batch(
        &mut self,
        scope: &Scope,
        id: &BatchId,
        now: Timestamp,
    ) -> Result<Batch> {
        self.advance_dirty_batches(now);
        self.batch_mut(scope, id).cloned()
    }
}

fn rejects_chunk(sent: &Sent) -> bool {
    matches!(sent, Sent::Refused(refusal) if refusal.keeps_chunk_out())
}

fn exceeded(bound: Bound, capacity: Capacity, live: u64, bytes: u64, add: u64) -> Option<Refusal> {
    let units = capacity.units.filter(|most| live + 1 > *most);
    let size = capacity.bytes.filter(|most| bytes + add > *most);
    let limit = match (units, size) {
        (Some(most), _) => format!("{most} units"),
        (None, Some(most)) => format!("{most} bytes"),
        (None, None) => return None,
    };
    Some(Refusal::Full { bound, live, bytes, limit })
}

fn new_batch(new: NewBatch, now: Timestamp) -> Batch {
    Batch {
        id: new.id,
        tenant: new.tenant,
        kind: new.kind,
        status: BatchStatus::Queued,
        reason: None,
        initiated_by: new.initiated_by,
        initiated_at: now,
        started_at: None,
        completed_at: None,
        workers: new.workers,
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
