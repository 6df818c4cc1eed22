//! Implements [`Inspect`]: queries, and waiting for changes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use longshore_core::session::Session;
use longshore_core::store::{
    ChangeSet, Page, QueueInfo, Queues, Totals, UnitFailure, UnitFilter, Violation,
};
use longshore_core::{
    Batch, BatchId, BatchStatus, Error, Inspect, Payload, Result, Scope, Unit, UnitId,
};
use tokio::sync::watch;

use super::{Access, SqliteStore, connect};
use crate::{batch, listing, migrate, queries, session, verify};

#[async_trait]
impl Inspect for SqliteStore {
    async fn unit(&self, scope: &Scope, id: UnitId) -> Result<Unit> {
        let scope = scope.clone();
        self.read(move |db| queries::one_unit(db, &scope, id)).await
    }

    async fn units(
        &self,
        scope: &Scope,
        filter: &UnitFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Unit>> {
        let (scope, filter, after) = (scope.clone(), filter.clone(), after.map(str::to_owned));
        self.read(move |db| listing::units(db, &scope, &filter, after.as_deref(), limit)).await
    }

    async fn failures(&self, scope: &Scope, id: UnitId) -> Result<Vec<UnitFailure>> {
        let scope = scope.clone();
        self.read(move |db| queries::failures(db, &scope, id)).await
    }

    async fn queues(&self, scope: &Scope) -> Result<Vec<QueueInfo>> {
        let scope = scope.clone();
        self.read(move |db| queries::queues(db, &scope)).await
    }

    async fn batch(&self, scope: &Scope, id: &BatchId) -> Result<Batch> {
        let (scope, id) = (scope.clone(), id.clone());
        self.read(move |db| batch::show(db, batch::number(db, &scope, &id)?)).await
    }

    async fn definition(&self, scope: &Scope, id: &BatchId) -> Result<Option<Payload>> {
        let (scope, id) = (scope.clone(), id.clone());
        self.read(move |db| batch::definition(db, &scope, &id)).await
    }

    async fn batches(
        &self,
        scope: &Scope,
        status: Option<BatchStatus>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Batch>> {
        let (scope, after) = (scope.clone(), after.map(str::to_owned));
        self.read(move |db| listing::batches(db, &scope, status, after.as_deref(), limit)).await
    }

    async fn sessions(&self) -> Result<Vec<Session>> {
        self.read(session::list).await
    }

    async fn totals(&self, scope: &Scope, queues: &Queues) -> Result<Totals> {
        let (scope, queues) = (scope.clone(), queues.clone());
        self.read(move |db| queries::totals(db, &scope, &queues)).await
    }

    async fn changes(&self, scope: &Scope, since: u64, wait: Duration) -> Result<ChangeSet> {
        let until = tokio::time::Instant::now() + wait;
        let mut changed = self.signals.changed.subscribe();
        // "From now on" starts here, not when the read runs.
        let last = self.signals.last_change.load(Ordering::Relaxed);
        let mut since = if since == u64::MAX { last } else { since };
        loop {
            changed.mark_unchanged();
            let own = scope.clone();
            let set = self.read(move |db| queries::changes(db, &own, since)).await?;
            if !set.changes.is_empty() || set.missed {
                return Ok(set);
            }
            since = set.cursor;
            let timed_out = tokio::time::timeout_at(until, changed.changed()).await.is_err();
            if timed_out {
                return Ok(set);
            }
        }
    }

    async fn wake(&self, seen: u64, wait: Duration) -> u64 {
        let mut ready: watch::Receiver<u64> = self.signals.ready.subscribe();
        // A timeout is a valid result.
        let _ = tokio::time::timeout(wait, ready.wait_for(|count| *count != seen)).await;
        *self.signals.ready.borrow()
    }

    async fn migrate(&self) -> Result<u32> {
        let (path, options) = (self.path.clone(), self.options.clone());
        let run = move || migrate::migrate(&connect(&path, &options, Access::Write)?);
        tokio::task::spawn_blocking(run)
            .await
            .map_err(|_| Error::unavailable("the thread of a migration panicked"))?
    }

    async fn verify(&self) -> Result<Vec<Violation>> {
        self.read(verify::verify).await
    }
}
