//! Writes results to the store in batches. Two writes run concurrently, so that one is prepared
//! while the other is synced.
//!
//! While other tasks run, results are buffered for a moment: a commit per result would cost more
//! than all other work, and the workers are busy meanwhile. The last result is written at once, and
//! so is the result of a single script, because a client may wait for it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use longshore::store::{FinishRequest, FinishResult};
use longshore::worker_session::Lease;
use longshore::{Backoff, Error, Failure, Outcome, SessionId, Store};
use tokio::time::Instant;

use super::core::next_or_pending;
use crate::scheduler::WorkerKey;

/// Maximum results per write.
const MAX_BATCH: usize = 1000;
/// Maximum concurrent writes.
const MAX_CONCURRENT_WRITES: usize = 2;
/// How long results are buffered while other tasks run.
const BATCH_DELAY: Duration = Duration::from_millis(100);

/// A result, and the worker to notify once it is recorded.
pub(super) struct PendingResult {
    pub(super) lease: Lease,
    pub(super) worker: Option<(WorkerKey, Lease)>,
}

/// Result of a write.
pub(super) struct WriteReport {
    pub(super) results: Vec<(PendingResult, FinishResult)>,
    pub(super) session_gone: bool,
}

/// Results on their way into the store.
pub(super) struct ResultWriter {
    store: Arc<dyn Store>,
    session: SessionId,
    buffer: Vec<(FinishRequest, PendingResult)>,
    /// When the buffer is to be written.
    due: Option<Instant>,
    pending: HashSet<Lease>,
    writes: FuturesUnordered<BoxFuture<'static, WriteReport>>,
}

impl ResultWriter {
    pub(super) fn new(store: Arc<dyn Store>, session: SessionId) -> Self {
        Self {
            store,
            session,
            buffer: Vec::new(),
            due: None,
            pending: HashSet::new(),
            writes: FuturesUnordered::new(),
        }
    }

    pub(super) fn push(&mut self, finish: FinishRequest, worker: Option<(WorkerKey, Lease)>) {
        let result = PendingResult { lease: finish.lease, worker };
        self.pending.extend(worker.map(|(_, worker_lease)| worker_lease));
        self.buffer.push((finish, result));
        self.due.get_or_insert_with(|| Instant::now() + BATCH_DELAY);
    }

    /// Writes the buffer at the next opportunity.
    pub(super) fn flush_soon(&mut self) {
        self.due = self.due.map(|_| Instant::now());
    }

    /// Whether the result of the task with this worker lease is buffered or being written.
    pub(super) fn is_pending(&self, worker_lease: Lease) -> bool {
        self.pending.contains(&worker_lease)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.writes.is_empty()
    }

    /// Writes the buffer if it is due or full.
    pub(super) fn flush_due(&mut self) {
        let delayed = self.due.is_some_and(|due| Instant::now() < due);
        if !delayed || self.buffer.len() >= MAX_BATCH {
            self.flush();
        }
    }

    /// Writes the buffer, as far as concurrent writes are available.
    pub(super) fn flush(&mut self) {
        while self.writes.len() < MAX_CONCURRENT_WRITES && !self.buffer.is_empty() {
            self.due = None;
            let count = self.buffer.len().min(MAX_BATCH);
            let results: Vec<(FinishRequest, PendingResult)> = self.buffer.drain(..count).collect();
            self.writes.push(Box::pin(write_batch(Arc::clone(&self.store), self.session, results)));
        }
        if !self.buffer.is_empty() {
            self.due.get_or_insert_with(Instant::now);
        }
    }

    /// The report of a finished write; `None` if the buffer is due.
    pub(super) async fn next(&mut self) -> Option<WriteReport> {
        let due = self.due.filter(|_| self.writes.len() < MAX_CONCURRENT_WRITES);
        let report = tokio::select! {
            report = next_or_pending(&mut self.writes) => report,
            () = sleep_until_due(due) => return None,
        };
        for (result, _) in &report.results {
            if let Some((_, worker_lease)) = result.worker {
                self.pending.remove(&worker_lease);
            }
        }
        Some(report)
    }
}

async fn sleep_until_due(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn write_batch(
    store: Arc<dyn Store>,
    session: SessionId,
    results: Vec<(FinishRequest, PendingResult)>,
) -> WriteReport {
    let (finishes, pending_results): (Vec<FinishRequest>, Vec<PendingResult>) = results.into_iter().unzip();
    let mut backoff = Backoff::store();
    loop {
        match store.finish(session, finishes.clone()).await {
            Ok(answers) => {
                let results = pending_results.into_iter().zip(answers).collect();
                return WriteReport { results, session_gone: false };
            }
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, "writing results failed; retrying");
                backoff.wait().await;
            }
            Err(Error::SessionGone(_)) => {
                let lost =
                    pending_results.into_iter().map(|result| (result, FinishResult::LeaseLost)).collect();
                return WriteReport { results: lost, session_gone: true };
            }
            Err(error) if finishes.len() == 1 => {
                tracing::error!(%error, "a result cannot be written; failing its unit");
                let failure = Failure::new("unrecordable", error.to_string());
                let fallback = vec![FinishRequest::new(finishes[0].lease, Outcome::Fail(failure))];
                let answer = store.finish(session, fallback).await.ok().and_then(|mut all| all.pop());
                let answer = answer.unwrap_or(FinishResult::LeaseLost);
                let results = pending_results.into_iter().map(|result| (result, answer.clone())).collect();
                return WriteReport { results, session_gone: false };
            }
            Err(error) => {
                tracing::warn!(%error, "writing results one by one");
                return write_individually(&store, session, finishes, pending_results).await;
            }
        }
    }
}

async fn write_individually(
    store: &Arc<dyn Store>,
    session: SessionId,
    finishes: Vec<FinishRequest>,
    pending_results: Vec<PendingResult>,
) -> WriteReport {
    let mut all = WriteReport { results: Vec::new(), session_gone: false };
    for result in finishes.into_iter().zip(pending_results) {
        let report = Box::pin(write_batch(Arc::clone(store), session, vec![result])).await;
        all.results.extend(report.results);
        all.session_gone |= report.session_gone;
    }
    all
}
