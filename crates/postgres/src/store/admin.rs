//! [`Admin`] and [`Tenants`] on PostgreSQL.

use longshore_core::batch::BatchAction;
use longshore_core::store::{
    Admin, Queries, SettingsChange, Tenant, TenantChange, Tenants, UnitAction, UnitActionResult,
    UnitSelection,
};
use longshore_core::worker_session::WorkerCommand;
use longshore_core::{
    Batch, BatchId, Payload, QueueName, Result, Scope, SessionId, TenantId, UnitId, UnitState,
};

use super::{PostgresStore, operation, operations};
use crate::admin::RetryCursor;
use crate::{admin, batch, maintenance, session, tenants};

operations! { Tenants {
    Durable put_tenant[scope: Scope, id: TenantId](change: TenantChange) -> Tenant
        = tenants::put(&change);
    Durable remove_tenant[scope: Scope, id: TenantId]() -> () = tenants::remove();
    Read tenants[scope: Scope]() -> Vec<Tenant> = tenants::list();
}}

operations! { Admin {
    Durable change_settings[scope: Scope, queue: QueueName](change: SettingsChange) -> ()
        = admin::settings(&change);
    Durable change_definition[scope: Scope, id: BatchId](from: Payload, to: Payload) -> ()
        = batch::change_definition(&from, &to);
    Durable command_worker[](id: SessionId, order: WorkerCommand) -> () = session::send_command(id, order);
    {
        async fn apply_unit_action(
            &self,
            scope: &Scope,
            units: UnitSelection,
            action: UnitAction,
        ) -> Result<UnitActionResult> {
            match units {
                UnitSelection::Ids(ids) => {
                    operation!(self, Durable, tx => admin::units(&mut tx, scope, &ids, action))
                }
                UnitSelection::Queue(queue, state) => {
                    let ids = self.units_in_queue(scope, &queue, state).await?;
                    self.operate_in_chunks(&ids, action).await
                }
            }
        }

        async fn apply_batch_action(
            &self,
            scope: &Scope,
            id: &BatchId,
            action: BatchAction,
        ) -> Result<Batch> {
            // In chunks, each a transaction: after a crash, the rest can be retried again.
            let mut next = self.act_on_batch(scope, id, &action).await?;
            while let Some(cursor) = next {
                next = self.continue_retry(id, cursor).await?;
            }
            // Read the batch after the post-commit work has advanced it.
            let batch = self.batch(scope, id).await?;
            if batch.status.is_aborted() {
                self.sweep().await?;
                return self.batch(scope, id).await;
            }
            Ok(batch)
        }
    }
}}

impl PostgresStore {
    async fn units_in_queue(
        &self,
        scope: &Scope,
        queue: &QueueName,
        state: UnitState,
    ) -> Result<Vec<UnitId>> {
        operation!(self, Relaxed, tx => admin::units_in_queue(&mut tx, scope, queue, state))
    }

    async fn operate_in_chunks(&self, ids: &[UnitId], action: UnitAction) -> Result<UnitActionResult> {
        let mut all = UnitActionResult::default();
        for chunk in ids.chunks(admin::MAX_CHUNK_UNITS as usize) {
            let one = self.operate_chunk(chunk, action).await?;
            all.changed += one.changed;
            all.requested += one.requested;
            all.skipped += one.skipped;
        }
        Ok(all)
    }

    async fn operate_chunk(&self, ids: &[UnitId], action: UnitAction) -> Result<UnitActionResult> {
        operation!(self, Durable, tx => admin::apply_to_existing(&mut tx, ids, action))
    }

    async fn act_on_batch(
        &self,
        scope: &Scope,
        id: &BatchId,
        action: &BatchAction,
    ) -> Result<Option<RetryCursor>> {
        operation!(self, Durable, tx => admin::batch(&mut tx, scope, id, action))
    }

    async fn continue_retry(&self, id: &BatchId, cursor: RetryCursor) -> Result<Option<RetryCursor>> {
        operation!(self, Durable, tx => admin::continue_retry(&mut tx, id, cursor))
    }

    /// Cancels the waiting units of abandoned batches, chunk by chunk. After a crash, `promote`
    /// continues.
    async fn sweep(&self) -> Result<()> {
        while self.sweep_chunk().await? >= u64::from(admin::MAX_CHUNK_UNITS) {}
        Ok(())
    }

    async fn sweep_chunk(&self) -> Result<u64> {
        operation!(self, Durable, tx => maintenance::sweep(&mut tx, admin::MAX_CHUNK_UNITS))
    }
}
