//! Queries over HTTP.

use std::time::Duration;

use async_trait::async_trait;
use longshore::store::{
    ChangeSet, Page, Queries, QueueInfo, Queues, Totals, UnitFailure, UnitFilter, Violation,
};
use longshore::worker_session::Session;
use longshore::{Batch, BatchId, BatchStatus, Payload, Result, Scope, Unit, UnitId};

use super::unsupported::unsupported;
use super::{RemoteStore, require_scope, tenant_of};
use crate::client::{ApiError, UnitView};

impl RemoteStore {
    async fn view(&self, scope: &Scope, id: UnitId) -> Result<UnitView> {
        let view = self.api.unit(id, None).await;
        let view = view.map_err(|error| error.into_store_error("unit", id))?;
        require_scope(scope, &view.unit.tenant, "unit", id)?;
        Ok(view)
    }

    /// Waits for changes, on the open event stream if its cursor matches.
    async fn listen(&self, since: u64, wait: Duration) -> Result<ChangeSet, ApiError> {
        let mut open = self.events.lock().await;
        let mut events = match open.take().filter(|events| events.cursor() == since) {
            Some(events) => events,
            None => self.api.events((since != u64::MAX).then_some(since)).await?,
        };
        let changes = match since {
            u64::MAX => ChangeSet { cursor: events.cursor(), ..ChangeSet::default() },
            _ => events.next(wait).await?,
        };
        // After an error the stream is dropped.
        *open = Some(events);
        Ok(changes)
    }
}

#[async_trait]
impl Queries for RemoteStore {
    async fn unit(&self, scope: &Scope, id: UnitId) -> Result<Unit> {
        Ok(self.view(scope, id).await?.unit)
    }

    async fn units(
        &self,
        scope: &Scope,
        filter: &UnitFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Unit>> {
        let page = self.api.units(tenant_of(scope), filter, after, limit).await;
        page.map_err(|error| error.into_store_error("tenant", tenant_name(scope)))
    }

    async fn failures(&self, scope: &Scope, id: UnitId) -> Result<Vec<UnitFailure>> {
        Ok(self.view(scope, id).await?.failures)
    }

    async fn queues(&self, scope: &Scope) -> Result<Vec<QueueInfo>> {
        let queues = self.api.queues(tenant_of(scope)).await;
        queues.map_err(|error| error.into_store_error("tenant", tenant_name(scope)))
    }

    async fn batch(&self, scope: &Scope, id: &BatchId) -> Result<Batch> {
        let view =
            self.api.batch(&scope.batch_id(id)).await.map_err(|error| error.into_store_error("batch", id))?;
        require_scope(scope, &view.batch.tenant, "batch", id)?;
        Ok(view.batch)
    }

    async fn definition(&self, _: &Scope, _: &BatchId) -> Result<Option<Payload>> {
        unsupported("batch definitions are not available over HTTP")
    }

    async fn batches(
        &self,
        scope: &Scope,
        status: Option<BatchStatus>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Batch>> {
        let page = self.api.batches(tenant_of(scope), status, after, limit).await;
        let Page { items, next } =
            page.map_err(|error| error.into_store_error("tenant", tenant_name(scope)))?;
        Ok(Page { items: items.into_iter().map(|view| view.batch).collect(), next })
    }

    async fn sessions(&self) -> Result<Vec<Session>> {
        self.api.workers().await.map_err(|error| error.into_store_error("worker", ""))
    }

    async fn totals(&self, _: &Scope, _: &Queues) -> Result<Totals> {
        unsupported("totals are not available over HTTP")
    }

    async fn changes(&self, _: &Scope, since: u64, wait: Duration) -> Result<ChangeSet> {
        self.listen(since, wait).await.map_err(|error| error.into_store_error("event", since))
    }

    async fn wait_for_ready(&self, seen: u64, wait: Duration) -> u64 {
        tokio::time::sleep(wait).await;
        seen
    }

    async fn verify(&self) -> Result<Vec<Violation>> {
        unsupported("a store cannot be verified over HTTP")
    }
}

fn tenant_name(scope: &Scope) -> String {
    tenant_of(scope).map(ToString::to_string).unwrap_or_default()
}
