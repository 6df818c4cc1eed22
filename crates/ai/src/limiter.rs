//! Limits that all processes share: waits, or refuses, until there is room in every bucket that a
//! question needs.
//!
//! Thin: how much a process holds of a bucket is in `chunk`, with the proof that no window exceeds the
//! limit and a burst; who waits for what is in `limiter/queue`. Here the store is asked, by one task per
//! limiter that lives as long as somebody waits or something is to be settled.

mod queue;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore::ledger::{Draw, Limits as Ledger};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use self::queue::{Queue, Step, Told};
use crate::chunk::{Measure, Need};
use crate::profile::WhenFull;

/// Why there was no room.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Full {
    /// A limit is reached.
    #[error("the limit `{bucket}` is reached")]
    Limit {
        /// Which.
        bucket: String,
        /// How long until there is room, as things stand.
        wait: Duration,
    },
    /// The deadline came first.
    #[error("there was no room before the deadline")]
    TooLate,
    /// The store that keeps the limits does not work.
    #[error("the limits cannot be read: {0}")]
    Store(String),
}

/// Takes from buckets that all processes share. Cheap to clone.
#[derive(Clone)]
pub struct Limiter {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    /// The task that asks the store. It ends with the limiter.
    tasks: Mutex<JoinSet<()>>,
}

struct Shared {
    ledger: Arc<dyn Ledger>,
    queue: Mutex<Queue>,
    /// Somebody came.
    news: Notify,
}

/// Room that was taken. Dropped, it stays charged as estimated: that is right for a question that was
/// sent and of which nothing more is known.
#[must_use = "what is not settled stays charged as estimated"]
pub struct Taken {
    inner: Arc<Inner>,
    needs: Arc<[Need]>,
}

/// The longest wait that is told where a limit is nothing at all.
const NEVER: Duration = Duration::from_secs(3600);

impl Limiter {
    /// A limiter that draws from this ledger.
    pub fn new(ledger: Arc<dyn Ledger>) -> Self {
        let shared = Shared { ledger, queue: Mutex::default(), news: Notify::new() };
        Self { inner: Arc::new(Inner { shared: Arc::new(shared), tasks: Mutex::default() }) }
    }

    /// Takes all that is needed, or nothing. Whoever came first is served first. With
    /// [`WhenFull::Wait`] it waits as long as there can be room before `until`. Cancel-safe: whoever
    /// leaves takes nothing.
    pub async fn take(
        &self,
        needs: impl Into<Arc<[Need]>>,
        until: Instant,
        when_full: WhenFull,
    ) -> Result<Taken, Full> {
        let needs = needs.into();
        let taken = Taken { inner: self.inner.clone(), needs: Arc::clone(&needs) };
        if needs.is_empty() {
            return Ok(taken);
        }
        if let Some(never) =
            needs.iter().find(|need| need.per_minute.is_nan() || need.per_minute <= 0.0)
        {
            return Err(Full::Limit { bucket: never.bucket.to_string(), wait: NEVER });
        }
        if self.inner.take_now(&needs) {
            return Ok(taken);
        }
        let mut waiting = self.inner.join(needs, until, when_full);
        let told = timeout_at(until, &mut waiting.told).await;
        waiting.done = told.is_ok();
        match told {
            Ok(Ok(told)) => told.map(|_| taken),
            Ok(Err(_)) => Err(Full::Store("the limiter was closed".into())),
            Err(_) => Err(Full::TooLate),
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").finish_non_exhaustive()
    }
}

impl Taken {
    /// Settles the tokens that a question really took: what was charged too much is given back, what was
    /// charged too little is taken, even where there is none left.
    pub fn settle(self, tokens: u64) {
        self.correct(|need| match need.measure {
            Measure::Requests => 0.0,
            Measure::Tokens => need.amount - tokens as f64,
        });
    }

    /// Gives all of it back: the question was never sent.
    pub fn give_back(self) {
        self.correct(|need| need.amount);
    }

    fn correct(&self, credit: impl Fn(&Need) -> f64) {
        let mut queue = self.inner.shared.queue();
        let now = Instant::now();
        let credits = self.needs.iter().map(|need| (need, credit(need)));
        let mut news = false;
        for (need, credit) in credits.filter(|(_, credit)| *credit != 0.0) {
            news |= queue.credit(need, credit, now);
        }
        self.inner.pump(queue, news);
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Taken").field(&self.needs).finish()
    }
}

/// Somebody who waits. Dropped before they heard, they leave the queue, or put back what was taken for
/// them.
struct Waiting<'a> {
    inner: &'a Inner,
    id: u64,
    told: oneshot::Receiver<Told>,
    done: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut queue = self.inner.shared.queue();
        let news = match self.told.try_recv() {
            Ok(Ok(held)) => {
                queue.put_back(held, Instant::now());
                false
            }
            Ok(Err(_)) => false,
            Err(_) => queue.leave(self.id),
        };
        drop(queue);
        if news {
            self.inner.shared.news.notify_one();
        }
    }
}

impl Inner {
    /// Takes all that is needed if it is there; or nothing.
    fn take_now(&self, needs: &[Need]) -> bool {
        let mut queue = self.shared.queue();
        let Some(news) = queue.take_now(needs, Instant::now()) else { return false };
        if news {
            self.pump(queue, news);
        }
        true
    }

    fn join(&self, needs: Arc<[Need]>, until: Instant, when_full: WhenFull) -> Waiting<'_> {
        let mut queue = self.shared.queue();
        let joined = queue.join(needs, until, when_full, Instant::now());
        self.pump(queue, joined.news);
        Waiting { inner: self, id: joined.id, told: joined.told, done: false }
    }

    /// Sees to it that somebody carries out what the queue needs, and hears of news.
    fn pump(&self, mut queue: MutexGuard<'_, Queue>, news: bool) {
        if queue.pumping {
            drop(queue);
            if news {
                self.shared.news.notify_one();
            }
        } else if !queue.is_idle() {
            queue.pumping = true;
            drop(queue);
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            while tasks.try_join_next().is_some() {}
            tasks.spawn(self.shared.clone().run());
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>) {
        loop {
            let step = self.queue().plan(Instant::now());
            match step {
                Step::Rest => return,
                Step::Wait(until) => tokio::select! {
                    () = sleep_until(until) => {}
                    () = self.news.notified() => {}
                },
                Step::Settle(credits) => self.settle(credits).await,
                Step::Draw(draws) => self.draw(draws).await,
            }
        }
    }

    async fn draw(&self, draws: Vec<Draw>) {
        let begun = Instant::now();
        let drawn = self.ledger.draw(draws.clone()).await;
        let (mut queue, now) = (self.queue(), Instant::now());
        match drawn {
            Ok(drawn) => queue.drew(&draws, &drawn, begun, now),
            Err(error) if error.is_retryable() => queue.away(now),
            Err(error) => queue.broken(&error.to_string()),
        }
    }

    async fn settle(&self, credits: Vec<(Need, f64)>) {
        let draws = credits.iter().map(|(need, credit)| need.settle(*credit)).collect();
        if self.ledger.draw(draws).await.is_err() {
            let (mut queue, now) = (self.queue(), Instant::now());
            queue.away(now);
            for (need, credit) in &credits {
                queue.credit(need, *credit, now);
            }
        }
    }
}
