//! Write-behind journal for calls that belong to no unit. Keeps their order.
//!
//! Gateway callers do not wait for the disk. Calls are buffered for a few milliseconds and written
//! together; a call that ends within that time is written as one row instead of two. If the process
//! is killed, the calls that were written as started become "maybe billed" with its session, and at
//! most the calls buffered during that time and one write are lost.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foldhash::HashMap;
use longshore::CallId;
use longshore::accounts::{CallRecord, Calls};
use longshore::batch_write::{AfterError, BatchTries};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::billing::recordable;

/// Buffered calls above which callers wait for the writer.
const MAX_BUFFERED: usize = 100_000;

/// Maximum records per write.
const MAX_BATCH: usize = 2_000;

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
    /// Records that the ledger does not accept alone, and does not reject for good. Retried while nothing else is to be
    /// written.
    stuck: VecDeque<CallRecord>,
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
        self.records.is_empty() && self.writing.is_empty() && self.stuck.is_empty()
    }
}

impl Journal {
    pub(super) fn new(ledger: Arc<dyn Calls>) -> Self {
        let buffer = Mutex::default();
        Self { ledger, buffer, added: Notify::new(), written: Notify::new() }
    }

    /// Buffers a call's record.
    pub(super) fn append(&self, record: CallRecord) {
        self.buffer().put(recordable(record));
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
            self.retry_stuck().await;
        }
    }

    /// Writes the records of the write in progress. A write that fails repeatedly, takes too long or is rejected is
    /// halved, so that one record does not block the others: a record that the ledger rejects by itself is dropped, and
    /// one that fails otherwise is retried later, because what was paid for must be recorded.
    async fn write(&self) {
        let (mut max, mut tries) = (MAX_BATCH, BatchTries::default());
        loop {
            let len = self.buffer().writing.len().min(max);
            let call_len = tries.call_len(len);
            let records: Vec<_> = self.buffer().writing.iter().take(call_len).cloned().collect();
            let Some(call) = records.first().map(|record| record.call.id) else { return };
            let Err(error) = self.ledger.record_calls(records).await else {
                self.end_write(call_len);
                // After a probe the ledger is available: the other records are written in halves.
                max = if call_len < len { (len / 2).max(1) } else { (max * 2).min(MAX_BATCH) };
                tries = BatchTries::default();
                continue;
            };
            if tries.is_probe(len) {
                self.buffer().writing[..len].rotate_left(1);
            }
            match tries.on_error(&error, len) {
                AfterError::Retry => {
                    tracing::warn!(%error, calls = len, "writing calls to the ledger failed");
                    tokio::time::sleep(RETRY_DELAY).await;
                    continue;
                }
                AfterError::Reject if len == 1 => {
                    tracing::error!(%error, %call, "a call was dropped: the ledger rejected it");
                    self.end_write(1);
                    max = MAX_BATCH;
                }
                AfterError::Halve if len == 1 => {
                    tracing::error!(%error, %call, "the ledger cannot record a call; retrying after others");
                    self.set_aside();
                    max = MAX_BATCH;
                }
                AfterError::Halve | AfterError::Reject => max = len / 2,
            }
            tries = BatchTries::default();
        }
    }

    /// Writes one record that the ledger did not accept before. The ledger keeps an end that was written meanwhile.
    async fn retry_stuck(&self) {
        let Some(record) = self.buffer().stuck.front().cloned() else { return };
        match self.ledger.record_calls(vec![record]).await {
            Err(error) if !error.is_final() => {
                tracing::debug!(%error, "the ledger still cannot record a call");
                self.buffer().stuck.rotate_left(1);
                tokio::time::sleep(RETRY_DELAY).await;
            }
            result => {
                if let Err(error) = result {
                    tracing::error!(%error, "a call was dropped: the ledger rejected it");
                }
                self.buffer().stuck.pop_front();
                self.written.notify_waiters();
            }
        }
    }

    /// Moves the first record of the write in progress behind all others.
    fn set_aside(&self) {
        let Buffer { writing, stuck, .. } = &mut *self.buffer();
        stuck.extend(writing.drain(..1));
    }

    /// Waits for a write from now on, which may release reservations.
    pub(super) fn next_write(&self) -> Notified<'_> {
        self.written.notified()
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
        let Buffer { records, positions, writing, .. } = &mut *self.buffer();
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

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use longshore::accounts::{
        Call, CallAdmission, CallEnd, CallStatus, CostCorrection, NewCall, Usage, UsageBy, UsageFilter,
    };
    use longshore::store::Page;
    use longshore::{Error, MemoryStore, ProfileName, Result, Scope, TenantId};

    use super::*;

    /// A ledger that fails its first writes with these errors, and rejects calls of tenant `rejected`. Writes with a call
    /// of tenant `locked` take too long so many times.
    #[derive(Default)]
    struct FaultyLedger {
        inner: MemoryStore,
        errors: Mutex<Vec<Error>>,
        locked: Mutex<u32>,
    }

    #[async_trait]
    impl Calls for FaultyLedger {
        async fn record_calls(&self, records: Vec<CallRecord>) -> Result<()> {
            let error = self.errors.lock().unwrap().pop();
            let rejected = records.iter().any(|record| record.call.tenant.as_str() == "rejected");
            let locked = records.iter().any(|record| record.call.tenant.as_str() == "locked");
            match error {
                Some(error) => Err(error),
                None if locked && self.is_locked() => Err(Error::timed_out("a row is locked")),
                None if rejected => Err(Error::Rejected { message: "22021".to_owned(), source: None }),
                None => self.inner.record_calls(records).await,
            }
        }

        async fn admit_calls(&self, calls: Vec<NewCall>) -> Result<Vec<CallAdmission>> {
            self.inner.admit_calls(calls).await
        }

        async fn calls(
            &self,
            scope: &Scope,
            filter: &UsageFilter,
            after: Option<&str>,
            limit: u32,
        ) -> Result<Page<Call>> {
            self.inner.calls(scope, filter, after, limit).await
        }

        async fn usage(&self, scope: &Scope, filter: &UsageFilter, by: UsageBy) -> Result<Vec<Usage>> {
            self.inner.usage(scope, filter, by).await
        }

        async fn correct_costs(&self, scope: &Scope, recosts: Vec<CostCorrection>) -> Result<()> {
            self.inner.correct_costs(scope, recosts).await
        }
    }

    impl FaultyLedger {
        fn is_locked(&self) -> bool {
            let mut left = self.locked.lock().unwrap();
            *left = left.saturating_sub(1);
            *left > 0
        }
    }

    fn record(tenant: &str, tokens_out: u64) -> CallRecord {
        let (tenant, profile) = (TenantId::new(tenant).unwrap(), ProfileName::new("main").unwrap());
        let end = CallEnd { tokens_out, ..CallEnd::new(CallStatus::Success, "small") };
        CallRecord { call: NewCall::new(tenant, profile, "echo", "small"), end: Some(end) }
    }

    /// Journals records on a ledger, and returns the calls that it has then.
    async fn journalled(errors: Vec<Error>, records: Vec<CallRecord>) -> Vec<Call> {
        let ledger = Arc::new(FaultyLedger { errors: Mutex::new(errors), ..FaultyLedger::default() });
        let journal = Journal::new(Arc::clone(&ledger) as _);
        records.into_iter().for_each(|record| journal.append(record));
        tokio::select! {
            () = journal.run() => {}
            () = journal.flush() => {}
        }
        ledger.calls(&Scope::All, &UsageFilter::default(), None, 100).await.unwrap().items
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_that_is_not_known_to_be_final_costs_no_record() {
        let errors = vec![
            Error::Broken { message: "28P01".to_owned(), source: None },
            Error::PermissionDenied { message: "token revoked".to_owned(), source: None },
            Error::Schema { found: 2, supported: 1 },
            Error::unavailable("58030"),
        ];
        let records = (0..3).map(|_| record("acme", 1)).collect();
        assert_eq!(journalled(errors, records).await.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_that_the_ledger_rejects_takes_no_other_of_its_write_with_it() {
        let tenants = ["a", "b", "rejected", "c", "d", "e", "rejected"];
        let records = tenants.map(|tenant| record(tenant, 1)).to_vec();
        let calls = journalled(Vec::new(), records).await;
        let mut stored: Vec<&str> = calls.iter().map(|call| call.call.tenant.as_str()).collect();
        stored.sort_unstable();
        assert_eq!(stored, ["a", "b", "c", "d", "e"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_that_the_ledger_cannot_write_now_blocks_no_other() {
        let ledger = Arc::new(FaultyLedger { locked: Mutex::new(u32::MAX), ..FaultyLedger::default() });
        let journal = Journal::new(Arc::clone(&ledger) as _);
        let count =
            async || ledger.calls(&Scope::All, &UsageFilter::default(), None, 100).await.unwrap().items.len();
        let written = async |expected: usize| {
            while count().await < expected {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let driver = async {
            for tenant in ["a", "b", "locked", "c", "d"] {
                journal.append(record(tenant, 1));
            }
            written(4).await;
            journal.append(record("e", 1));
            written(5).await;
            *ledger.locked.lock().unwrap() = 0;
            journal.flush().await;
            assert_eq!(count().await, 6);
        };
        tokio::select! {
            () = journal.run() => {}
            result = tokio::time::timeout(Duration::from_secs(600), driver) => result.unwrap(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_call_that_reserves_too_much_is_recorded_with_the_limit() {
        let mut open = record("acme", 0);
        (open.call.reserve_tokens, open.end) = (u64::MAX, None);
        let calls = journalled(Vec::new(), vec![open, record("other", 1)]).await;
        let reserved = calls.iter().map(|call| call.call.reserve_tokens).max();
        assert_eq!((calls.len(), reserved), (2, Some(1 << 40)));
    }
}
