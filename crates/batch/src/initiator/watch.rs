//! Looking at a batch while it is filled: patiently when the store is away, and not more often
//! than there is news.

use std::time::Duration;

use longshore::store::Topic;
use longshore::{Batch, BatchId, Client, Result};
use tokio::time::Instant;

/// How long a store may be away before that is an error.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long no news is believed without looking.
const RECHECK: Duration = Duration::from_secs(1);
/// Between two looks at a busy batch, which moves all the time.
const GAP: Duration = Duration::from_millis(20);

/// Follows one batch.
pub(super) struct Watch {
    client: Client,
    id: BatchId,
    feed: u64,
}

impl Watch {
    /// Takes its place in the change feed before the first look, so that nothing falls between.
    pub(super) async fn open(client: Client, id: BatchId) -> Result<Self> {
        let mut watch = Self { client, id, feed: u64::MAX };
        watch.read(Duration::ZERO).await?;
        Ok(watch)
    }

    /// The batch as it is now.
    pub(super) async fn look(&self) -> Result<Batch> {
        let (store, scope) = (self.client.store(), self.client.scope());
        patiently(|| store.batch(scope, &self.id)).await
    }

    /// Waits until the batch may have moved, or for the next slow look.
    pub(super) async fn news(&mut self) -> Result<()> {
        let until = Instant::now() + RECHECK;
        loop {
            tokio::time::sleep(GAP).await;
            let left = until.saturating_duration_since(Instant::now());
            if self.read(left).await? || left.is_zero() {
                return Ok(());
            }
        }
    }

    /// Whether the feed spoke of the batch.
    async fn read(&mut self, wait: Duration) -> Result<bool> {
        let (store, scope) = (self.client.store(), self.client.scope());
        let set = patiently(|| store.changes(scope, self.feed, wait)).await?;
        self.feed = set.cursor;
        let concerns = |topic: &Topic| matches!(topic, Topic::Batch(batch) if *batch == self.id);
        Ok(set.missed || set.changes.iter().any(|change| concerns(&change.topic)))
    }
}

/// Repeats a call while the store is away, as long as the patience lasts.
pub(super) async fn patiently<T, R: Future<Output = Result<T>>>(
    mut call: impl FnMut() -> R,
) -> Result<T> {
    let until = Instant::now() + PATIENCE;
    let mut wait = GAP;
    loop {
        match call().await {
            Err(error) if error.is_retryable() && Instant::now() < until => {
                tracing::debug!(%error, "the store is away, waiting");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(RECHECK);
            }
            answer => return answer,
        }
    }
}
