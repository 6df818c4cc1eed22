//! The sender's side: units in, one at a time or many, with the sender's choice when a queue is
//! full. Batches are in `batch_writer`, waiting for results in `wait`.
//!
//! A send is repeated when the store is away: units are recognised by their id, so a repeat after
//! a lost answer does no harm.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use longshore_core::store::{Bound, Opened, Refusal, Sent, Topic};
use longshore_core::{Batch, Error, NewBatch, NewUnit, QueueName, Result, Scope, Store, UnitId};
use tokio::time::Instant;
use tracing::Instrument;

use crate::backoff::Backoff;
use crate::batch_writer::BatchWriter;
use crate::trace;

/// Units per call to the store: more would hold up others' commits.
const CHUNK: usize = 1_000;
/// Calls under way at once: one is written while the other is brought to disk.
const IN_FLIGHT: usize = 2;
/// How long a full queue is believed to be full without a word from the change feed.
const RECHECK: Duration = Duration::from_secs(1);

/// Sends units, opens batches and waits for both. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn Store>,
    scope: Scope,
    patience: Duration,
    place: Place,
    /// The trace that the sender is part of.
    trace: Option<Arc<str>>,
}

/// Where a client is used: waiting for room inside a handler could wait for the handler itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Outside,
    InsideHandler,
}

/// What a sender wants when a queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// Hear of it at once, as [`Sent::Refused`].
    Refuse,
    /// Wait for room.
    Wait,
    /// Wait for room this long, then hear of it as [`Sent::Refused`].
    WaitFor(Duration),
}

/// Why something was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The unit was not taken.
    #[error("the unit was refused: {0}")]
    Refused(Refusal),
    /// The queue is full and the sender is a handler: its own slot may be what the queue waits for.
    #[error("the queue is full and a handler must not wait for room (it may wait for itself): {0}")]
    WouldDeadlock(Refusal),
    /// Somebody else adds to the same batch.
    #[error("another initiator moved the batch's cursor to `{0}`")]
    CursorMoved(String),
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] Error),
}

impl Client {
    /// A client for every tenant's things.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::scoped(store, Scope::All)
    }

    /// A client for one tenant's things, or all.
    pub fn scoped(store: Arc<dyn Store>, scope: Scope) -> Self {
        let patience = Duration::from_secs(30);
        Self { store, scope, patience, place: Place::Outside, trace: None }
    }

    /// How long calls are repeated while the store is away, before the error is passed on.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    pub(crate) fn inside_handler(mut self) -> Self {
        self.place = Place::InsideHandler;
        self
    }

    /// Sends on behalf of what belongs to this trace.
    pub(crate) fn traced(mut self, trace: Option<&str>) -> Self {
        self.trace = trace.map(Arc::from);
        self
    }

    /// The trace that the sender is part of.
    pub(crate) fn trace(&self) -> Option<&str> {
        self.trace.as_deref()
    }

    /// The store beneath, for everything a client does not do itself.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Whose things this client may touch.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Sends one unit, waiting for room if its queue is full. If its key is taken and the sender
    /// wanted to know by which unit, that unit's id is the answer.
    pub async fn send(&self, unit: NewUnit) -> Result<UnitId, SendError> {
        let id = unit.id;
        match self.send_many(vec![unit], WhenFull::Wait).await?.pop() {
            Some(Sent::Created(id) | Sent::Existing(id)) => Ok(id),
            Some(Sent::Refused(refusal)) => Err(SendError::Refused(refusal)),
            None => Err(Error::not_found("answer for unit", id).into()),
        }
    }

    /// Sends many units, one answer each, in their order. A refused unit does not hold up its
    /// neighbours. Sending the same units again is harmless.
    pub async fn send_many(
        &self,
        units: Vec<NewUnit>,
        when_full: WhenFull,
    ) -> Result<Vec<Sent>, SendError> {
        let span = trace::sending(units.len());
        self.send_all(units, when_full).instrument(span).await
    }

    async fn send_all(
        &self,
        mut units: Vec<NewUnit>,
        when_full: WhenFull,
    ) -> Result<Vec<Sent>, SendError> {
        trace::mark(&mut units, self.trace());
        let mut answers = Vec::with_capacity(units.len());
        let mut room = Room::new(self, when_full);
        let mut in_flight = if units.iter().any(waits_for_others) { 1 } else { IN_FLIGHT };
        let mut chunks = units.chunks(CHUNK);
        let mut sending = FuturesOrdered::new();
        loop {
            while sending.len() < in_flight
                && let Some(chunk) = chunks.next()
            {
                sending.push_back(self.try_chunk(chunk));
            }
            let Some(first) = sending.next().await else {
                return Ok(answers);
            };
            let mut tried = vec![first];
            if !tried[0].is_in() {
                // It has to be sent again: from here on one by one, or later units overtake it.
                in_flight = 1;
                tried.extend(sending.by_ref().collect::<Vec<_>>().await);
            }
            for chunk in tried {
                answers.extend(self.send_chunk(chunk, &mut room).await?);
            }
        }
    }

    /// Opens a batch, or takes up one that exists at its cursor.
    pub async fn open_batch(&self, batch: NewBatch) -> Result<BatchWriter, SendError> {
        let opened = self.patiently(|| self.store.open_batch(&self.scope, batch.clone())).await?;
        Ok(BatchWriter::new(self.clone(), opened))
    }

    /// Takes up a batch whose record is known, at the cursor that the record has.
    pub fn take_up(&self, batch: Batch) -> BatchWriter {
        BatchWriter::new(self.clone(), Opened::Existing(batch))
    }

    async fn try_chunk<'u>(&self, units: &'u [NewUnit]) -> Tried<'u> {
        Tried { units, answers: self.store.send(&self.scope, units.to_vec()).await }
    }

    /// Sends a chunk until all of it is in or the sender does not want to wait.
    async fn send_chunk(
        &self,
        tried: Tried<'_>,
        room: &mut Room<'_>,
    ) -> Result<Vec<Sent>, SendError> {
        let Tried { units, answers } = tried;
        let mut answers = match answers {
            Err(error) if error.is_retryable() => {
                self.patiently(|| self.store.send(&self.scope, units.to_vec())).await?
            }
            answers => answers?,
        };
        loop {
            let full: Vec<usize> = (0..answers.len()).filter(|i| is_full(&answers[*i])).collect();
            let Some(first) = full.first() else {
                return Ok(answers);
            };
            let queues = full.iter().map(|i| units[*i].queue.clone()).collect();
            if !room.wait(&answers[*first], &queues).await? {
                return Ok(answers);
            }
            let left = || full.iter().map(|i| units[*i].clone()).collect();
            let again = self.patiently(|| self.store.send(&self.scope, left())).await?;
            room.tried(again.iter().all(is_full));
            for (i, answer) in full.into_iter().zip(again) {
                answers[i] = answer;
            }
        }
    }

    /// Repeats a call while the store is away, as long as the patience lasts.
    pub(crate) async fn patiently<T, F, R>(&self, mut call: F) -> Result<T>
    where
        F: FnMut() -> R,
        R: Future<Output = Result<T>>,
    {
        let until = Instant::now() + self.patience;
        let mut backoff = Backoff::store();
        loop {
            match call().await {
                Err(error) if error.is_retryable() && Instant::now() < until => {
                    tracing::debug!(%error, tries = backoff.tries(), "the store is away, waiting");
                    backoff.wait().await;
                }
                answer => return answer,
            }
        }
    }
}

impl Client {
    /// Whether a call that was repeated `tries` times, with growing waits, is worth another.
    pub(crate) fn is_patient(&self, tries: u32) -> bool {
        // The waits of a Backoff::store add up to about 10 s after 8 tries, then 5 s each.
        Duration::from_secs(u64::from(tries.saturating_sub(7)) * 5) < self.patience
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("scope", &self.scope).finish_non_exhaustive()
    }
}

pub(crate) fn is_full(answer: &Sent) -> bool {
    matches!(answer, Sent::Refused(Refusal::Full { .. }))
}

/// A chunk, and what its first sending came to.
struct Tried<'u> {
    units: &'u [NewUnit],
    answers: Result<Vec<Sent>>,
}

impl Tried<'_> {
    fn is_in(&self) -> bool {
        matches!(&self.answers, Ok(answers) if !answers.iter().any(is_full))
    }
}

fn waits_for_others(unit: &NewUnit) -> bool {
    !unit.after.units.is_empty()
}

/// Waits for room in full queues, by the change feed.
pub(crate) struct Room<'a> {
    client: &'a Client,
    when_full: WhenFull,
    /// Unknown until the first wait: a sender that never meets a full queue reads no feed.
    cursor: Option<u64>,
    until: Option<Instant>,
    /// Between tries, whatever the feed says: a try may be what it speaks of.
    gap: Backoff,
}

impl<'a> Room<'a> {
    pub(crate) fn new(client: &'a Client, when_full: WhenFull) -> Self {
        let until = match when_full {
            WhenFull::WaitFor(limit) => Some(Instant::now() + limit),
            WhenFull::Refuse | WhenFull::Wait => None,
        };
        let gap = Backoff::new(Duration::from_millis(1), Duration::from_millis(20));
        Self { client, when_full, cursor: None, until, gap }
    }

    /// Something was tried again, and found room or not.
    fn tried(&mut self, in_vain: bool) {
        if !in_vain {
            self.gap.reset();
        }
    }

    /// Waits until there may be room in one of `queues`; false if the sender does not want to wait
    /// (any longer).
    pub(crate) async fn wait(
        &mut self,
        answer: &Sent,
        queues: &HashSet<QueueName>,
    ) -> Result<bool, SendError> {
        if self.when_full == WhenFull::Refuse {
            return Ok(false);
        }
        if let (Place::InsideHandler, Sent::Refused(refusal)) = (self.client.place, answer) {
            return Err(SendError::WouldDeadlock(refusal.clone()));
        }
        let concern = Concern { queues, anywhere: is_tenants(answer) };
        // The first time only takes the feed's place and tries again: room that appeared between
        // the refusal and here would otherwise be missed.
        let Some(cursor) = self.cursor else {
            self.cursor = Some(self.look(u64::MAX, Duration::ZERO, &concern).await?);
            return Ok(true);
        };
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Ok(false);
        }
        self.gap.wait().await;
        let wait = left.map_or(RECHECK, |left| left.min(RECHECK));
        self.cursor = Some(self.look(cursor, wait, &concern).await?);
        Ok(true)
    }

    /// Follows the feed until something of concern changed or `wait` is over.
    async fn look(&self, mut since: u64, wait: Duration, concern: &Concern<'_>) -> Result<u64> {
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Client { store, scope, .. } = self.client;
            let set = self.client.patiently(|| store.changes(scope, since, left)).await?;
            since = set.cursor;
            if set.missed || set.changes.iter().any(|change| concern.covers(&change.topic)) {
                return Ok(since);
            }
            if Instant::now() >= until {
                return Ok(since);
            }
        }
    }
}

/// Which changes may mean room.
struct Concern<'q> {
    queues: &'q HashSet<QueueName>,
    /// A tenant's bound is over all its queues: what ends in any of them makes room.
    anywhere: bool,
}

impl Concern<'_> {
    fn covers(&self, topic: &Topic) -> bool {
        match topic {
            Topic::Queue(queue) => self.anywhere || self.queues.contains(queue),
            // A tenant's bound may have been lifted.
            Topic::Setting(_) => true,
            _ => false,
        }
    }
}

fn is_tenants(answer: &Sent) -> bool {
    matches!(answer, Sent::Refused(Refusal::Full { bound: Bound::Tenant, .. }))
}
