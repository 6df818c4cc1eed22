//! Reads a batch while it is filled: retries while the store is unavailable, and polls no more
//! often than the batch changes.

use std::time::Duration;

use longshore::store::Topic;
use longshore::{Batch, BatchId, Client, Result};
use tokio::time::Instant;

/// How long a store may be unavailable before that is an error.
const STORE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for a change notification before the batch is read anyway.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest wait between two reads of a batch that changes all the time; also the first retry
/// delay.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Follows the changes of one batch.
pub(super) struct BatchWatcher {
    client: Client,
    id: BatchId,
    feed_cursor: u64,
}

impl BatchWatcher {
    /// Reads the feed's cursor before the first read of the batch, so that no change is missed.
    pub(super) async fn open(client: Client, id: BatchId) -> Result<Self> {
        let mut watcher = Self { client, id, feed_cursor: u64::MAX };
        watcher.poll_feed(Duration::ZERO).await?;
        Ok(watcher)
    }

    /// Reads the batch.
    pub(super) async fn read_batch(&self) -> Result<Batch> {
        let (store, scope) = (self.client.store(), self.client.scope());
        with_store_retry(|| store.batch(scope, &self.id)).await
    }

    /// Waits until the batch may have changed, or until it is time to read it anyway.
    pub(super) async fn wait_for_change(&mut self) -> Result<()> {
        let deadline = Instant::now() + POLL_INTERVAL;
        loop {
            tokio::time::sleep(MIN_POLL_INTERVAL).await;
            let left = deadline.saturating_duration_since(Instant::now());
            if self.poll_feed(left).await? || left.is_zero() {
                return Ok(());
            }
        }
    }

    /// Whether the feed reports a change of the batch.
    async fn poll_feed(&mut self, wait: Duration) -> Result<bool> {
        let (store, scope) = (self.client.store(), self.client.scope());
        let set = with_store_retry(|| store.changes(scope, self.feed_cursor, wait)).await?;
        self.feed_cursor = set.cursor;
        let is_own = |topic: &Topic| matches!(topic, Topic::Batch(batch) if *batch == self.id);
        Ok(set.missed || set.changes.iter().any(|change| is_own(&change.topic)))
    }
}

/// Retries a call while the store is unavailable, up to `STORE_TIMEOUT`.
pub(super) async fn with_store_retry<T, R: Future<Output = Result<T>>>(
    mut call: impl FnMut() -> R,
) -> Result<T> {
    let deadline = Instant::now() + STORE_TIMEOUT;
    let mut wait = MIN_POLL_INTERVAL;
    loop {
        match call().await {
            Err(error) if error.is_retryable() && Instant::now() < deadline => {
                tracing::debug!(%error, "the store is unavailable, waiting");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(POLL_INTERVAL);
            }
            answer => return answer,
        }
    }
}
