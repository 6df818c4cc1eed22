//! Rate limits shared by all processes: waits, or rejects, until every bucket that a question needs
//! has enough.
//!
//! What a process holds of a bucket is in `token_lease`, with the proof that no window exceeds the
//! limit plus the burst; the order of waiters, which is fair by tenant, is in `limiter/queue`. This module calls the store,
//! in one task per limiter that runs while a question waits or a settlement is pending.

mod queue;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore::accounts::{BucketRequest, Limits as Ledger};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use self::queue::{LimitQueue, QueueStep, WaitResult};
use crate::profile::WhenPoolFull;
use crate::resilience::{BucketCharge, Measure, WaitingTenant};

/// Why a limit rejected a question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// A limit is reached.
    #[error("limit `{bucket}` is reached")]
    Reached {
        /// The bucket.
        bucket: String,
        /// How long until there is enough, as far as is known.
        wait: Duration,
    },
    /// The deadline comes first.
    #[error("the limit was not free before the deadline")]
    Deadline,
    /// The store of the limits failed.
    #[error("reading the limits failed: {0}")]
    Store(String),
}

/// Takes from buckets that all processes share. Cheap to clone.
#[derive(Clone)]
pub struct Limiter {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    /// The task that calls the store. Aborted with the limiter.
    tasks: Mutex<JoinSet<()>>,
}

struct Shared {
    ledger: Arc<dyn Ledger>,
    queue: Mutex<LimitQueue>,
    /// Signals that a question waits or a settlement is pending.
    work: Notify,
}

/// A reservation. Dropped, it stays charged as estimated, which is right for a question that was
/// sent and has an unknown usage.
#[must_use = "what is not settled stays charged as estimated"]
pub struct TokenReservation {
    inner: Arc<Inner>,
    charges: Arc<[BucketCharge]>,
}

/// The wait that is reported for a limit of zero.
const ZERO_LIMIT_WAIT: Duration = Duration::from_secs(3600);

impl Limiter {
    /// A limiter that draws from this ledger.
    pub fn new(ledger: Arc<dyn Ledger>) -> Self {
        let shared = Shared { ledger, queue: Mutex::default(), work: Notify::new() };
        Self { inner: Arc::new(Inner { shared: Arc::new(shared), tasks: Mutex::default() }) }
    }

    /// Reserves everything that is needed, or nothing; fairly between tenants by their weights, in order of arrival
    /// within a tenant. With [`WhenPoolFull::Wait`] it waits if there can be enough before `until`.
    /// Cancel-safe: a dropped future reserves nothing.
    pub async fn take(
        &self,
        tenant: &WaitingTenant,
        charges: impl Into<Arc<[BucketCharge]>>,
        until: Instant,
        when_full: WhenPoolFull,
    ) -> Result<TokenReservation, LimitError> {
        let charges = charges.into();
        let taken = TokenReservation { inner: self.inner.clone(), charges: Arc::clone(&charges) };
        if charges.is_empty() {
            return Ok(taken);
        }
        if let Some(never) =
            charges.iter().find(|charge| charge.per_minute.is_nan() || charge.per_minute <= 0.0)
        {
            return Err(LimitError::Reached { bucket: never.bucket.to_string(), wait: ZERO_LIMIT_WAIT });
        }
        if self.inner.take_now(&charges) {
            return Ok(taken);
        }
        let mut waiting = self.inner.join(tenant, charges, until, when_full);
        let result = timeout_at(until, &mut waiting.result).await;
        waiting.done = result.is_ok();
        match result {
            Ok(Ok(result)) => result.map(|_| taken),
            Ok(Err(_)) => Err(LimitError::Store("the limiter was closed".into())),
            Err(_) => Err(LimitError::Deadline),
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").finish_non_exhaustive()
    }
}

impl TokenReservation {
    /// Settles the tokens that a question really took: an excess is credited, a shortfall is
    /// charged even if the bucket is empty.
    pub fn settle(self, tokens: u64) {
        self.correct(|charge| match charge.measure {
            Measure::Requests => 0.0,
            Measure::Tokens => charge.amount - tokens as f64,
        });
    }

    /// Credits the whole reservation: the question was not sent.
    pub fn release(self) {
        self.correct(|charge| charge.amount);
    }

    fn correct(&self, credit: impl Fn(&BucketCharge) -> f64) {
        let mut queue = self.inner.shared.queue();
        let now = Instant::now();
        let credits = self.charges.iter().map(|charge| (charge, credit(charge)));
        let mut has_work = false;
        for (charge, credit) in credits.filter(|(_, credit)| *credit != 0.0) {
            has_work |= queue.credit(charge, credit, now);
        }
        self.inner.wake_task(queue, has_work);
    }
}

impl fmt::Debug for TokenReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenReservation").field(&self.charges).finish()
    }
}

/// A waiting question. Dropped before it was served, it leaves the queue, or returns what was
/// reserved for it.
struct WaitGuard<'a> {
    inner: &'a Inner,
    id: u64,
    result: oneshot::Receiver<WaitResult>,
    done: bool,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut queue = self.inner.shared.queue();
        let has_work = match self.result.try_recv() {
            Ok(Ok(grant)) => {
                queue.put_back(grant, Instant::now());
                false
            }
            Ok(Err(_)) => false,
            Err(_) => queue.leave(self.id),
        };
        drop(queue);
        if has_work {
            self.inner.shared.work.notify_one();
        }
    }
}

impl Inner {
    /// Reserves everything that is needed if it is available now; or nothing.
    fn take_now(&self, charges: &[BucketCharge]) -> bool {
        let mut queue = self.shared.queue();
        let Some(has_work) = queue.take_now(charges, Instant::now()) else { return false };
        if has_work {
            self.wake_task(queue, has_work);
        }
        true
    }

    fn join(
        &self,
        tenant: &WaitingTenant,
        charges: Arc<[BucketCharge]>,
        until: Instant,
        when_full: WhenPoolFull,
    ) -> WaitGuard<'_> {
        let mut queue = self.shared.queue();
        let joined = queue.join(tenant, charges, until, when_full, Instant::now());
        self.wake_task(queue, joined.has_work);
        WaitGuard { inner: self, id: joined.id, result: joined.result, done: false }
    }

    /// Starts the task if the queue needs it, and notifies it of new work.
    fn wake_task(&self, mut queue: MutexGuard<'_, LimitQueue>, has_work: bool) {
        if queue.running {
            drop(queue);
            if has_work {
                self.shared.work.notify_one();
            }
        } else if !queue.is_idle() {
            queue.running = true;
            drop(queue);
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            while tasks.try_join_next().is_some() {}
            tasks.spawn(self.shared.clone().run());
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, LimitQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>) {
        loop {
            let step = self.queue().plan(Instant::now());
            match step {
                QueueStep::Idle => return,
                QueueStep::Wait(until) => tokio::select! {
                    () = sleep_until(until) => {}
                    () = self.work.notified() => {}
                },
                QueueStep::Settle(credits) => self.settle(credits).await,
                QueueStep::Draw(draws) => self.draw(draws).await,
            }
        }
    }

    async fn draw(&self, draws: Vec<BucketRequest>) {
        let started = Instant::now();
        let drawn = self.ledger.draw(draws.clone()).await;
        let (mut queue, now) = (self.queue(), Instant::now());
        match drawn {
            Ok(drawn) => queue.add_draws(&draws, &drawn, started, now),
            Err(error) if error.is_retryable() => queue.store_unavailable(now),
            Err(error) => queue.store_failed(&error.to_string()),
        }
    }

    async fn settle(&self, credits: Vec<(BucketCharge, f64)>) {
        let draws = credits.iter().map(|(charge, credit)| charge.settle(*credit)).collect();
        if self.ledger.draw(draws).await.is_err() {
            let (mut queue, now) = (self.queue(), Instant::now());
            queue.store_unavailable(now);
            for (charge, credit) in &credits {
                queue.credit(charge, *credit, now);
            }
        }
    }
}
