//! The client: sends units, one or many, and lets the sender choose what happens when a queue is
//! full. `batch_writer` fills batches, `await_result` waits for results.
//!
//! If the store is unavailable a send is repeated. The store recognises units by their id, so a
//! repeat after a lost response does no harm.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use longshore_core::store::{
    CapacityScope, OpenBatchResult, ScheduleFilter, SendRejection, SendResult, Topic,
};
use longshore_core::unit::MAX_SEND_DEPENDENCIES;
use longshore_core::{
    Batch, Error, NewBatch, NewUnit, QueueName, Result, Rights, Scope, Store, Timestamp, UnitId,
};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tracing::Instrument;

use crate::backoff::Backoff;
use crate::batch_writer::BatchWriter;
use crate::trace;

/// Units per call to the store: a longer transaction would delay other commits.
const MAX_CHUNK: usize = 1_000;
/// Concurrent calls: one transaction is written while the other is synced to disk.
const MAX_IN_FLIGHT: usize = 2;
/// How long to wait for a change before a full queue is tried again.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Sends units, opens batches and waits for both. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn Store>,
    scope: Scope,
    retry_timeout: Duration,
    call_site: CallSite,
    /// The sender's trace.
    trace: Option<Arc<str>>,
    rights: Rights,
    /// Limits concurrent reads of units that are waited for.
    read_permits: Option<Arc<Semaphore>>,
}

/// Where a client is used: a handler that waits for capacity may wait for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallSite {
    Outside,
    InsideHandler,
}

/// What the client does when a queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// Return [`SendResult::Rejected`] immediately.
    Reject,
    /// Wait for capacity.
    Wait,
    /// Wait for capacity this long, then return [`SendResult::Rejected`].
    WaitFor(Duration),
}

/// Why a send failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The store rejected the unit.
    #[error("the unit was rejected: {0}")]
    Rejected(SendRejection),
    /// The queue is full and the sender is a handler. Waiting could deadlock: the queue may need
    /// the handler's own slot.
    #[error("the queue is full and a handler must not wait for capacity (it may wait for itself): {0}")]
    WouldDeadlock(SendRejection),
    /// Another initiator adds to the same batch.
    #[error("another initiator moved the batch's cursor to `{0}`")]
    CursorMoved(String),
    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] Error),
}

impl Client {
    /// Creates a client with access to every tenant.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::scoped(store, Scope::All)
    }

    /// Creates a client with access to the tenants in `scope`.
    pub fn scoped(store: Arc<dyn Store>, scope: Scope) -> Self {
        let retry_timeout = Duration::from_secs(30);
        let (call_site, rights) = (CallSite::Outside, Rights::Operator);
        Self { store, scope, retry_timeout, call_site, trace: None, rights, read_permits: None }
    }

    /// The store's time. Distances from now (delays, deadlines) are counted from it, because the clock of a client may be
    /// wrong.
    pub async fn store_time(&self) -> Result<Timestamp> {
        Ok(self.store.schedules(&self.scope, &ScheduleFilter::All, None, 0).await?.now)
    }

    /// Sets how long calls are retried while the store is unavailable. Default 30 s.
    #[must_use]
    pub fn with_retry_timeout(mut self, retry_timeout: Duration) -> Self {
        self.retry_timeout = retry_timeout;
        self
    }

    /// Sends units and callbacks with these rights. Default: the operator's. The client of a handler
    /// has the rights of the handler's unit.
    #[must_use]
    pub fn with_rights(mut self, rights: Rights) -> Self {
        self.rights = rights;
        self
    }

    /// Lets [`Self::wait`] hold one of these permits while it reads a unit: a unit may be large, and many
    /// clients may wait for it.
    #[must_use]
    pub fn with_read_permits(mut self, permits: Arc<Semaphore>) -> Self {
        self.read_permits = Some(permits);
        self
    }

    pub(crate) fn inside_handler(mut self) -> Self {
        self.call_site = CallSite::InsideHandler;
        self
    }

    /// Sends units as part of this trace.
    pub(crate) fn traced(mut self, trace: Option<&str>) -> Self {
        self.trace = trace.map(Arc::from);
        self
    }

    /// Marks units with the sender's trace and rights.
    pub(crate) fn mark_units(&self, units: &mut [NewUnit]) {
        trace::set_trace(units, self.trace.as_deref());
        if self.rights == Rights::Tenant {
            units.iter_mut().for_each(|unit| unit.rights = Rights::Tenant);
        }
    }

    /// The store, for operations that the client does not offer.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The tenants that this client may access.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Sends one unit and waits for capacity if its queue is full. If a unit with the same dedup
    /// key exists and the sender chose `OnDuplicate::Existing`, returns that unit's id.
    pub async fn send(&self, unit: NewUnit) -> Result<UnitId, SendError> {
        let id = unit.id;
        match self.send_many(vec![unit], WhenFull::Wait).await?.pop() {
            Some(SendResult::Created(id) | SendResult::Existing(id)) => Ok(id),
            Some(SendResult::Rejected(rejection)) => Err(SendError::Rejected(rejection)),
            None => Err(Error::not_found("answer for unit", id).into()),
        }
    }

    /// Sends many units. Returns one result per unit, in order. A rejected unit does not block the
    /// others. Sending the same units again does no harm.
    pub async fn send_many(
        &self,
        units: Vec<NewUnit>,
        when_full: WhenFull,
    ) -> Result<Vec<SendResult>, SendError> {
        let span = trace::send_span(units.len());
        self.send_all(units, when_full).instrument(span).await
    }

    async fn send_all(
        &self,
        mut units: Vec<NewUnit>,
        when_full: WhenFull,
    ) -> Result<Vec<SendResult>, SendError> {
        self.mark_units(&mut units);
        let mut answers = Vec::with_capacity(units.len());
        let mut capacity_wait = CapacityWait::new(self, when_full);
        let mut in_flight = if units.iter().any(has_dependencies) { 1 } else { MAX_IN_FLIGHT };
        let mut rest = &units[..];
        let mut sending = FuturesOrdered::new();
        loop {
            while sending.len() < in_flight && !rest.is_empty() {
                let (chunk, others) = rest.split_at(chunk_len(rest));
                sending.push_back(self.try_chunk(chunk));
                rest = others;
            }
            let Some(first) = sending.next().await else {
                return Ok(answers);
            };
            let mut attempt = vec![first];
            if !attempt[0].is_stored() {
                // The chunk must be sent again: from here on send one by one, or later units
                // overtake it.
                in_flight = 1;
                attempt.extend(sending.by_ref().collect::<Vec<_>>().await);
            }
            for chunk in attempt {
                answers.extend(self.send_chunk(chunk, &mut capacity_wait).await?);
            }
        }
    }

    /// Opens a batch, or resumes an existing one at its cursor.
    pub async fn open_batch(&self, mut batch: NewBatch) -> Result<BatchWriter, SendError> {
        if self.rights == Rights::Tenant {
            batch.callback.iter_mut().for_each(|callback| callback.rights = Rights::Tenant);
        }
        let opened = self.retry_unavailable(|| self.store.open_batch(&self.scope, batch.clone())).await?;
        Ok(BatchWriter::new(self.clone(), opened))
    }

    /// Resumes a batch from its record, at the record's cursor.
    pub fn resume_batch(&self, batch: Batch) -> BatchWriter {
        BatchWriter::new(self.clone(), OpenBatchResult::Existing(batch))
    }

    async fn try_chunk<'u>(&self, units: &'u [NewUnit]) -> ChunkAttempt<'u> {
        ChunkAttempt { units, answers: self.store.send(&self.scope, units.to_vec()).await }
    }

    /// Sends a chunk until all of it is stored or the sender does not want to wait.
    async fn send_chunk(
        &self,
        attempt: ChunkAttempt<'_>,
        capacity_wait: &mut CapacityWait<'_>,
    ) -> Result<Vec<SendResult>, SendError> {
        let ChunkAttempt { units, answers } = attempt;
        let mut answers = match answers {
            Err(error) if error.is_retryable() => {
                self.retry_unavailable(|| self.store.send(&self.scope, units.to_vec())).await?
            }
            answers => answers?,
        };
        loop {
            let full: Vec<usize> = (0..answers.len()).filter(|i| is_full(&answers[*i])).collect();
            let Some(first) = full.first() else {
                return Ok(answers);
            };
            let queues = full.iter().map(|i| units[*i].queue.clone()).collect();
            if !capacity_wait.wait(&answers[*first], &queues).await? {
                return Ok(answers);
            }
            let left = || full.iter().map(|i| units[*i].clone()).collect();
            let again = self.retry_unavailable(|| self.store.send(&self.scope, left())).await?;
            capacity_wait.on_retry(again.iter().all(is_full));
            for (i, answer) in full.into_iter().zip(again) {
                answers[i] = answer;
            }
        }
    }

    /// Retries a call while the store is unavailable, until `retry_timeout` has passed.
    /// A permit to read a unit, if reads are limited.
    pub(crate) async fn read_permit(&self) -> Option<SemaphorePermit<'_>> {
        self.read_permits.as_ref()?.acquire().await.ok()
    }

    pub(crate) async fn retry_unavailable<T, F, R>(&self, mut call: F) -> Result<T>
    where
        F: FnMut() -> R,
        R: Future<Output = Result<T>>,
    {
        let until = Instant::now() + self.retry_timeout;
        let mut backoff = Backoff::store();
        loop {
            match call().await {
                Err(error) if error.is_retryable() && Instant::now() < until => {
                    let tries = backoff.tries();
                    tracing::debug!(%error, tries, "the store is unavailable; retrying");
                    backoff.wait().await;
                }
                answer => return answer,
            }
        }
    }
}

impl Client {
    /// Whether a call that was tried `tries` times with `Backoff::store` may be tried again.
    pub(crate) fn may_retry(&self, tries: u32) -> bool {
        // The waits of a `Backoff::store` add up to about 10 s after 8 tries, then 5 s each.
        Duration::from_secs(u64::from(tries.saturating_sub(7)) * 5) < self.retry_timeout
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("scope", &self.scope).finish_non_exhaustive()
    }
}

pub(crate) fn is_full(answer: &SendResult) -> bool {
    matches!(answer, SendResult::Rejected(SendRejection::Full { .. }))
}

/// A chunk and the result of its first send.
struct ChunkAttempt<'u> {
    units: &'u [NewUnit],
    answers: Result<Vec<SendResult>>,
}

impl ChunkAttempt<'_> {
    fn is_stored(&self) -> bool {
        matches!(&self.answers, Ok(answers) if !answers.iter().any(is_full))
    }
}

/// How many units the next call to the store takes.
fn chunk_len(units: &[NewUnit]) -> usize {
    let mut dependencies = 0;
    let fits = units.iter().take(MAX_CHUNK).take_while(|unit| {
        dependencies += unit.dependencies.units.len();
        dependencies <= MAX_SEND_DEPENDENCIES
    });
    // A unit with too many dependencies is rejected by the store.
    fits.count().max(1)
}

fn has_dependencies(unit: &NewUnit) -> bool {
    !unit.dependencies.units.is_empty()
}

/// Waits for capacity in full queues by following the change feed.
pub(crate) struct CapacityWait<'a> {
    client: &'a Client,
    when_full: WhenFull,
    /// `None` until the first wait: a sender that never meets a full queue reads no feed.
    cursor: Option<u64>,
    until: Option<Instant>,
    /// Minimum wait between retries, whatever the feed reports: a retry itself may cause a change.
    retry_gap: Backoff,
}

impl<'a> CapacityWait<'a> {
    pub(crate) fn new(client: &'a Client, when_full: WhenFull) -> Self {
        let until = match when_full {
            WhenFull::WaitFor(limit) => Some(Instant::now() + limit),
            WhenFull::Reject | WhenFull::Wait => None,
        };
        let retry_gap = Backoff::new(Duration::from_millis(1), Duration::from_millis(20));
        Self { client, when_full, cursor: None, until, retry_gap }
    }

    /// Resets the backoff if a retry stored something.
    fn on_retry(&mut self, still_full: bool) {
        if !still_full {
            self.retry_gap.reset();
        }
    }

    /// Waits until one of `queues` may have capacity. Returns false if the sender does not want to
    /// wait, or not longer.
    pub(crate) async fn wait(
        &mut self,
        answer: &SendResult,
        queues: &HashSet<QueueName>,
    ) -> Result<bool, SendError> {
        if self.when_full == WhenFull::Reject {
            return Ok(false);
        }
        if let (CallSite::InsideHandler, SendResult::Rejected(rejection)) = (self.client.call_site, answer) {
            return Err(SendError::WouldDeadlock(rejection.clone()));
        }
        let topics = CapacityTopics { queues, anywhere: is_tenant_limit(answer) };
        // The first call only takes a position in the feed and retries: capacity that appeared
        // between the rejection and here would otherwise be missed.
        let Some(cursor) = self.cursor else {
            self.cursor = Some(self.follow_feed(u64::MAX, Duration::ZERO, &topics).await?);
            return Ok(true);
        };
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Ok(false);
        }
        self.retry_gap.wait().await;
        let wait = left.map_or(RECHECK_INTERVAL, |left| left.min(RECHECK_INTERVAL));
        self.cursor = Some(self.follow_feed(cursor, wait, &topics).await?);
        Ok(true)
    }

    /// Follows the feed until a relevant change or the end of `wait`.
    async fn follow_feed(&self, mut since: u64, wait: Duration, topics: &CapacityTopics<'_>) -> Result<u64> {
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Client { store, scope, .. } = self.client;
            let set = self.client.retry_unavailable(|| store.changes(scope, since, left)).await?;
            since = set.cursor;
            if set.missed || set.changes.iter().any(|change| topics.covers(&change.topic)) {
                return Ok(since);
            }
            if Instant::now() >= until {
                return Ok(since);
            }
        }
    }
}

/// The changes that may mean capacity.
struct CapacityTopics<'q> {
    queues: &'q HashSet<QueueName>,
    /// A tenant's capacity spans all its queues: a unit that ends in any of them may free some.
    anywhere: bool,
}

impl CapacityTopics<'_> {
    fn covers(&self, topic: &Topic) -> bool {
        match topic {
            Topic::Queue(queue) => self.anywhere || self.queues.contains(queue),
            // The tenant's capacity may have been raised.
            Topic::Setting(_) => true,
            _ => false,
        }
    }
}

fn is_tenant_limit(answer: &SendResult) -> bool {
    matches!(answer, SendResult::Rejected(SendRejection::Full { bound: CapacityScope::Tenant, .. }))
}
