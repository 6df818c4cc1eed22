//! Implements [`Permits`].

use std::time::Duration;

use async_trait::async_trait;
use longshore_core::permits::{Answer, Ask, Leaving, PoolStats};
use longshore_core::{PermitId, Permits, PoolName, Result};

use super::SqliteStore;
use crate::permits::{self, ops};
use crate::tx::Tx;
use crate::writer::Durability::{Durable, Relaxed};

#[async_trait]
impl Permits for SqliteStore {
    async fn ask(&self, pool: &PoolName, ask: &Ask) -> Result<Answer> {
        let (pool, ask, id) = (pool.clone(), ask.clone(), ask.id);
        // Before the request: a wake-up may come before the answer.
        self.signals.wakeups.register(id);
        let answer = self.writer.call(Relaxed, move |tx| ops::ask(tx, &pool, &ask)).await;
        if !matches!(answer, Ok(Answer::Waiting { .. })) {
            self.signals.wakeups.remove(&[id]);
        }
        answer
    }

    async fn turn(&self, _: &PoolName, id: PermitId) {
        if let Some(wakeup) = self.signals.wakeups.get(id) {
            wakeup.notified().await;
        }
    }

    async fn extend(
        &self,
        pool: &PoolName,
        ids: &[PermitId],
        ttl: Duration,
    ) -> Result<Vec<PermitId>> {
        let (pool, ids) = (pool.clone(), ids.to_vec());
        self.writer.call(Relaxed, move |tx| ops::extend(tx, &pool, &ids, ttl)).await
    }

    async fn release(&self, pool: &PoolName, ids: &[PermitId]) -> Result<()> {
        self.signals.wakeups.remove(ids);
        let (pool, ids) = (pool.clone(), ids.to_vec());
        self.writer.call(Relaxed, move |tx| ops::release(tx, &pool, &ids)).await
    }

    async fn leave(&self, pool: &PoolName, id: PermitId, why: Leaving) -> Result<()> {
        self.signals.wakeups.remove(&[id]);
        let pool = pool.clone();
        self.writer.call(Relaxed, move |tx| ops::leave(tx, &pool, id, why)).await
    }

    async fn init(&self, pool: &PoolName, max: u32) -> Result<Option<u32>> {
        let pool = pool.clone();
        self.writer.call(Durable, move |tx| ops::init(tx, &pool, max)).await
    }

    async fn resize(&self, pool: &PoolName, max: u32) -> Result<()> {
        let pool = pool.clone();
        self.writer.call(Durable, move |tx| ops::resize(tx, &pool, max)).await
    }

    async fn reset(&self, pool: &PoolName) -> Result<()> {
        let pool = pool.clone();
        self.writer.call(Relaxed, move |tx| ops::reset(tx, &pool)).await
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
        let op = move |tx: &mut Tx<'_>| ops::may_alert(tx, &pool, &alert, every);
        self.writer.call(Relaxed, op).await
    }
}
