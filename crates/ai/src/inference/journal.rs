//! Write-behind journal for calls that belong to no unit. Keeps their order.
//!
//! Gateway callers do not wait for the disk. Calls are buffered for a few milliseconds and written
//! together; a call that ends within that time is written as one row instead of two. If the process
//! is killed, the calls that were written as started become "maybe billed" with its session, and at
//! most the calls buffered during that time and one write are lost.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foldhash::HashMap;
use longshore::CallId;
use longshore::accounts::{CallRecord, Calls};
use tokio::sync::Notify;

/// Buffered calls above which callers wait for the writer.
const MAX_BUFFERED: usize = 100_000;

/// How long calls are buffered before they are written. Short compared with a model's answer, so
/// that hardly any call is in flight without a record; long compared with a commit, so that many
/// calls share one.
const FLUSH_DELAY: Duration = Duration::from_millis(5);

/// Delay before a failed write is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Calls on their way to the ledger.
pub(super) struct Journal {
    ledger: Arc<dyn Calls>,
    buffer: Mutex<Buffer>,
    added: Notify,
    /// Signals that something was written: there may be capacity, or nothing left.
    written: Notify,
}

#[derive(Default)]
struct Buffer {
    records: Vec<CallRecord>,
    /// The position of each call in `records`.
    positions: HashMap<CallId, usize>,
    /// Records of the write in progress. Kept until it succeeds, because the writer's future may be
    /// dropped before that.
    writing: Vec<CallRecord>,
}

impl Buffer {
    /// Adds a record, or replaces the earlier record of the same call.
    fn put(&mut self, record: CallRecord) {
        let position = *self.positions.entry(record.call.id).or_insert(self.records.len());
        match self.records.get_mut(position) {
            Some(earlier) => *earlier = record,
            None => self.records.push(record),
        }
    }

    /// Whether everything is written.
    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.writing.is_empty()
    }
}

impl Journal {
    pub(super) fn new(ledger: Arc<dyn Calls>) -> Self {
        let buffer = Mutex::default();
        Self { ledger, buffer, added: Notify::new(), written: Notify::new() }
    }

    /// Buffers a call's record.
    pub(super) fn append(&self, record: CallRecord) {
        self.buffer().put(record);
        self.added.notify_one();
    }

    /// Waits while the buffer is full.
    pub(super) async fn capacity(&self) {
        loop {
            let written = self.written.notified();
            if self.buffer().records.len() < MAX_BUFFERED {
                return;
            }
            written.await;
        }
    }

    /// Writes buffered records until dropped. If an earlier run was dropped during a write, its
    /// records are written again; the write is idempotent.
    pub(super) async fn run(&self) {
        loop {
            if self.buffer().is_empty() {
                self.added.notified().await;
                continue;
            }
            tokio::time::sleep(FLUSH_DELAY).await;
            self.begin_write();
            self.write().await;
        }
    }

    /// Writes the records of the write in progress. If the ledger rejects several records, they are
    /// written in halves, so that only the records that it rejects by themselves are dropped.
    async fn write(&self) {
        let mut max = usize::MAX;
        loop {
            let records: Vec<_> = self.buffer().writing.iter().take(max).cloned().collect();
            let Some(call) = records.first().map(|record| record.call.id) else { return };
            let calls = records.len();
            match self.ledger.record_calls(records).await {
                Ok(()) => self.end_write(calls),
                Err(error) if error.is_retryable() => {
                    tracing::warn!(%error, calls, "writing calls to the ledger failed");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                Err(error) if calls == 1 => {
                    tracing::error!(%error, %call, "a call was dropped: the ledger rejected it");
                    self.end_write(calls);
                    max = usize::MAX;
                }
                Err(_) => max = calls / 2,
            }
        }
    }

    /// Waits until all buffered records are written.
    pub(super) async fn flush(&self) {
        loop {
            let written = self.written.notified();
            tokio::pin!(written);
            written.as_mut().enable();
            if self.buffer().is_empty() {
                return;
            }
            written.await;
        }
    }

    /// Starts to write all buffered records, unless an interrupted write comes first.
    fn begin_write(&self) {
        let Buffer { records, positions, writing } = &mut *self.buffer();
        if writing.is_empty() {
            positions.clear();
            std::mem::swap(records, writing);
        }
    }

    /// The first `calls` records of the write in progress are written or dropped.
    fn end_write(&self, calls: usize) {
        self.buffer().writing.drain(..calls);
        self.written.notify_waiters();
    }

    fn buffer(&self) -> std::sync::MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
