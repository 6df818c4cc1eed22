//! The completer records the outcomes of runs.
//!
//! It has no timer: outcomes that arrive during one call to the store are sent together in the
//! next. While the store is unavailable it retries. Outcomes of a call that took too long, was rejected or fails while
//! the store records others are retried beside the others, half as many at a time, so that a slow or unrecordable one
//! delays only itself: outcomes that are alone are retried beside each other. It drops an outcome only if the lease is
//! lost or the store can never record it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use longshore_core::batch_write::{AfterError, BatchTries};
use longshore_core::call::CallRecord;
use longshore_core::effect_budget::EFFECT_TIMEOUT;
use longshore_core::store::{FinishRequest, FinishResult};
use longshore_core::{Error, Failure, Outcome, UnitState};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::bounded_pool::ServiceAlert;
use crate::handler::Commit;
use crate::service_alerts::ServiceAlerts;
use crate::unit_table::Completion;
use crate::worker_inner::{StoreCall, WorkerInner};

/// Outcomes per call; bounds the transaction.
const MAX_BATCH: usize = 2_000;

/// For how long an outcome that the store does not record alone is retried.
const LONE_RETRY_TIME: Duration = Duration::from_secs(15 * 60);
/// An outcome is given up only after so many tries failed while the store worked.
const MIN_FAILED_ALONE: u32 = 3;

/// Calls for outcomes that are alone, at once. Each may take as long as the store's time limit, so one call at a time would
/// let a few slow outcomes delay all others.
const MAX_LONE_CALLS: usize = 4;

/// The first and the longest wait between two calls for an outcome that is alone. There may be thousands in an outage.
const LONE_RETRY_WAIT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// Outcomes to retry beside others.
type SlowBatches = mpsc::UnboundedSender<Unrecorded>;

/// Records outcomes until the task is dropped.
pub(crate) async fn run(worker: Arc<WorkerInner>) {
    let (slow, slow_batches) = mpsc::unbounded_channel();
    let (alone, lone_outcomes) = mpsc::unbounded_channel();
    tokio::join!(
        record_new(&worker, &slow),
        halve_slow(&worker, &slow, slow_batches, &alone),
        retry_lone(&worker, lone_outcomes),
    );
}

async fn record_new(worker: &WorkerInner, slow: &SlowBatches) {
    let (mut max_batch, mut calls) = (MAX_BATCH, Calls::new(true, Backoff::store(), 1));
    loop {
        // Runs that are about to end on this thread end first and join the batch; with nothing else
        // to run the yield costs no time.
        tokio::task::yield_now().await;
        let batch = worker.table.take_completions(max_batch);
        if batch.is_empty() {
            worker.table.completions_ready.notified().await;
            continue;
        }
        let count = batch.len();
        let recorded = record(worker, batch, &mut calls).await;
        // Without an answer, the outage goes on for the next batch.
        if !recorded.as_ref().is_err_and(|unrecorded| unrecorded.is_unanswered(count)) {
            worker.store_answered(StoreCall::Finish);
        }
        match recorded {
            Ok(()) => max_batch = (max_batch * 2).min(MAX_BATCH),
            Err(unrecorded) => {
                if unrecorded.cause == Cause::TimedOut && unrecorded.batch.len() == count {
                    max_batch = (count / 2).max(1);
                }
                // The receiver lives as long as this task.
                let _ = slow.send(unrecorded);
            }
        }
    }
}

/// Halves slow batches until the outcome that makes them slow is alone.
async fn halve_slow(
    worker: &WorkerInner,
    slow: &SlowBatches,
    mut slow_batches: mpsc::UnboundedReceiver<Unrecorded>,
    alone: &mpsc::UnboundedSender<LoneOutcome>,
) {
    let mut calls = Calls::new(false, Backoff::store(), 1);
    while let Some(Unrecorded { batch: mut first, .. }) = slow_batches.recv().await {
        let second = first.split_off(first.len().div_ceil(2));
        if second.is_empty() {
            let lone = first.into_iter().map(|completion| LoneOutcome::new(worker, completion));
            lone.for_each(|lone| drop(alone.send(lone)));
            continue;
        }
        for half in [first, second] {
            if let Err(unrecorded) = record(worker, half, &mut calls).await {
                // The receiver lives as long as this task.
                let _ = slow.send(unrecorded);
            }
        }
    }
}

/// Retries lone outcomes beside each other, each for [`LONE_RETRY_TIME`].
async fn retry_lone(worker: &WorkerInner, mut alone: mpsc::UnboundedReceiver<LoneOutcome>) {
    let alerts = Arc::new(ServiceAlerts::new(Arc::clone(&worker.settings.alerts)));
    let backoff = Backoff::new(LONE_RETRY_WAIT.0, LONE_RETRY_WAIT.1);
    let (calls, mut retries) = (Calls::new(false, backoff, MAX_LONE_CALLS), FuturesUnordered::new());
    loop {
        tokio::select! {
            biased;
            Some(()) = retries.next() => {}
            Some(lone) = alone.recv() => retries.push(retry_until_recorded(worker, &alerts, calls.clone(), lone)),
        }
    }
}

async fn retry_until_recorded(
    worker: &WorkerInner,
    alerts: &Arc<ServiceAlerts>,
    mut calls: Calls,
    mut lone: LoneOutcome,
) {
    loop {
        calls.backoff.wait().await;
        let Err(Unrecorded { batch, cause }) = record(worker, vec![lone.completion], &mut calls).await else {
            return;
        };
        let mut left = batch.into_iter();
        let retried = left.next().and_then(|one| lone.history.retry_or_give_up(worker, alerts, one, cause));
        let Some(retried) = retried else { return };
        lone = retried;
    }
}

/// An outcome that the store does not record alone.
struct LoneOutcome {
    completion: Completion,
    history: LoneHistory,
}

/// What tells an outage of the store from an outcome that it cannot record.
#[derive(Clone, Copy)]
struct LoneHistory {
    /// Since when the time of the retries counts.
    since: Instant,
    /// How many outcomes the worker had recorded when this one was first alone.
    recorded_before: u64,
    /// The numbers at the last try: outcomes that the worker recorded, and calls that the store answered.
    recorded: u64,
    answers: u64,
    /// How many tries failed although the store worked since the try before.
    failed_alone: u32,
}

impl LoneOutcome {
    fn new(worker: &WorkerInner, completion: Completion) -> Self {
        let (recorded, answers) = (worker.stats.recorded(), worker.store_answers());
        let history = LoneHistory {
            since: Instant::now(),
            recorded_before: recorded,
            recorded,
            answers,
            failed_alone: 0,
        };
        Self { completion, history }
    }
}

impl LoneHistory {
    /// Retries an outcome that failed again, until [`LONE_RETRY_TIME`] has passed. If the store has recorded other
    /// outcomes meanwhile, this one is the cause, and a failure replaces it: a smaller one, which uses an attempt, so
    /// that the unit does not run for ever. If not, or if the failure takes as long, the lease is given up: the next
    /// heartbeats return it to the store, and the unit runs again with another fence.
    ///
    /// In an outage the time begins anew, and the lease is not given up. The store works if it recorded another outcome
    /// between two tries or, for calls that took too long, if it answered a claim or a heartbeat. Other errors may let
    /// a heartbeat pass, as those of a full disk.
    fn retry_or_give_up(
        self,
        worker: &WorkerInner,
        alerts: &Arc<ServiceAlerts>,
        completion: Completion,
        cause: Cause,
    ) -> Option<LoneOutcome> {
        let (now, unit) = (Instant::now(), completion.lease.unit);
        let (recorded, answers) = (worker.stats.recorded(), worker.store_answers());
        let spent = LONE_RETRY_TIME.as_secs() / 60;
        let alert = |then: &str| {
            let message =
                format!("the store could not record the outcome of unit {unit} for {spent} minutes: {then}");
            alerts.raise(ServiceAlert { service: "completer", message });
        };
        let works = recorded > self.recorded || (cause != Cause::Failed && answers > self.answers);
        let mut history =
            Self { recorded, answers, failed_alone: self.failed_alone + u32::from(works), ..self };
        if now - history.since < LONE_RETRY_TIME {
            return Some(LoneOutcome { completion, history });
        }
        if history.failed_alone < MIN_FAILED_ALONE {
            alert("the worker tries again");
            history.since = now;
            return Some(LoneOutcome { completion, history });
        }
        let is_cause = recorded > self.recorded_before && !completion.is_replacement;
        if is_cause {
            let (code, message) = match cause {
                Cause::Failed => ("unrecordable", "the store could not record the unit's outcome"),
                _ => ("finish-timeout", "the store could not record the unit's outcome in time"),
            };
            alert(&format!("it fails with `{code}`"));
            let outcome = Outcome::Retry { failure: Failure::new(code, message), after: None };
            let commit = calls_only(completion.commit);
            let completion = Completion { outcome, commit, is_replacement: true, ..completion };
            return Some(LoneOutcome::new(worker, completion));
        }
        alert("it runs again");
        give_up(worker, &completion);
        None
    }
}

/// Gives up the lease of an outcome that cannot be recorded.
fn give_up(worker: &WorkerInner, completion: &Completion) {
    worker.stats.on_lost(1);
    worker.table.remove([completion.lease]);
    worker.leases_may_differ();
}

/// Queues a failure with the store's reason instead of an outcome that the store rejects.
fn replace(worker: &WorkerInner, rejected: Completion) {
    if rejected.is_replacement {
        tracing::error!(unit = %rejected.lease.unit, "the unit's outcome cannot be recorded");
        return give_up(worker, &rejected);
    }
    worker.table.requeue_completion(replacement(rejected));
}

fn replacement(refused: Completion) -> Completion {
    let outcome = match refused.outcome {
        // `record` put the store's reason here.
        Outcome::Fail(failure) => Outcome::Fail(failure),
        _ => Outcome::Fail(Failure::new("refused", "the store refused the unit's outcome")),
    };
    Completion { outcome, commit: calls_only(refused.commit), is_replacement: true, ..refused }
}

/// Keeps only the call records: what was paid for is recorded whatever the run's outcome is. Numbers
/// that the store would reject become the largest that it accepts.
fn calls_only(commit: Commit) -> Commit {
    let calls = commit.calls.into_iter().map(CallRecord::clamped);
    Commit { calls: calls.collect(), ..Commit::default() }
}

/// Outcomes that were not recorded.
struct Unrecorded {
    batch: Vec<Completion>,
    cause: Cause,
}

impl Unrecorded {
    /// Whether all calls for a batch of `count` outcomes failed.
    fn is_unanswered(&self, count: usize) -> bool {
        self.cause == Cause::Failed && self.batch.len() == count
    }
}

/// Why outcomes were not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The store rejects one or more of several outcomes.
    Rejected,
    /// The call took too long, or effects of these wait for a lock.
    TimedOut,
    /// Calls failed repeatedly, or the store recorded another outcome of the batch meanwhile.
    Failed,
}

/// How outcomes of one origin are recorded.
#[derive(Clone)]
struct Calls {
    /// They come from runs, and were not tried before.
    is_new: bool,
    backoff: Backoff,
    /// Bounds the calls at once.
    slots: Arc<Semaphore>,
}

impl Calls {
    fn new(is_new: bool, backoff: Backoff, slots: usize) -> Self {
        Self { is_new, backoff, slots: Arc::new(Semaphore::new(slots)) }
    }
}

/// Records a batch, retrying while the store is unavailable. A lone outcome that the store rejects is replaced. The
/// waits between tries grow until an outcome is recorded, over batches.
async fn record(
    worker: &WorkerInner,
    mut batch: Vec<Completion>,
    calls: &mut Calls,
) -> Result<(), Unrecorded> {
    let mut tries = BatchTries::default();
    loop {
        // Nothing closes the semaphore.
        let slot = calls.slots.acquire().await;
        // Units of a voided session were counted as lost when it was voided.
        batch.retain(|completion| worker.table.contains(completion.lease));
        let Some(session) = worker.table.session().filter(|_| !batch.is_empty()) else { return Ok(()) };
        worker.stats.on_flush();
        let len = tries.call_len(batch.len());
        let finishes = batch[..len].iter().map(FinishRequest::from).collect();
        let result = worker.store().finish(session, finishes).await;
        drop(slot);
        let error = match result {
            Ok(answers) => {
                calls.backoff.reset();
                worker.store_answered(StoreCall::Finish);
                let others = batch.split_off(len);
                let locked = apply_results(worker, batch, answers);
                return match (others.is_empty(), locked.is_empty()) {
                    (true, true) => Ok(()),
                    (true, false) => Err(Unrecorded { batch: locked, cause: Cause::TimedOut }),
                    (false, _) => {
                        let batch = others.into_iter().chain(locked).collect();
                        Err(Unrecorded { batch, cause: Cause::Failed })
                    }
                };
            }
            Err(Error::SessionGone(_)) => {
                worker.session_gone(session);
                return Ok(());
            }
            Err(error) => error,
        };
        if tries.is_probe(batch.len()) {
            batch.rotate_left(1);
        }
        match tries.on_error(&error, batch.len()) {
            AfterError::Retry => {
                warn_failed(worker, &batch, &error, calls.is_new);
                calls.backoff.wait().await;
            }
            AfterError::Halve => {
                if matches!(error, Error::TimedOut { .. }) {
                    warn_slow(&batch, &error);
                    return Err(Unrecorded { batch, cause: Cause::TimedOut });
                }
                return Err(Unrecorded { batch, cause: Cause::Failed });
            }
            AfterError::Reject => {
                tracing::warn!(%error, units = batch.len(), "the store rejected these outcomes");
                if batch.len() > 1 {
                    return Err(Unrecorded { batch, cause: Cause::Rejected });
                }
                for mut completion in batch {
                    completion.outcome = Outcome::Fail(Failure::new("refused", error.to_string()));
                    replace(worker, completion);
                }
                return Ok(());
            }
        }
    }
}

/// New outcomes tell whether the store is available; others fail for reasons of their own.
fn warn_failed(worker: &WorkerInner, batch: &[Completion], error: &Error, is_new: bool) {
    let units = batch.len();
    match error.is_retryable() {
        true if is_new => worker.store_failed(StoreCall::Finish, error),
        true => tracing::debug!(%error, units, "cannot record these outcomes yet"),
        // An operator must repair the store; the outcomes are kept until then.
        false => tracing::error!(%error, units, "the store cannot record these outcomes; retrying"),
    }
}

fn warn_slow(batch: &[Completion], error: &Error) {
    if let [Completion { lease, commit, .. }] = batch {
        let (unit, effects) = (lease.unit, commit.effects.len());
        tracing::warn!(%error, %unit, effects, "recording the outcome of this unit takes too long; retrying");
    } else {
        let units = batch.len();
        tracing::warn!(%error, units, "recording these outcomes takes too long; retrying with half as many");
    }
}

/// Returns the outcomes with effects that wait for a lock.
fn apply_results(
    worker: &WorkerInner,
    batch: Vec<Completion>,
    answers: Vec<FinishResult>,
) -> Vec<Completion> {
    let mut locked = Vec::new();
    let mut finished = Vec::with_capacity(batch.len());
    for (completion, answer) in batch.into_iter().zip(answers) {
        match answer {
            FinishResult::Recorded(state) => {
                worker.stats.on_recorded(&completion.outcome, state);
                if state == UnitState::Scheduled {
                    worker.scheduled.notify_one();
                }
                finished.push(completion.lease);
            }
            FinishResult::LeaseLost => {
                let unit = completion.lease.unit;
                tracing::warn!(%unit, "lease lost before the outcome was recorded");
                // Counts it unless `void_session` already did.
                worker.stats.on_lost(usize::from(worker.table.contains(completion.lease)));
                finished.push(completion.lease);
            }
            FinishResult::EffectFailed(failure) => {
                if failure.code == EFFECT_TIMEOUT {
                    tracing::warn!(unit = %completion.lease.unit, %failure, "an effect of this unit is too slow");
                }
                let outcome = Outcome::Retry { failure, after: None };
                let commit = calls_only(completion.commit);
                worker.table.requeue_completion(Completion { outcome, commit, ..completion });
            }
            FinishResult::Deferred => worker.table.defer_completion(completion),
            FinishResult::Locked => locked.push(completion),
        }
    }
    worker.table.remove(finished);
    locked
}

impl From<&Completion> for FinishRequest {
    fn from(completion: &Completion) -> Self {
        Self {
            lease: completion.lease,
            outcome: completion.outcome.clone(),
            effects: completion.commit.effects.clone(),
            checkpoint: completion.commit.checkpoint.clone(),
            calls: completion.commit.calls.clone(),
        }
    }
}
