//! Admin operations on units, batches, queues, lanes and workers.

use async_trait::async_trait;
use longshore_core::batch::{BatchAction, act, nothing_to_retry, reopen};
use longshore_core::machine::Event;
use longshore_core::session::Order;
use longshore_core::store::{
    LaneChange, Operate, Operated, QueueChange, SettingsChange, UnitAction, UnitSelection,
};
use longshore_core::{
    Batch, BatchId, Error, QueueName, Result, Scope, SessionId, TenantId, Timestamp, UnitId,
    UnitState,
};

use super::MemoryStore;
use super::state::State;

#[async_trait]
impl Operate for MemoryStore {
    async fn operate_units(
        &self,
        scope: &Scope,
        units: UnitSelection,
        action: UnitAction,
    ) -> Result<Operated> {
        self.write(|state, now| {
            let ids = state.select(scope, units)?;
            match action {
                UnitAction::Cancel => Ok(state.cancel(&ids, now)),
                UnitAction::Retry => Ok(state.retry(&ids, now)),
                UnitAction::Wake => Ok(state.wake(&ids, now)),
                _ => Err(Error::Unsupported("the memory store does not know this action".into())),
            }
        })
    }

    async fn operate_batch(
        &self,
        scope: &Scope,
        batch: &BatchId,
        action: BatchAction,
    ) -> Result<Batch> {
        self.write(|state, now| {
            let found = state.batch_mut(scope, batch)?.clone();
            let retry =
                if action == BatchAction::RetryFailed { state.retryable(batch) } else { vec![] };
            let acted = act(state.batch_mut(scope, batch)?, &action);
            let ended = found.status.is_final() && found.counts.failed > 0;
            if acted.is_ok() && action == BatchAction::RetryFailed && retry.is_empty() && ended {
                let refusal = nothing_to_retry(&found);
                *state.batch_mut(scope, batch)? = found;
                return Err(refusal.into());
            }
            acted?;
            for id in retry {
                _ = state.apply_event(id, &Event::Retry, now);
            }
            state.dirty.claimable = true;
            state.dirty.batches.insert(batch.clone());
            state.advance_batch(scope, batch, now)
        })
    }

    async fn change_settings(
        &self,
        scope: &Scope,
        queue: &QueueName,
        change: SettingsChange,
    ) -> Result<()> {
        match change {
            SettingsChange::Queue(change) => self.change_queue(scope, queue, change),
            SettingsChange::Lane(tenant, change) => self.change_lane(scope, queue, tenant, change),
        }
    }

    async fn order(&self, session: SessionId, order: Order) -> Result<()> {
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
        require_queue_access(scope, queue)?;
        self.write(|state, _| {
            let found = state.queues.entry(queue.clone()).or_default();
            found.paused = change.paused.unwrap_or(found.paused);
            found.capacity = change.capacity.unwrap_or(found.capacity);
            if change.paused == Some(false) {
                let lanes = state.lanes.iter_mut().filter(|(key, _)| key.0 == *queue);
                lanes.for_each(|(_, lane)| lane.rejoins = true);
            }
            state.mark_queue_changed(queue);
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
        require_lane_access(scope, queue, &tenant, change)?;
        if !queue.admits(&tenant) || change.weight == Some(0) {
            let problem = format!("lane `{tenant}` of `{queue}` cannot be changed like this");
            return Err(Error::Invalid(problem));
        }
        self.write(|state, _| {
            let lane = state.lanes.entry((queue.clone(), tenant)).or_default();
            lane.rejoins |= change.paused == Some(false);
            lane.paused = change.paused.unwrap_or(lane.paused);
            lane.weight = change.weight.unwrap_or(lane.weight);
            lane.cap = change.cap.unwrap_or(lane.cap);
            lane.capacity = change.capacity.unwrap_or(lane.capacity);
            state.mark_queue_changed(queue);
        });
        Ok(())
    }
}

/// A tenant may change its own queues; shared queues need the scope of all tenants.
fn require_queue_access(scope: &Scope, queue: &QueueName) -> Result<()> {
    let own = match scope {
        Scope::All => true,
        Scope::Tenant(tenant) => queue.owner() == Some(tenant.as_str()),
    };
    if own { Ok(()) } else { Err(Error::not_found("queue", queue)) }
}

/// In a shared queue a tenant may pause its own lane, but not change its weight, cap or capacity.
fn require_lane_access(
    scope: &Scope,
    queue: &QueueName,
    tenant: &TenantId,
    change: LaneChange,
) -> Result<()> {
    let only_pauses = LaneChange { paused: change.paused, ..LaneChange::default() } == change;
    match scope {
        Scope::Tenant(own) if own == tenant && queue.owner().is_none() && only_pauses => Ok(()),
        _ => require_queue_access(scope, queue),
    }
}

impl State {
    fn mark_queue_changed(&mut self, queue: &QueueName) {
        self.dirty.queues.insert(queue.clone());
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
                let all = self.units.values().map(|record| &record.unit).filter(|unit| {
                    unit.queue == queue && unit.state == wanted && scope.covers(&unit.tenant)
                });
                Ok(all.map(|unit| unit.id).collect())
            }
        }
    }

    pub(super) fn cancel(&mut self, ids: &[UnitId], now: Timestamp) -> Operated {
        let mut done = Operated::default();
        for &id in ids {
            if self.units.get(&id).is_some_and(|record| record.unit.state == UnitState::Leased) {
                self.update(id, |record| record.unit.cancel_requested = true);
                done.requested += 1;
            } else if self.apply_event(id, &Event::Cancel, now).is_ok() {
                done.changed += 1;
            } else {
                done.skipped += 1;
            }
        }
        done
    }

    fn wake(&mut self, ids: &[UnitId], now: Timestamp) -> Operated {
        let mut done = Operated::default();
        for &id in ids {
            let changed = self.apply_event(id, &Event::Wake, now).is_ok();
            done.changed += u64::from(changed);
            done.skipped += u64::from(!changed);
        }
        done
    }

    /// Retries units. Retried units of an ended batch open its next generation together.
    fn retry(&mut self, ids: &[UnitId], now: Timestamp) -> Operated {
        let mut done = Operated::default();
        for &id in ids {
            if self.may_retry(id) && self.reopen_batch_of(id) {
                let changed = self.apply_event(id, &Event::Retry, now).is_ok();
                done.changed += u64::from(changed);
                done.skipped += u64::from(!changed);
            } else {
                done.skipped += 1;
            }
        }
        done
    }

    /// Whether a unit can be retried. If another unit has taken its dedup key, it cannot.
    fn may_retry(&self, id: UnitId) -> bool {
        let Some(unit) = self.units.get(&id).map(|record| &record.unit) else {
            return false;
        };
        let retryable =
            matches!(unit.state, UnitState::Failed | UnitState::Cancelled | UnitState::Scheduled);
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
        if !record.batch.status.is_final() {
            return true;
        }
        let ended = record.batch.counts.live() == 0;
        if ended {
            reopen(&mut record.batch);
        }
        ended
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
}
