//! Waiting for a unit or a batch: by the change feed, with a slow re-check, never busy.

use std::time::Duration;

use longshore_core::store::Topic;
use longshore_core::{Batch, BatchId, Error, Result, Unit, UnitId};
use tokio::time::Instant;

use crate::client::Client;

/// How long no news is believed without looking.
const RECHECK: Duration = Duration::from_secs(5);
/// Between two looks at a unit because its queue or batch moved: a busy one moves all the time.
const UNIT_GAP: Duration = Duration::from_millis(50);
/// Between two looks at a batch.
const BATCH_GAP: Duration = Duration::from_millis(20);

/// Why waiting ended without an answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// It was not over in time. The wait may be taken up again.
    #[error("not over after {0:?}")]
    TimedOut(Duration),
    /// The store could not say.
    #[error(transparent)]
    Store(#[from] Error),
}

impl Client {
    /// Waits until a unit has ended, and returns it with its result or failure. At once if it was
    /// sent with [`longshore_core::NewUnit::awaited`]; else on a busy queue some 50 ms later.
    pub async fn wait(&self, id: UnitId, limit: Option<Duration>) -> Result<Unit, WaitError> {
        let mut feed = Feed::open(self, limit, UNIT_GAP).await?;
        loop {
            let unit = self.patiently(|| self.store().unit(self.scope(), id)).await?;
            if unit.state.is_final() {
                return Ok(unit);
            }
            let concerns = |topic: &Topic| match topic {
                Topic::Unit(ended) if *ended == id => Concern::Surely,
                Topic::Queue(queue) if *queue == unit.queue => Concern::Perhaps,
                Topic::Batch(batch) if unit.batch.as_ref() == Some(batch) => Concern::Perhaps,
                _ => Concern::No,
            };
            feed.news(concerns).await?;
        }
    }

    /// Waits until a batch is neither queued nor running: it has ended, or is paused. `on_change`
    /// sees it first as it is, then after each change.
    pub async fn wait_batch(
        &self,
        id: &BatchId,
        limit: Option<Duration>,
        mut on_change: impl FnMut(&Batch),
    ) -> Result<Batch, WaitError> {
        let mut feed = Feed::open(self, limit, BATCH_GAP).await?;
        let mut seen = None;
        loop {
            let batch = self.patiently(|| self.store().batch(self.scope(), id)).await?;
            if seen.as_ref() != Some(&batch) {
                on_change(&batch);
            }
            if !batch.status.is_open() {
                return Ok(batch);
            }
            seen = Some(batch);
            let concerns = |topic: &Topic| match topic {
                Topic::Batch(batch) if batch == id => Concern::Perhaps,
                _ => Concern::No,
            };
            feed.news(concerns).await?;
        }
    }
}

/// Whether a change is a reason to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Concern {
    No,
    /// It may be ours: a look in a while.
    Perhaps,
    /// It is what we wait for: a look at once.
    Surely,
}

/// A place in the change feed, and how long to follow it.
struct Feed<'a> {
    client: &'a Client,
    cursor: u64,
    limit: Duration,
    until: Option<Instant>,
    gap: Duration,
    /// No look before this because of something that is perhaps ours.
    rest_until: Instant,
}

impl<'a> Feed<'a> {
    /// Takes its place before the caller's first look, so that nothing falls between.
    async fn open(client: &'a Client, limit: Option<Duration>, gap: Duration) -> Result<Self> {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let (limit, rest_until) = (limit.unwrap_or_default(), Instant::now());
        let mut feed = Self { client, cursor: u64::MAX, limit, until, gap, rest_until };
        feed.read(Duration::ZERO, |_| Concern::No).await?;
        Ok(feed)
    }

    /// Waits for a change that concerns the caller, or for the next slow re-check.
    async fn news(&mut self, concerns: impl Fn(&Topic) -> Concern) -> Result<(), WaitError> {
        let mut until = Instant::now() + self.left(RECHECK)?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.read(left, &concerns).await? {
                Concern::Surely => break,
                Concern::Perhaps => until = until.min(self.rest_until),
                Concern::No => {}
            }
            if Instant::now() >= until {
                break;
            }
        }
        self.rest_until = Instant::now() + self.gap;
        self.left(RECHECK).map(|_| ())
    }

    /// What is left of the caller's time, `most` at a time.
    fn left(&self, most: Duration) -> Result<Duration, WaitError> {
        let Some(until) = self.until else {
            return Ok(most);
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(WaitError::TimedOut(self.limit)) } else { Ok(left.min(most)) }
    }

    async fn read(
        &mut self,
        wait: Duration,
        concerns: impl Fn(&Topic) -> Concern,
    ) -> Result<Concern> {
        let (store, scope) = (self.client.store(), self.client.scope());
        let set = self.client.patiently(|| store.changes(scope, self.cursor, wait)).await?;
        self.cursor = set.cursor;
        if set.missed {
            return Ok(Concern::Surely);
        }
        let all = set.changes.iter().map(|change| concerns(&change.topic));
        Ok(all.max().unwrap_or(Concern::No))
    }
}
