//! Bounded pools. Whoever gives up on a verb cannot take it back, so each is run to its end: what it told
//! others must be passed on.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longshore_core::permits::{Answer, Ask, Leaving, PoolStats};
use longshore_core::{PermitId, Permits, PoolName, Result};

use super::PostgresStore;
use crate::permits;

/// Runs a verb to its end, though its caller waits no longer than the store's patience.
macro_rules! seen_to {
    ($store:expr, $shared:ident, $($own:ident),* => $verb:expr) => {{
        let $shared = Arc::clone(&$store.shared);
        $(let $own = $own.to_owned();)*
        let run = $store.shared.see_to(async move { $verb.await });
        $store.shared.in_time(run).await
    }};
}

#[async_trait]
impl Permits for PostgresStore {
    async fn ask(&self, pool: &PoolName, ask: &Ask) -> Result<Answer> {
        let hints = &self.shared.feed.hints;
        // Before it is sent: a hint may come before its answer does.
        let alone = hints.enter(ask.id).alone().await;
        let answer = seen_to!(self, shared, pool, ask => async {
            let answer = permits::ask(&shared, &pool, &ask).await;
            drop(alone);
            answer
        });
        // Without an answer it may still be on its way.
        if !matches!(answer, Ok(Answer::Waiting { .. }) | Err(_)) {
            hints.leave(ask.id);
        }
        answer
    }

    async fn turn(&self, _: &PoolName, id: PermitId) {
        let feed = &self.shared.feed;
        let Some(waiter) = feed.hints.of(id) else { return };
        if feed.is_listening() {
            waiter.hint.notified().await;
        } else {
            // Nobody tells us: looking is all there is.
            let _ = tokio::time::timeout(waiter.poll.next(), waiter.hint.notified()).await;
        }
    }

    async fn extend(
        &self,
        pool: &PoolName,
        ids: &[PermitId],
        ttl: Duration,
    ) -> Result<Vec<PermitId>> {
        seen_to!(self, shared, pool, ids => permits::extend(&shared, &pool, &ids, ttl))
    }

    async fn release(&self, pool: &PoolName, ids: &[PermitId]) -> Result<()> {
        seen_to!(self, shared, pool, ids => permits::release(&shared, &pool, &ids))
    }

    async fn leave(&self, pool: &PoolName, id: PermitId, why: Leaving) -> Result<()> {
        seen_to!(self, shared, pool => permits::leave(&shared, &pool, id, why))
    }

    async fn init(&self, pool: &PoolName, max: u32) -> Result<Option<u32>> {
        seen_to!(self, shared, pool => permits::init(&shared, &pool, max))
    }

    async fn resize(&self, pool: &PoolName, max: u32) -> Result<()> {
        seen_to!(self, shared, pool => permits::resize(&shared, &pool, max))
    }

    async fn reset(&self, pool: &PoolName) -> Result<()> {
        seen_to!(self, shared, pool => permits::reset(&shared, &pool))
    }

    async fn stats(&self, pool: &PoolName) -> Result<Option<PoolStats>> {
        self.shared.in_time(permits::stats(&self.shared, pool)).await
    }

    async fn pools(&self) -> Result<Vec<PoolName>> {
        self.shared.in_time(permits::names(&self.shared)).await
    }

    async fn may_alert(&self, pool: &PoolName, alert: &str, every: Duration) -> Result<bool> {
        seen_to!(self, shared, pool, alert => permits::may_alert(&shared, &pool, &alert, every))
    }
}
