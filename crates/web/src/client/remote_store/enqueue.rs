//! Enqueues over HTTP.

use async_trait::async_trait;
use longshore::store::{AddChunkResult, BatchChunk, Enqueue, OpenBatchResult, SendResult};
use longshore::{BatchId, NewBatch, NewUnit, Result, Scope};

use super::RemoteStore;
use crate::client::units::explicit_tenant;

#[async_trait]
impl Enqueue for RemoteStore {
    async fn send(&self, scope: &Scope, units: Vec<NewUnit>) -> Result<Vec<SendResult>> {
        let sent = match units.as_slice() {
            [one] => self.api.submit_as(one, explicit_tenant(one, scope), None).await.map(|sent| vec![sent]),
            many => self.api.submit_many_as(many, scope).await,
        };
        let tenant = units.first().map(|unit| unit.tenant.to_string()).unwrap_or_default();
        // Only the tenant can be missing.
        sent.map_err(|error| error.into_store_error("tenant", tenant))
    }

    async fn open_batch(&self, scope: &Scope, batch: NewBatch) -> Result<OpenBatchResult> {
        let tenant = batch.tenant.clone();
        let opened = self.api.open_batch_as(batch, scope).await;
        opened.map_err(|error| error.into_store_error("tenant", tenant))
    }

    async fn add_to_batch(&self, scope: &Scope, id: &BatchId, chunk: BatchChunk) -> Result<AddChunkResult> {
        let added = self.api.add_to_batch_as(&scope.batch_id(id), &chunk, scope).await;
        added.map_err(|error| error.into_store_error("batch", id))
    }
}
