//! Looking at a store over a server.

use std::time::Duration;

use async_trait::async_trait;
use longshore::session::Session;
use longshore::store::{
    ChangeSet, Inspect, Page, QueueInfo, Queues, Totals, UnitFailure, UnitFilter, Violation,
};
use longshore::{Batch, BatchId, BatchStatus, Payload, Result, Scope, Unit, UnitId};

use super::absent::absent;
use super::{FarStore, only, within};
use crate::client::{ApiError, ShownUnit};

impl FarStore {
    async fn shown(&self, scope: &Scope, id: UnitId) -> Result<ShownUnit> {
        let shown = self.api.unit(id, None).await;
        let shown = shown.map_err(|error| error.into_store("unit", id))?;
        within(scope, &shown.unit.tenant, "unit", id)?;
        Ok(shown)
    }

    /// What changes, over the line that is open if it is at the right place.
    async fn listen(&self, since: u64, wait: Duration) -> Result<ChangeSet, ApiError> {
        let mut line = self.line.lock().await;
        let mut events = match line.take().filter(|events| events.cursor() == since) {
            Some(events) => events,
            None => self.api.events((since != u64::MAX).then_some(since)).await?,
        };
        let heard = match since {
            u64::MAX => ChangeSet { cursor: events.cursor(), ..ChangeSet::default() },
            _ => events.next(wait).await?,
        };
        // Only a line that did not break is kept.
        *line = Some(events);
        Ok(heard)
    }
}

#[async_trait]
impl Inspect for FarStore {
    async fn unit(&self, scope: &Scope, id: UnitId) -> Result<Unit> {
        Ok(self.shown(scope, id).await?.unit)
    }

    async fn units(
        &self,
        scope: &Scope,
        filter: &UnitFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Unit>> {
        let page = self.api.units(only(scope), filter, after, limit).await;
        page.map_err(|error| error.into_store("tenant", whom(scope)))
    }

    async fn failures(&self, scope: &Scope, id: UnitId) -> Result<Vec<UnitFailure>> {
        Ok(self.shown(scope, id).await?.failures)
    }

    async fn queues(&self, scope: &Scope) -> Result<Vec<QueueInfo>> {
        let queues = self.api.queues(only(scope)).await;
        queues.map_err(|error| error.into_store("tenant", whom(scope)))
    }

    async fn batch(&self, scope: &Scope, id: &BatchId) -> Result<Batch> {
        let shown = self.api.batch(id).await.map_err(|error| error.into_store("batch", id))?;
        within(scope, &shown.batch.tenant, "batch", id)?;
        Ok(shown.batch)
    }

    async fn definition(&self, _: &Scope, _: &BatchId) -> Result<Option<Payload>> {
        absent("what a batch's workers know is not told over a server")
    }

    async fn batches(
        &self,
        scope: &Scope,
        status: Option<BatchStatus>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Batch>> {
        let page = self.api.batches(only(scope), status, after, limit).await;
        let Page { items, next } = page.map_err(|error| error.into_store("tenant", whom(scope)))?;
        Ok(Page { items: items.into_iter().map(|shown| shown.batch).collect(), next })
    }

    async fn sessions(&self) -> Result<Vec<Session>> {
        self.api.workers().await.map_err(|error| error.into_store("worker", ""))
    }

    async fn totals(&self, _: &Scope, _: &Queues) -> Result<Totals> {
        absent("sums for workers are not told over a server")
    }

    async fn changes(&self, _: &Scope, since: u64, wait: Duration) -> Result<ChangeSet> {
        self.listen(since, wait).await.map_err(|error| error.into_store("event", since))
    }

    async fn wake(&self, seen: u64, wait: Duration) -> u64 {
        tokio::time::sleep(wait).await;
        seen
    }

    async fn migrate(&self) -> Result<u32> {
        absent("a store is brought up to date where it is, not over a server")
    }

    async fn verify(&self) -> Result<Vec<Violation>> {
        absent("a store is verified where it is, not over a server")
    }
}

fn whom(scope: &Scope) -> String {
    only(scope).map(ToString::to_string).unwrap_or_default()
}
