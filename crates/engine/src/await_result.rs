//! Waits for a unit or a batch by following the change feed, with a slow re-check.

use std::time::Duration;

use longshore_core::store::Topic;
use longshore_core::{Batch, BatchId, Error, QueueName, Result, Unit, UnitId};
use tokio::time::Instant;

use crate::client::Client;

/// How long to rely on the change feed without reading the store.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum gap between two reads of a unit after changes of its queue or batch, which are frequent.
const UNIT_READ_GAP: Duration = Duration::from_millis(50);
/// Minimum gap between two reads of a batch.
const BATCH_READ_GAP: Duration = Duration::from_millis(20);

/// Why a wait ended without a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The unit or batch did not end within the limit. The caller may wait again.
    #[error("not ended within {0:?}")]
    TimedOut(Duration),
    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] Error),
}

impl Client {
    /// Waits until a unit has ended, and returns it with its result or failure. Returns immediately
    /// after the end if the unit was sent with [`longshore_core::NewUnit::awaited`]; otherwise up
    /// to 50 ms later on a busy queue.
    pub async fn wait(&self, id: UnitId, limit: Option<Duration>) -> Result<Unit, WaitError> {
        let mut feed = FeedFollower::open(self, limit, UNIT_READ_GAP).await?;
        loop {
            let permit = self.read_permit().await;
            let unit = self.retry_unavailable(|| self.store().unit(self.scope(), id)).await?;
            if unit.state.is_final() {
                return Ok(unit);
            }
            let (own_queue, own_batch) = queue_and_batch(unit);
            drop(permit);
            let relevance = |topic: &Topic| match topic {
                Topic::Unit(ended) if *ended == id => Relevance::Certain,
                Topic::Queue(queue) if *queue == own_queue => Relevance::Possible,
                Topic::Batch(batch) if own_batch.as_ref() == Some(batch) => Relevance::Possible,
                _ => Relevance::None,
            };
            feed.wait_change(relevance).await?;
        }
    }

    /// Waits until a batch is neither queued nor running: it has ended, or is paused. `on_change`
    /// is called with the batch as it is, then after each change.
    pub async fn wait_batch(
        &self,
        id: &BatchId,
        limit: Option<Duration>,
        mut on_change: impl FnMut(&Batch),
    ) -> Result<Batch, WaitError> {
        let mut feed = FeedFollower::open(self, limit, BATCH_READ_GAP).await?;
        let mut last = None;
        loop {
            let batch = self.retry_unavailable(|| self.store().batch(self.scope(), id)).await?;
            if last.as_ref() != Some(&batch) {
                on_change(&batch);
            }
            if !batch.status.is_open() {
                return Ok(batch);
            }
            last = Some(batch);
            let relevance = |topic: &Topic| match topic {
                Topic::Batch(batch) if batch == id => Relevance::Possible,
                _ => Relevance::None,
            };
            feed.wait_change(relevance).await?;
        }
    }
}

/// Drops the rest of the unit: its payload may be large, and the wait long.
fn queue_and_batch(unit: Unit) -> (QueueName, Option<BatchId>) {
    (unit.queue, unit.batch)
}

/// Whether a change is a reason to read the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Relevance {
    None,
    /// May concern the awaited unit or batch: read after the minimum gap.
    Possible,
    /// Concerns the awaited unit or batch: read immediately.
    Certain,
}

/// A position in the change feed and the limits of the wait.
struct FeedFollower<'a> {
    client: &'a Client,
    cursor: u64,
    limit: Duration,
    until: Option<Instant>,
    gap: Duration,
    /// Possible changes cause no read before this time.
    next_read: Instant,
}

impl<'a> FeedFollower<'a> {
    /// Takes its position before the caller's first read, so that no change is missed.
    async fn open(client: &'a Client, limit: Option<Duration>, gap: Duration) -> Result<Self> {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let (limit, next_read) = (limit.unwrap_or_default(), Instant::now());
        let mut feed = Self { client, cursor: u64::MAX, limit, until, gap, next_read };
        feed.read(Duration::ZERO, |_| Relevance::None).await?;
        Ok(feed)
    }

    /// Waits for a relevant change or the next slow re-check.
    async fn wait_change(&mut self, relevance: impl Fn(&Topic) -> Relevance) -> Result<(), WaitError> {
        let mut until = Instant::now() + self.left(RECHECK_INTERVAL)?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.read(left, &relevance).await? {
                Relevance::Certain => break,
                Relevance::Possible => until = until.min(self.next_read),
                Relevance::None => {}
            }
            if Instant::now() >= until {
                break;
            }
        }
        self.next_read = Instant::now() + self.gap;
        self.left(RECHECK_INTERVAL).map(|_| ())
    }

    /// The rest of the caller's time, at most `most`.
    fn left(&self, most: Duration) -> Result<Duration, WaitError> {
        let Some(until) = self.until else {
            return Ok(most);
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(WaitError::TimedOut(self.limit)) } else { Ok(left.min(most)) }
    }

    async fn read(&mut self, wait: Duration, relevance: impl Fn(&Topic) -> Relevance) -> Result<Relevance> {
        let (store, scope) = (self.client.store(), self.client.scope());
        let set = self.client.retry_unavailable(|| store.changes(scope, self.cursor, wait)).await?;
        self.cursor = set.cursor;
        if set.missed {
            return Ok(Relevance::Certain);
        }
        let all = set.changes.iter().map(|change| relevance(&change.topic));
        Ok(all.max().unwrap_or(Relevance::None))
    }
}
