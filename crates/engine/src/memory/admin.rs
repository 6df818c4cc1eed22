//! Admin operations on units, batches, queues, lanes and workers.

use std::convert::Infallible;

use async_trait::async_trait;
use longshore_core::admission::UnitDependencies;
use longshore_core::batch::{BatchAction, BatchRevision, apply_action, reopen};
use longshore_core::store::{
    Admin, LaneChange, QueueChange, SettingsChange, UnitAction, UnitActionResult, UnitSelection,
};
use longshore_core::unit::check_size;
use longshore_core::unit_state::Event;
use longshore_core::worker_session::WorkerCommand;
use longshore_core::{
    Batch, BatchId, Error, Payload, QueueName, Result, Scope, SessionId, TenantId, Timestamp, UnitId,
    UnitState,
};

use super::MemoryStore;
use super::record::{LaneKey, UnitRecord};
use super::state::State;

#[async_trait]
impl Admin for MemoryStore {
    async fn apply_unit_action(
        &self,
        scope: &Scope,
        units: UnitSelection,
        action: UnitAction,
    ) -> Result<UnitActionResult> {
        self.write(|state, now| {
            let ids = state.select(scope, units)?;
            Ok(state.operate(&ids, action, now))
        })
    }

    async fn apply_batch_action(&self, scope: &Scope, batch: &BatchId, action: BatchAction) -> Result<Batch> {
        self.write(|state, now| {
            let found = state.batch_mut(scope, batch)?.clone();
            let batch = &found.id.clone();
            if let BatchAction::Revise(revision) = &action {
                check_size("definition", &revision.definition)?;
                let stored = state.batches.get(batch).and_then(|record| record.definition.as_ref());
                // The definition itself: a repeat after a lost answer.
                if stored != Some(&revision.expected) && stored != Some(&revision.definition) {
                    return Err(BatchRevision::conflict(batch));
                }
            }
            let is_retry = action == BatchAction::RetryFailed;
            let retry = if is_retry { state.retryable(batch) } else { vec![] };
            let acted = apply_action(state.batch_mut(scope, batch)?, &action);
            acted?;
            if is_retry && let Err(rejection) = found.check_retried(retry.len()) {
                *state.batch_mut(scope, batch)? = found;
                return Err(rejection.into());
            }
            if let BatchAction::Revise(revision) = action
                && let Some(record) = state.batches.get_mut(batch)
            {
                record.definition = Some(revision.definition);
            }
            for id in retry {
                _ = state.apply_event(id, &Event::Retry, now);
            }
            if is_retry {
                state.retry_dependants(batch, now)?;
            }
            state.dirty.claimable = true;
            state.dirty.batches.insert(batch.clone());
            state.advance_batch(scope, batch, now)
        })
    }

    async fn change_definition(
        &self,
        scope: &Scope,
        batch: &BatchId,
        from: Payload,
        to: Payload,
    ) -> Result<()> {
        self.write(|state, _| {
            let id = state.batch_mut(scope, batch)?.id.clone();
            let found = state.batches.get_mut(&id).ok_or_else(|| Error::not_found("batch", batch))?;
            if found.definition.as_ref().is_none_or(|now| *now != from && *now != to) {
                return Err(Error::definition_changed(batch));
            }
            found.definition = Some(to);
            Ok(())
        })
    }

    async fn change_settings(&self, scope: &Scope, queue: &QueueName, change: SettingsChange) -> Result<()> {
        match change {
            SettingsChange::Queue(change) => self.change_queue(scope, queue, change),
            SettingsChange::Lane(tenant, change) => self.change_lane(scope, queue, tenant, change),
        }
    }

    async fn command_worker(&self, session: SessionId, order: WorkerCommand) -> Result<()> {
        self.write(|state, _| {
            let found = state.sessions.get_mut(&session);
            found.ok_or_else(|| Error::not_found("session", session))?.order = order;
            state.dirty.sessions.insert(session);
            Ok(())
        })
    }
}

impl MemoryStore {
    fn change_queue(&self, scope: &Scope, queue: &QueueName, change: QueueChange) -> Result<()> {
        let owner = scope.check_queue_change(queue)?;
        self.write(|state, _| {
            let found = state.queues.entry(queue.clone()).or_default();
            found.paused = change.paused.unwrap_or(found.paused);
            found.capacity = change.capacity.unwrap_or(found.capacity);
            // Only the tenants with a lane may learn the queue's name.
            let lanes: Vec<LaneKey> = state.lanes.keys().filter(|key| key.0 == *queue).cloned().collect();
            state.mark_lane_changed((queue.clone(), owner));
            lanes.into_iter().for_each(|lane| state.mark_lane_changed(lane));
        });
        Ok(())
    }

    fn change_lane(
        &self,
        scope: &Scope,
        queue: &QueueName,
        tenant: TenantId,
        change: LaneChange,
    ) -> Result<()> {
        scope.check_lane_change(queue, &tenant, &change)?;
        self.write(|state, _| {
            let lane = state.lanes.entry((queue.clone(), tenant.clone())).or_default();
            lane.paused = change.paused.unwrap_or(lane.paused);
            lane.weight = change.weight.unwrap_or(lane.weight);
            lane.cap = change.cap.unwrap_or(lane.cap);
            lane.capacity = change.capacity.unwrap_or(lane.capacity);
            state.mark_lane_changed((queue.clone(), tenant));
        });
        Ok(())
    }
}

impl State {
    fn mark_lane_changed(&mut self, lane: LaneKey) {
        self.dirty.queues.insert(lane);
        self.dirty.claimable = true;
    }

    fn select(&self, scope: &Scope, units: UnitSelection) -> Result<Vec<UnitId>> {
        let is_there = |id: &UnitId| {
            let found = self.units.get(id).filter(|record| scope.covers(&record.unit.tenant));
            found.map(|_| *id).ok_or_else(|| Error::not_found("unit", id))
        };
        match units {
            UnitSelection::Ids(ids) => ids.iter().map(is_there).collect(),
            UnitSelection::Queue(queue, wanted) => {
                let all =
                    self.units.values().map(|record| &record.unit).filter(|unit| {
                        unit.queue == queue && unit.state == wanted && scope.covers(&unit.tenant)
                    });
                Ok(all.map(|unit| unit.id).collect())
            }
        }
    }

    /// Applies an action to units. Retried units of an ended batch open its next generation
    /// together.
    pub(super) fn operate(&mut self, ids: &[UnitId], action: UnitAction, now: Timestamp) -> UnitActionResult {
        let mut done = UnitActionResult::default();
        for &id in ids {
            let leased = |record: &UnitRecord| record.unit.state == UnitState::Leased;
            if action == UnitAction::Cancel && self.units.get(&id).is_some_and(leased) {
                self.update(id, |record| record.unit.cancel_requested = true);
                done.requested += 1;
                continue;
            }
            let may = action != UnitAction::Retry || self.may_retry(id) && self.reopen_batch_of(id);
            let changed = may && self.apply_event(id, &action.event(), now).is_ok();
            done.changed += u64::from(changed);
            done.skipped += u64::from(!changed);
        }
        done
    }

    /// Whether a unit can be retried. If another unit has taken its dedup key, it cannot.
    fn may_retry(&self, id: UnitId) -> bool {
        let Some(unit) = self.units.get(&id).map(|record| &record.unit) else {
            return false;
        };
        let retryable = matches!(unit.state, UnitState::Failed | UnitState::Cancelled | UnitState::Scheduled);
        let key = unit.key.clone().map(|key| (unit.tenant.clone(), unit.queue.clone(), key));
        let taken = key.and_then(|key| self.index.keys.get(&key));
        retryable && taken.is_none_or(|other| *other == id)
    }

    /// Reopens the unit's batch if it has ended. Returns false if the batch cannot be reopened now.
    fn reopen_batch_of(&mut self, id: UnitId) -> bool {
        let batch = self.units.get(&id).and_then(|record| record.unit.batch.as_ref());
        let Some(record) = batch.and_then(|id| self.batches.get_mut(id)) else {
            return true;
        };
        !record.batch.status.is_final() || reopen(&mut record.batch).is_ok()
    }

    /// The failed units of a batch that can be retried.
    fn retryable(&self, batch: &BatchId) -> Vec<UnitId> {
        let Some(record) = self.batches.get(batch) else {
            return Vec::new();
        };
        let failed = record.units.iter().filter_map(|id| self.units.get(id));
        let failed = failed.filter(|record| record.unit.state == UnitState::Failed);
        failed.map(|record| record.unit.id).filter(|id| self.may_retry(*id)).collect()
    }

    /// Makes units of a batch wait again that were cancelled because a dependency failed, if none of
    /// their dependencies is failed or cancelled any more. Each may make others possible. An ended batch is
    /// reopened if there are any: its failed units have run again, one by one.
    fn retry_dependants(&mut self, batch: &BatchId, now: Timestamp) -> Result<()> {
        let Some(before) = self.batches.get(batch).map(|record| record.batch.clone()) else { return Ok(()) };
        if before.status.is_aborted() {
            return Ok(());
        }
        if before.status.is_final() {
            reopen(self.batch_mut(&Scope::All, batch)?)?;
        }
        let mut any = false;
        loop {
            let units = self.batches.get(batch).map(|record| record.units.clone()).unwrap_or_default();
            let mut changed = false;
            for id in units {
                changed |= self.retry_dependant(id, now);
            }
            any |= changed;
            if !changed {
                break;
            }
        }
        if !any && before.status.is_final() {
            *self.batch_mut(&Scope::All, batch)? = before;
        }
        Ok(())
    }

    fn retry_dependant(&mut self, id: UnitId, now: Timestamp) -> bool {
        let Some(record) = self.units.get(&id).filter(|record| record.was_cancelled_by_dependency()) else {
            return false;
        };
        let state_of = |needs| Ok::<_, Infallible>(self.units.get(&needs).map(|record| record.unit.state));
        let Ok(open) = UnitDependencies::reopened(record.after.clone(), state_of);
        let Some(open) = open.filter(|_| self.may_retry(id)) else { return false };
        let event = if open.is_empty() { Event::Retry } else { Event::RetryBlocked };
        self.update(id, |record| record.waits_for = open.into_iter().collect());
        self.apply_event(id, &event, now).is_ok()
    }
}
