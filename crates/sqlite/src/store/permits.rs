//! Bounded pools.

use std::time::Duration;

use async_trait::async_trait;
use longshore_core::permits::{Answer, Ask, Leaving, PoolStats};
use longshore_core::{PermitId, Permits, PoolName, Result};

use super::SqliteStore;
use crate::permits::{self, verbs};
use crate::tx::Tx;
use crate::writer::Durability::{Durable, Relaxed};

#[async_trait]
impl Permits for SqliteStore {
    async fn ask(&self, pool: &PoolName, ask: &Ask) -> Result<Answer> {
        let (pool, ask, id) = (pool.clone(), ask.clone(), ask.id);
        // Before it is sent: a hint may come before its answer does.
        self.signals.hints.enter(id);
        let answer = self.writer.call(Relaxed, move |tx| verbs::ask(tx, &pool, &ask)).await;
        if !matches!(answer, Ok(Answer::Waiting { .. })) {
            self.signals.hints.leave(&[id]);
        }
        answer
    }

    async fn turn(&self, _: &PoolName, id: PermitId) {
        if let Some(hint) = self.signals.hints.of(id) {
            hint.notified().await;
        }
    }

    async fn extend(
        &self,
        pool: &PoolName,
        ids: &[PermitId],
        ttl: Duration,
    ) -> Result<Vec<PermitId>> {
        let (pool, ids) = (pool.clone(), ids.to_vec());
        self.writer.call(Relaxed, move |tx| verbs::extend(tx, &pool, &ids, ttl)).await
    }

    async fn release(&self, pool: &PoolName, ids: &[PermitId]) -> Result<()> {
        self.signals.hints.leave(ids);
        let (pool, ids) = (pool.clone(), ids.to_vec());
        self.writer.call(Relaxed, move |tx| verbs::release(tx, &pool, &ids)).await
    }

    async fn leave(&self, pool: &PoolName, id: PermitId, why: Leaving) -> Result<()> {
        self.signals.hints.leave(&[id]);
        let pool = pool.clone();
        self.writer.call(Relaxed, move |tx| verbs::leave(tx, &pool, id, why)).await
    }

    async fn init(&self, pool: &PoolName, max: u32) -> Result<Option<u32>> {
        let pool = pool.clone();
        self.writer.call(Durable, move |tx| verbs::init(tx, &pool, max)).await
    }

    async fn resize(&self, pool: &PoolName, max: u32) -> Result<()> {
        let pool = pool.clone();
        self.writer.call(Durable, move |tx| verbs::resize(tx, &pool, max)).await
    }

    async fn reset(&self, pool: &PoolName) -> Result<()> {
        let pool = pool.clone();
        self.writer.call(Relaxed, move |tx| verbs::reset(tx, &pool)).await
    }

    async fn stats(&self, pool: &PoolName) -> Result<Option<PoolStats>> {
        let pool = pool.clone();
        self.read(move |db| permits::stats(db, &pool)).await
    }

    async fn pools(&self) -> Result<Vec<PoolName>> {
        self.read(permits::names).await
    }

    async fn may_alert(&self, pool: &PoolName, alert: &str, every: Duration) -> Result<bool> {
        let (pool, alert) = (pool.clone(), alert.to_owned());
        let verb = move |tx: &mut Tx<'_>| verbs::may_alert(tx, &pool, &alert, every);
        self.writer.call(Relaxed, verb).await
    }
}
