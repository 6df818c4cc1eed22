//! [`Operate`] on PostgreSQL.

use async_trait::async_trait;
use longshore_core::batch::BatchAction;
use longshore_core::session::Order;
use longshore_core::store::{
    Inspect, LaneChange, Operate, Operated, QueueChange, UnitAction, UnitSelection,
};
use longshore_core::{
    Batch, BatchId, QueueName, Result, Scope, SessionId, TenantId, UnitId, UnitState,
};

use super::{PostgresStore, verb};
use crate::operate::Walk;
use crate::{maintain, operate, session};

#[async_trait]
impl Operate for PostgresStore {
    async fn operate_units(
        &self,
        scope: &Scope,
        units: UnitSelection,
        action: UnitAction,
    ) -> Result<Operated> {
        match units {
            UnitSelection::Ids(ids) => {
                verb!(self, Durable, tx => operate::units(&mut tx, scope, &ids, action))
            }
            UnitSelection::Queue(queue, state) => {
                let ids = self.in_queue(scope, &queue, state).await?;
                self.operate_in_chunks(&ids, action).await
            }
        }
    }

    async fn operate_batch(
        &self,
        scope: &Scope,
        id: &BatchId,
        action: BatchAction,
    ) -> Result<Batch> {
        // In portions, each a transaction: what a crash leaves of them can be retried again.
        let mut left = self.act_on_batch(scope, id, &action).await?;
        while let Some(walk) = left {
            left = self.retry_more(id, walk).await?;
        }
        // As it stands after what followed from the commit.
        let batch = self.batch(scope, id).await?;
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
        verb!(self, Durable, tx => operate::queue(&mut tx, scope, queue, change))
    }

    async fn change_lane(
        &self,
        scope: &Scope,
        queue: &QueueName,
        tenant: &TenantId,
        change: LaneChange,
    ) -> Result<()> {
        verb!(self, Durable, tx => operate::lane(&mut tx, scope, queue, tenant, change))
    }

    async fn order(&self, session: SessionId, order: Order) -> Result<()> {
        verb!(self, Durable, tx => session::give_order(&mut tx, session, order))
    }
}

impl PostgresStore {
    async fn in_queue(
        &self,
        scope: &Scope,
        queue: &QueueName,
        state: UnitState,
    ) -> Result<Vec<UnitId>> {
        verb!(self, Relaxed, tx => operate::in_queue(&mut tx, scope, queue, state))
    }

    async fn operate_in_chunks(&self, ids: &[UnitId], action: UnitAction) -> Result<Operated> {
        let mut all = Operated::default();
        for chunk in ids.chunks(operate::CHUNK as usize) {
            let one = self.operate_chunk(chunk, action).await?;
            all.changed += one.changed;
            all.requested += one.requested;
            all.skipped += one.skipped;
        }
        Ok(all)
    }

    async fn operate_chunk(&self, ids: &[UnitId], action: UnitAction) -> Result<Operated> {
        verb!(self, Durable, tx => operate::those_left(&mut tx, ids, action))
    }

    async fn act_on_batch(
        &self,
        scope: &Scope,
        id: &BatchId,
        action: &BatchAction,
    ) -> Result<Option<Walk>> {
        verb!(self, Durable, tx => operate::batch(&mut tx, scope, id, action))
    }

    async fn retry_more(&self, id: &BatchId, walk: Walk) -> Result<Option<Walk>> {
        verb!(self, Durable, tx => operate::retry_more(&mut tx, id, walk))
    }

    /// Cancels what waits of a batch given up, chunk by chunk. A crash in between is made good by
    /// `promote`.
    async fn sweep(&self) -> Result<()> {
        while self.sweep_chunk().await? >= u64::from(operate::CHUNK) {}
        Ok(())
    }

    async fn sweep_chunk(&self) -> Result<u64> {
        verb!(self, Durable, tx => maintain::sweep(&mut tx, operate::CHUNK))
    }
}
