//! Administration over HTTP.

use async_trait::async_trait;
use longshore::batch::BatchAction;
use longshore::store::{
    Admin, LaneChange, Queries, QueueChange, SettingsChange, UnitAction, UnitActionResult, UnitSelection,
};
use longshore::worker_session::WorkerCommand;
use longshore::{Batch, BatchId, Payload, QueueName, Result, Scope, SessionId};

use super::unsupported::unsupported;
use super::{RemoteStore, tenant_of};

#[async_trait]
impl Admin for RemoteStore {
    async fn apply_unit_action(
        &self,
        scope: &Scope,
        units: UnitSelection,
        action: UnitAction,
    ) -> Result<UnitActionResult> {
        let UnitSelection::Ids(ids) = units else {
            return unsupported("over HTTP units are selected by id");
        };
        // Check first that all units exist: they are changed one by one.
        if ids.len() > 1 || *scope != Scope::All {
            for id in &ids {
                self.unit(scope, *id).await?;
            }
        }
        let mut all = UnitActionResult::default();
        for id in ids {
            let done = match action {
                UnitAction::Cancel => self.api.cancel_unit(id).await,
                UnitAction::Retry => self.api.retry_unit(id).await,
                _ => return unsupported("units cannot be woken over HTTP"),
            };
            let done = done.map_err(|error| error.into_store_error("unit", id))?;
            all.changed += done.changed;
            all.requested += done.requested;
            all.skipped += done.skipped;
        }
        Ok(all)
    }

    async fn apply_batch_action(&self, scope: &Scope, batch: &BatchId, action: BatchAction) -> Result<Batch> {
        if *scope != Scope::All {
            self.batch(scope, batch).await?;
        }
        if action == BatchAction::Seal {
            let sealed = self.api.seal_batch(&scope.batch_id(batch)).await;
            return sealed.map_err(|error| error.into_store_error("batch", batch));
        }
        let steered = self.api.steer(&scope.batch_id(batch), action).await;
        Ok(steered.map_err(|error| error.into_store_error("batch", batch))?.batch)
    }

    async fn change_definition(&self, _: &Scope, _: &BatchId, _: Payload, _: Payload) -> Result<()> {
        unsupported("batch definitions are not available over HTTP")
    }

    async fn change_settings(&self, scope: &Scope, queue: &QueueName, change: SettingsChange) -> Result<()> {
        let (tenant, paused) = match &change {
            SettingsChange::Queue(QueueChange { paused: Some(paused), capacity: None }) => {
                (tenant_of(scope), *paused)
            }
            SettingsChange::Lane(
                tenant,
                LaneChange { paused: Some(paused), weight: None, cap: None, capacity: None },
            ) => (Some(tenant), *paused),
            SettingsChange::Queue(_) => {
                return unsupported("queue capacities cannot be changed over HTTP");
            }
            SettingsChange::Lane(..) => {
                return unsupported("lane limits cannot be changed over HTTP");
            }
        };
        let paused = self.api.pause_queue(queue, tenant, paused).await;
        paused.map(|_| ()).map_err(|error| error.into_store_error("queue", queue))
    }

    async fn command_worker(&self, session: SessionId, order: WorkerCommand) -> Result<()> {
        let ordered = self.api.order(session, order).await;
        ordered.map_err(|error| error.into_store_error("worker", session))
    }
}
