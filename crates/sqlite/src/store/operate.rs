//! What operators do.

use async_trait::async_trait;
use longshore_core::batch::BatchAction;
use longshore_core::session::Order;
use longshore_core::store::{LaneChange, Operated, QueueChange, UnitAction, UnitSelection};
use longshore_core::{
    Batch, BatchId, Inspect, Operate, QueueName, Result, Scope, SessionId, TenantId,
};

use super::SqliteStore;
use crate::tx::Tx;
use crate::writer::Durability::Durable;
use crate::{maintain, operate, session};

#[async_trait]
impl Operate for SqliteStore {
    async fn operate_units(
        &self,
        scope: &Scope,
        units: UnitSelection,
        action: UnitAction,
    ) -> Result<Operated> {
        let ids = match units {
            UnitSelection::Ids(ids) => {
                let scope = scope.clone();
                let verb = move |tx: &mut Tx<'_>| operate::units(tx, &scope, &ids, action);
                return self.writer.call(Durable, verb).await;
            }
            UnitSelection::Queue(queue, state) => {
                let scope = scope.clone();
                self.read(move |db| operate::in_queue(db, &scope, &queue, state)).await?
            }
        };
        let mut all = Operated::default();
        for chunk in ids.chunks(operate::CHUNK as usize) {
            let chunk = chunk.to_vec();
            let verb = move |tx: &mut Tx<'_>| operate::those_left(tx, &chunk, action);
            let one = self.writer.call(Durable, verb).await?;
            all.changed += one.changed;
            all.requested += one.requested;
            all.skipped += one.skipped;
        }
        Ok(all)
    }

    async fn operate_batch(
        &self,
        scope: &Scope,
        id: &BatchId,
        action: BatchAction,
    ) -> Result<Batch> {
        let (own, name) = (scope.clone(), id.clone());
        let verb = move |tx: &mut Tx<'_>| operate::batch(tx, &own, &name, &action);
        let batch = self.writer.call(Durable, verb).await?;
        if batch.status.is_given_up() {
            self.sweep().await?;
            return self.batch(scope, id).await;
        }
        Ok(batch)
    }

    async fn change_queue(
        &self,
        scope: &Scope,
        queue: &QueueName,
        change: QueueChange,
    ) -> Result<()> {
        let (scope, queue) = (scope.clone(), queue.clone());
        self.writer.call(Durable, move |tx| operate::queue(tx, &scope, &queue, change)).await
    }

    async fn change_lane(
        &self,
        scope: &Scope,
        queue: &QueueName,
        tenant: &TenantId,
        change: LaneChange,
    ) -> Result<()> {
        let (scope, queue, tenant) = (scope.clone(), queue.clone(), tenant.clone());
        let verb = move |tx: &mut Tx<'_>| operate::lane(tx, &scope, &queue, &tenant, change);
        self.writer.call(Durable, verb).await
    }

    async fn order(&self, id: SessionId, order: Order) -> Result<()> {
        self.writer.call(Durable, move |tx| session::give_order(tx, id, order)).await
    }
}

impl SqliteStore {
    /// Cancels what waits of a batch given up, chunk by chunk. A crash in between is made good by
    /// `promote`.
    async fn sweep(&self) -> Result<()> {
        loop {
            let swept = self.writer.call(Durable, |tx| maintain::sweep(tx, operate::CHUNK)).await?;
            if swept < u64::from(operate::CHUNK) {
                return Ok(());
            }
        }
    }
}
