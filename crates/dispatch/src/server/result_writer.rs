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
    let (mut finishes, pending_results): (Vec<FinishRequest>, Vec<PendingResult>) =
        results.into_iter().unzip();
    let mut backoff = Backoff::store();
    let mut replaced = false;
    loop {
        match store.finish(session, finishes.clone()).await {
            Ok(answers) => {
                let results = pending_results.into_iter().zip(answers).collect();
                return WriteReport { results, session_gone: false };
            }
            Err(Error::SessionGone(_)) => {
                let lost =
                    pending_results.into_iter().map(|result| (result, FinishResult::LeaseLost)).collect();
                return WriteReport { results: lost, session_gone: true };
            }
            Err(error) if !error.is_final() => {
                tracing::warn!(%error, results = finishes.len(), "writing results failed; retrying");
                backoff.wait().await;
            }
            Err(error) if finishes.len() > 1 => {
                tracing::warn!(%error, "writing results one by one");
                return write_individually(&store, session, finishes, pending_results).await;
            }
            Err(error) if !replaced => {
                tracing::error!(%error, "a result cannot be written; failing its unit");
                let failure = Failure::new("unrecordable", error.to_string());
                finishes = vec![FinishRequest::new(finishes[0].lease, Outcome::Fail(failure))];
                replaced = true;
            }
            Err(error) => {
                tracing::error!(%error, "the failure of a unit cannot be written");
                let lost =
                    pending_results.into_iter().map(|result| (result, FinishResult::LeaseLost)).collect();
                return WriteReport { results: lost, session_gone: false };
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

#[cfg(test)]
mod tests {
    use longshore::store::ClaimRequest;
    use longshore::worker_session::NewSession;
    use longshore::{
        Enqueue as _, Kind, MemoryStore, NewUnit, Payload, Queries as _, Scope, UnitState, WorkerApi as _,
    };
    use longshore_testkit::{Fault, FaultyStore};

    use super::*;

    /// Writes a result for each unit through a store with these faults, and returns the units' states.
    async fn write(
        faults: &[(u64, Fault)],
        outcomes: Vec<Outcome>,
    ) -> (Vec<FinishResult>, Vec<(UnitState, Option<Failure>)>) {
        let memory = Arc::new(MemoryStore::default());
        let (session, kind) = (SessionId::new(), Kind::new("script").unwrap());
        memory.open_session(NewSession::new(session, "test")).await.unwrap();
        let units = outcomes.iter().map(|_| NewUnit::new(kind.clone(), Payload::from(b"1".to_vec())));
        memory.send(&Scope::All, units.collect()).await.unwrap();
        let slots = u32::try_from(outcomes.len()).unwrap();
        let claim = ClaimRequest { free_slots: slots, ..ClaimRequest::new(session, vec![kind], slots) };
        let claimed = memory.claim(claim).await.unwrap().units;
        let results = claimed.iter().zip(outcomes).map(|(held, outcome)| {
            let result = PendingResult { lease: held.lease, worker: None };
            (FinishRequest::new(held.lease, outcome), result)
        });
        let store = FaultyStore::new(Arc::clone(&memory) as _);
        let plan = |store: FaultyStore, (nth, fault): &(u64, Fault)| store.with_fault("finish", *nth, *fault);
        let store = Arc::new(faults.iter().fold(store, plan));
        let report = write_batch(store, session, results.collect()).await;
        let mut ends = Vec::new();
        for held in &claimed {
            let unit = memory.unit(&Scope::All, held.lease.unit).await.unwrap();
            ends.push((unit.state, unit.failure));
        }
        (report.results.into_iter().map(|(_, answer)| answer).collect(), ends)
    }

    /// A result that no store accepts.
    fn too_large() -> Outcome {
        Outcome::Done(Some(Payload::from(vec![b'1'; 64 << 20])))
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_that_is_not_known_to_be_final_does_not_cost_a_result() {
        let faults = [(1, Fault::BrokenStream), (2, Fault::FailBefore), (3, Fault::BrokenStream)];
        let (answers, ends) = write(&faults, vec![Outcome::Done(None), Outcome::Done(None)]).await;
        assert_eq!(
            answers,
            [FinishResult::Recorded(UnitState::Done), FinishResult::Recorded(UnitState::Done)]
        );
        assert!(ends.iter().all(|(state, _)| *state == UnitState::Done), "{ends:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_that_is_refused_fails_its_unit_even_if_the_store_is_away_at_that_moment() {
        // The batch, its first result, its second, and the failure in its place.
        let faults = [(4, Fault::BrokenStream), (5, Fault::FailBefore)];
        let (answers, ends) = write(&faults, vec![Outcome::Done(None), too_large()]).await;
        assert_eq!(answers[1], FinishResult::Recorded(UnitState::Failed));
        assert_eq!(ends[0].0, UnitState::Done);
        let (state, failure) = &ends[1];
        assert_eq!((*state, failure.as_ref().unwrap().code.as_str()), (UnitState::Failed, "unrecordable"));
    }
}
