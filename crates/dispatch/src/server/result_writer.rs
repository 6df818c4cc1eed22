//! Writes results to the store in batches. Two writes run concurrently, so that one is prepared
//! while the other is synced.
//!
//! While other tasks run, results are buffered for a moment: a commit per result would cost more
//! than all other work, and the workers are busy meanwhile. The last result is written at once, and
//! so is the result of a single script, because a client may wait for it.
//!
//! Results of a write that took too long, was rejected or failed repeatedly are written beside the others, half as many
//! at a time. So a result that the store cannot record, or a locked row, delays only itself.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use longshore::batch_write::{AfterError, BatchTries, batch_len};
use longshore::store::{FinishRequest, FinishResult};
use longshore::worker_session::Lease;
use longshore::{Backoff, Error, Failure, Outcome, SessionId, Store};
use tokio::time::Instant;

use super::core::next_or_pending;
use crate::scheduler::WorkerKey;

/// Maximum results per write.
const MAX_BATCH: usize = 1000;
/// Maximum concurrent writes of new results.
const MAX_CONCURRENT_WRITES: usize = 2;
/// How long results are buffered while other tasks run.
const BATCH_DELAY: Duration = Duration::from_millis(100);
/// How often a result that the store does not record is reported.
const STUCK_REPORT_INTERVAL: Duration = Duration::from_secs(60);

type Results = Vec<(FinishRequest, PendingResult)>;

/// A result, and the worker to notify once it is recorded.
pub(super) struct PendingResult {
    pub(super) lease: Lease,
    pub(super) worker: Option<(WorkerKey, Lease)>,
}

/// Result of a write.
#[derive(Default)]
pub(super) struct WriteReport {
    pub(super) results: Vec<(PendingResult, FinishResult)>,
    pub(super) session_gone: bool,
    /// Results to write beside others, half as many at a time.
    unwritten: Results,
    is_slow: bool,
}

/// Results on their way into the store.
pub(super) struct ResultWriter {
    store: Arc<dyn Store>,
    session: SessionId,
    buffer: Results,
    /// When the buffer is to be written.
    due: Option<Instant>,
    pending: HashSet<Lease>,
    writes: FuturesUnordered<BoxFuture<'static, WriteReport>>,
    /// Results that were not written together, for one write at a time beside the others.
    slow: VecDeque<Results>,
    slow_write: bool,
    slow_backoff: Backoff,
    stuck_reported: Option<Instant>,
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
            slow: VecDeque::new(),
            slow_write: false,
            slow_backoff: Backoff::store(),
            stuck_reported: None,
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
        self.buffer.is_empty() && self.writes.is_empty() && self.slow.is_empty()
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
        while self.has_free_write() && !self.buffer.is_empty() {
            self.due = None;
            let sizes = self.buffer.iter().map(|(finish, _)| finish.byte_size());
            let count = batch_len(sizes, MAX_BATCH);
            let results: Results = self.buffer.drain(..count).collect();
            self.writes.push(Box::pin(write_batch(Arc::clone(&self.store), self.session, results)));
        }
        if !self.buffer.is_empty() {
            self.due.get_or_insert_with(Instant::now);
        }
    }

    fn has_free_write(&self) -> bool {
        self.writes.len() - usize::from(self.slow_write) < MAX_CONCURRENT_WRITES
    }

    /// The report of a finished write; `None` if the buffer is due.
    pub(super) async fn next(&mut self) -> Option<WriteReport> {
        self.write_slow();
        let due = self.due.filter(|_| self.has_free_write());
        let mut report = tokio::select! {
            report = next_or_pending(&mut self.writes) => report,
            () = sleep_until_due(due) => return None,
        };
        for (result, _) in &report.results {
            if let Some((_, worker_lease)) = result.worker {
                self.pending.remove(&worker_lease);
            }
        }
        self.slow_write &= !report.is_slow;
        self.on_unwritten(std::mem::take(&mut report.unwritten), report.is_slow);
        self.write_slow();
        Some(report)
    }

    fn on_unwritten(&mut self, mut first: Results, is_slow: bool) {
        if is_slow && first.is_empty() {
            self.slow_backoff.reset();
        }
        if is_slow && let [(finish, _)] = &*first {
            self.report_stuck(finish.lease);
        }
        let second = first.split_off(first.len().div_ceil(2));
        self.slow.extend([first, second].into_iter().filter(|half| !half.is_empty()));
    }

    fn report_stuck(&mut self, lease: Lease) {
        if self.stuck_reported.is_some_and(|at| at.elapsed() < STUCK_REPORT_INTERVAL) {
            return;
        }
        self.stuck_reported = Some(Instant::now());
        let (unit, waiting) = (lease.unit, self.slow.iter().map(Vec::len).sum::<usize>());
        tracing::error!(%unit, waiting, "the store cannot record the result of a script; retrying beside others");
    }

    /// Begins the next write of results that were not written together. A lone one waits first.
    fn write_slow(&mut self) {
        if self.slow_write {
            return;
        }
        let Some(results) = self.slow.pop_front() else { return };
        let wait = if results.len() == 1 { self.slow_backoff.next_wait() } else { Duration::ZERO };
        let (store, session) = (Arc::clone(&self.store), self.session);
        self.slow_write = true;
        self.writes.push(Box::pin(async move {
            tokio::time::sleep(wait).await;
            WriteReport { is_slow: true, ..write_batch(store, session, results).await }
        }));
    }
}

async fn sleep_until_due(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn write_batch(store: Arc<dyn Store>, session: SessionId, mut batch: Results) -> WriteReport {
    let (mut backoff, mut tries, mut replaced) = (Backoff::store(), BatchTries::default(), false);
    loop {
        let len = tries.call_len(batch.len());
        let finishes = batch[..len].iter().map(|(finish, _)| finish.clone()).collect();
        let error = match store.finish(session, finishes).await {
            Ok(answers) => {
                let unwritten = batch.split_off(len);
                return write_report(batch, answers, unwritten);
            }
            Err(Error::SessionGone(_)) => return WriteReport { session_gone: true, ..lost(batch) },
            Err(error) => error,
        };
        if tries.is_probe(batch.len()) {
            batch.rotate_left(1);
        }
        match (tries.on_error(&error, batch.len()), &mut *batch) {
            (AfterError::Retry, _) => {
                tracing::warn!(%error, results = batch.len(), "writing results failed; retrying");
                backoff.wait().await;
            }
            (AfterError::Reject, [(finish, _)]) if !replaced => {
                tracing::error!(%error, "a result cannot be written; failing its unit");
                let failure = Failure::new("unrecordable", error.to_string());
                *finish = FinishRequest::new(finish.lease, Outcome::Fail(failure));
                replaced = true;
            }
            (AfterError::Reject, [_]) => {
                tracing::error!(%error, "the failure of a unit cannot be written");
                return lost(batch);
            }
            (AfterError::Halve | AfterError::Reject, _) => {
                tracing::warn!(%error, results = batch.len(), "writing these results beside others, half as many at a time");
                return WriteReport { unwritten: batch, ..WriteReport::default() };
            }
        }
    }
}

/// Results that the store deferred or could not lock are written again.
fn write_report(batch: Results, answers: Vec<FinishResult>, unwritten: Results) -> WriteReport {
    let mut report = WriteReport { unwritten, ..WriteReport::default() };
    for ((finish, result), answer) in batch.into_iter().zip(answers) {
        match answer {
            FinishResult::Deferred | FinishResult::Locked => report.unwritten.push((finish, result)),
            answer => report.results.push((result, answer)),
        }
    }
    report
}

fn lost(batch: Results) -> WriteReport {
    let results = batch.into_iter().map(|(_, result)| (result, FinishResult::LeaseLost)).collect();
    WriteReport { results, ..WriteReport::default() }
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
        let mut writer = ResultWriter::new(store, session);
        writer.buffer = results.collect();
        writer.flush();
        let mut answers = std::collections::BTreeMap::new();
        while !writer.is_empty() {
            let report = writer.next().await.unwrap();
            answers.extend(report.results.into_iter().map(|(result, answer)| (result.lease.unit, answer)));
        }
        let mut ends = Vec::new();
        for held in &claimed {
            let unit = memory.unit(&Scope::All, held.lease.unit).await.unwrap();
            ends.push((unit.state, unit.failure));
        }
        (claimed.iter().map(|held| answers[&held.lease.unit].clone()).collect(), ends)
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

    #[tokio::test(start_paused = true)]
    async fn writes_that_take_too_long_are_halved_and_delay_no_other_result() {
        // The write of all, its first half, and its second half.
        let faults = [1, 2, 3].map(|nth| (nth, Fault::TimeOut));
        let (answers, ends) = write(&faults, vec![Outcome::Done(None); 5]).await;
        assert!(
            answers.iter().all(|answer| *answer == FinishResult::Recorded(UnitState::Done)),
            "{answers:?}"
        );
        assert!(ends.iter().all(|(state, _)| *state == UnitState::Done), "{ends:?}");
    }
}
