//! Calls of no unit: written behind the caller's back, in the order in which they came.
//!
//! Whoever asks through the gateway does not wait for the disk. Calls are gathered for a moment and
//! written together; of one that is over by then, one row is written instead of two. A process that is
//! killed leaves the intents that were written (they become "maybe billed" with its session) and loses
//! at most what gathered for that moment and during one write.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foldhash::HashMap;
use longshore::CallId;
use longshore::ledger::{CallRecord, Calls};
use tokio::sync::Notify;

/// How many calls may wait to be written. Beyond it, whoever ends a call waits too.
const MOST: usize = 100_000;

/// How long calls gather before they are written. Short beside any model's answer, so that hardly one is
/// out without its intent on record; long beside a commit, which then costs many calls what it costs one.
const GATHER: Duration = Duration::from_millis(5);

/// How long a ledger that is away is left in peace.
const PAUSE: Duration = Duration::from_secs(1);

/// Calls on their way to the ledger.
pub(super) struct Journal {
    ledger: Arc<dyn Calls>,
    waiting: Mutex<Waiting>,
    news: Notify,
    /// Something was written: there may be room, or nothing left.
    written: Notify,
}

#[derive(Default)]
struct Waiting {
    records: Vec<CallRecord>,
    /// Where each is among them.
    places: HashMap<CallId, usize>,
    /// Kept until it is surely written: whoever writes may be dropped in the middle.
    writing: Vec<CallRecord>,
}

impl Waiting {
    /// Adds a record, or puts it in the place of an earlier one of the same call.
    fn put(&mut self, record: CallRecord) {
        let place = *self.places.entry(record.call.id).or_insert(self.records.len());
        match self.records.get_mut(place) {
            Some(earlier) => *earlier = record,
            None => self.records.push(record),
        }
    }

    /// Everything is written.
    fn is_over(&self) -> bool {
        self.records.is_empty() && self.writing.is_empty()
    }
}

impl Journal {
    pub(super) fn new(ledger: Arc<dyn Calls>) -> Self {
        let waiting = Mutex::default();
        Self { ledger, waiting, news: Notify::new(), written: Notify::new() }
    }

    /// Notes a call, or what it came to.
    pub(super) fn note(&self, record: CallRecord) {
        self.waiting().put(record);
        self.news.notify_one();
    }

    /// Waits while too much waits to be written.
    pub(super) async fn room(&self) {
        loop {
            let written = self.written.notified();
            if self.waiting().records.len() < MOST {
                return;
            }
            written.await;
        }
    }

    /// Writes for as long as it is awaited. What was being written when an earlier one was dropped is
    /// written again, which changes nothing if it was there already.
    pub(super) async fn run(&self) {
        loop {
            if self.waiting().is_over() {
                self.news.notified().await;
                continue;
            }
            tokio::time::sleep(GATHER).await;
            while let Err(error) = self.ledger.record_calls(self.take()).await {
                let calls = self.waiting().writing.len();
                tracing::warn!(%error, calls, "calls wait to be written");
                if !error.is_retryable() {
                    tracing::error!(%error, calls, "calls could not be written");
                    break;
                }
                tokio::time::sleep(PAUSE).await;
            }
            self.waiting().writing.clear();
            self.written.notify_waiters();
        }
    }

    /// Waits until everything noted so far is written.
    pub(super) async fn flushed(&self) {
        loop {
            let written = self.written.notified();
            tokio::pin!(written);
            written.as_mut().enable();
            if self.waiting().is_over() {
                return;
            }
            written.await;
        }
    }

    /// What is to be written now: what was taken before, or else all that waits.
    fn take(&self) -> Vec<CallRecord> {
        let Waiting { records, places, writing } = &mut *self.waiting();
        if writing.is_empty() {
            places.clear();
            std::mem::swap(records, writing);
        }
        writing.clone()
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
