//! Implements [`Admin`] and [`Tenants`].

use longshore_core::batch::BatchAction;
use longshore_core::store::{
    SettingsChange, Tenant, TenantChange, UnitAction, UnitActionResult, UnitSelection,
};
use longshore_core::worker_session::WorkerCommand;
use longshore_core::{
    Admin, Batch, BatchId, Payload, Queries, QueueName, Result, Scope, SessionId, TenantId, Tenants,
};

use super::{SqliteStore, operations};
use crate::tx::Tx;
use crate::writer::Durability::Durable;
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
    Durable command_worker[](id: SessionId, order: WorkerCommand) -> () = session::set_command(id, order);
    {
        async fn apply_unit_action(
            &self,
            scope: &Scope,
            units: UnitSelection,
            action: UnitAction,
        ) -> Result<UnitActionResult> {
            let ids = match units {
                UnitSelection::Ids(ids) => {
                    let scope = scope.clone();
                    let op = move |tx: &mut Tx<'_>| admin::units(tx, &scope, &ids, action);
                    return self.writer.call(Durable, op).await;
                }
                UnitSelection::Queue(queue, state) => {
                    let scope = scope.clone();
                    self.read(move |db| admin::units_in_queue(db, &scope, &queue, state)).await?
                }
            };
            let mut all = UnitActionResult::default();
            for chunk in ids.chunks(admin::MAX_CHUNK as usize) {
                let chunk = chunk.to_vec();
                let op = move |tx: &mut Tx<'_>| admin::apply_to_existing(tx, &chunk, action);
                let one = self.writer.call(Durable, op).await?;
                all.changed += one.changed;
                all.requested += one.requested;
                all.skipped += one.skipped;
            }
            Ok(all)
        }

        async fn apply_batch_action(
            &self,
            scope: &Scope,
            id: &BatchId,
            action: BatchAction,
        ) -> Result<Batch> {
            let (own, name) = (scope.clone(), id.clone());
            let op = move |tx: &mut Tx<'_>| admin::batch(tx, &own, &name, &action);
            // In chunks, each a transaction: after a crash, the rest can be retried again.
            let mut next = self.writer.call(Durable, op).await?;
            while let Some(cursor) = next {
                next = self.writer.call(Durable, move |tx| admin::continue_retry(tx, cursor)).await?;
            }
            let batch = self.batch(scope, id).await?;
            if batch.status.is_aborted() {
                self.cancel_given_up().await?;
                return self.batch(scope, id).await;
            }
            Ok(batch)
        }
    }
}}

impl SqliteStore {
    /// Cancels the waiting units of batches that failed or were cancelled, in chunks. After a crash
    /// in between, `promote` continues.
    async fn cancel_given_up(&self) -> Result<()> {
        loop {
            let swept =
                self.writer.call(Durable, |tx| maintenance::cancel_given_up(tx, admin::MAX_CHUNK)).await?;
            if swept < u64::from(admin::MAX_CHUNK) {
                return Ok(());
            }
        }
    }
}
