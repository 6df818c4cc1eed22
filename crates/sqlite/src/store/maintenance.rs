//! Implements [`Upkeep`].

use std::time::Duration;

use async_trait::async_trait;
use longshore_core::stall::Dead;
use longshore_core::store::{Promoted, Pruned, Reclaimed, Retention};
use longshore_core::{Result, SessionId, Upkeep};

use super::SqliteStore;
use crate::maintenance;
use crate::writer::Durability::{Durable, Relaxed};

#[async_trait]
impl Upkeep for SqliteStore {
    async fn reclaim(&self, dead: &[Dead]) -> Result<Reclaimed> {
        let mut all = Reclaimed::default();
        // One transaction each: many dead sessions do not block the live ones.
        for &dead in dead {
            let one =
                match self.writer.call(Durable, move |tx| maintenance::reclaim(tx, dead)).await {
                    Ok(one) => one,
                    Err(error) if error.is_retryable() => return Err(error),
                    Err(error) => {
                        // A session that cannot be ended must not keep the units of others from
                        // running.
                        tracing::error!(%error, session = %dead.session, "cannot reclaim");
                        continue;
                    }
                };
            all.sessions += one.sessions;
            all.rescued += one.rescued;
            all.failed += one.failed;
        }
        Ok(all)
    }

    async fn promote(&self, limit: u32) -> Result<Promoted> {
        self.writer.call(Durable, move |tx| maintenance::promote(tx, limit)).await
    }

    async fn next_due(&self) -> Result<Option<Duration>> {
        let now = self.options.clock.now();
        self.read(move |db| maintenance::next_due(db, now)).await
    }

    async fn prune(&self, retention: Retention, limit: u32) -> Result<Pruned> {
        self.writer.call(Durable, move |tx| maintenance::prune(tx, retention, limit)).await
    }

    async fn lead(&self, role: &str, id: SessionId, ttl: Duration) -> Result<bool> {
        let role = role.to_owned();
        self.writer.call(Relaxed, move |tx| maintenance::lead(tx, &role, id, ttl)).await
    }
}
