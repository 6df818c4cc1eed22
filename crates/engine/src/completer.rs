//! The completer records the outcomes of runs.
//!
//! It has no timer: outcomes that arrive during one call to the store are sent together in the
//! next. While the store is unavailable it retries. Outcomes of a call that took too long are
//! retried beside the others, half as many at a time, so that a slow one delays only itself. It drops
//! an outcome only if the lease is lost or the store can never record it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::call::CallRecord;
use longshore_core::effect_budget::EFFECT_TIMEOUT;
use longshore_core::store::{FinishRequest, FinishResult};
use longshore_core::{Error, Failure, Outcome, UnitState};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::bounded_pool::ServiceAlert;
use crate::handler::Commit;
use crate::service_alerts::ServiceAlerts;
use crate::unit_table::Completion;
use crate::worker_inner::WorkerInner;

/// Outcomes per call; bounds the transaction.
const MAX_BATCH: usize = 2_000;

/// For how long an outcome that takes too long alone is retried.
const LONE_RETRY_TIME: Duration = Duration::from_secs(15 * 60);

/// Outcomes of a call that took too long.
type SlowBatches = mpsc::UnboundedSender<Vec<Completion>>;

/// Records outcomes until the task is dropped.
pub(crate) async fn run(worker: Arc<WorkerInner>) {
    let (slow, slow_batches) = mpsc::unbounded_channel();
    tokio::join!(record_new(&worker, &slow), retry_slow(&worker, &slow, slow_batches));
}

async fn record_new(worker: &WorkerInner, slow: &SlowBatches) {
    let mut max_batch = MAX_BATCH;
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
        match flush(worker, batch).await {
            Ok(()) => max_batch = (max_batch * 2).min(MAX_BATCH),
            Err(timed_out) => {
                if timed_out.len() == count {
                    max_batch = (count / 2).max(1);
                }
                // The receiver lives as long as this task.
                let _ = slow.send(timed_out);
            }
        }
    }
}

/// Halves slow batches until the outcome that makes them slow is alone. It is then retried while there is no other, for
/// [`LONE_RETRY_TIME`].
async fn retry_slow(
    worker: &WorkerInner,
    slow: &SlowBatches,
    mut slow_batches: mpsc::UnboundedReceiver<Vec<Completion>>,
) {
    let (mut alone, mut backoff) = (VecDeque::<LoneOutcome>::new(), Backoff::store());
    let alerts = Arc::new(ServiceAlerts::new(Arc::clone(&worker.settings.alerts)));
    loop {
        let wait_to_retry = async {
            match alone.is_empty() {
                true => std::future::pending().await,
                false => backoff.wait().await,
            }
        };
        let mut first = tokio::select! {
            biased;
            Some(batch) = slow_batches.recv() => batch,
            () = wait_to_retry => {
                let Some(lone) = alone.pop_front() else { continue };
                match flush(worker, vec![lone.completion]).await {
                    Ok(()) => backoff.reset(),
                    Err(timed_out) => alone.extend(
                        timed_out.into_iter().filter_map(|one| lone.history.retry_or_give_up(worker, &alerts, one)),
                    ),
                }
                continue;
            }
        };
        let second = first.split_off(first.len().div_ceil(2));
        for half in [first, second].into_iter().filter(|half| !half.is_empty()) {
            match flush(worker, half).await {
                Ok(()) => backoff.reset(),
                Err(timed_out) if timed_out.len() == 1 => {
                    alone.extend(timed_out.into_iter().map(|one| LoneOutcome::new(worker, one)));
                }
                Err(timed_out) => drop(slow.send(timed_out)),
            }
        }
    }
}

/// An outcome that takes too long alone.
struct LoneOutcome {
    completion: Completion,
    history: LoneHistory,
}

/// When an outcome was first alone, and how many outcomes the worker had recorded by then.
#[derive(Clone, Copy)]
struct LoneHistory {
    since: Instant,
    recorded: u64,
}

impl LoneOutcome {
    fn new(worker: &WorkerInner, completion: Completion) -> Self {
        let history = LoneHistory { since: Instant::now(), recorded: worker.stats.recorded() };
        Self { completion, history }
    }
}

impl LoneHistory {
    /// Retries an outcome that took too long again, until [`LONE_RETRY_TIME`] has passed. If the store has recorded other
    /// outcomes meanwhile, this one is the cause, and a failure replaces it: a smaller one, which uses an attempt, so
    /// that the unit does not run for ever. If not, or if the failure takes as long, the lease is given up: the next
    /// heartbeats return it to the store, and the unit runs again with another fence.
    fn retry_or_give_up(
        self,
        worker: &WorkerInner,
        alerts: &Arc<ServiceAlerts>,
        completion: Completion,
    ) -> Option<LoneOutcome> {
        if self.since.elapsed() < LONE_RETRY_TIME {
            return Some(LoneOutcome { completion, history: self });
        }
        let (unit, spent) = (completion.lease.unit, LONE_RETRY_TIME.as_secs() / 60);
        let is_cause = worker.stats.recorded() > self.recorded && !completion.is_replacement;
        let then = if is_cause { "it fails with `finish-timeout`" } else { "it runs again" };
        let message =
            format!("the store could not record the outcome of unit {unit} for {spent} minutes: {then}");
        alerts.raise(ServiceAlert { service: "completer", message });
        if is_cause {
            let failure =
                Failure::new("finish-timeout", "the store could not record the unit's outcome in time");
            let outcome = Outcome::Retry { failure, after: None };
            let commit = calls_only(completion.commit);
            let completion = Completion { outcome, commit, is_replacement: true, ..completion };
            return Some(LoneOutcome::new(worker, completion));
        }
        worker.stats.on_lost(1);
        worker.table.remove([completion.lease]);
        worker.leases_may_differ();
        None
    }
}

/// Records a batch. Returns the outcomes of a call that took too long.
async fn flush(worker: &WorkerInner, batch: Vec<Completion>) -> Result<(), Vec<Completion>> {
    let rejected = match record(worker, batch).await {
        Ok(()) => return Ok(()),
        Err(Unrecorded::TimedOut(batch)) => return Err(batch),
        Err(Unrecorded::Rejected(batch)) => batch,
    };
    // One outcome makes the store reject the call: record each alone.
    let mut timed_out = Vec::new();
    for completion in rejected {
        match record(worker, vec![completion]).await {
            Ok(()) => {}
            Err(Unrecorded::TimedOut(alone)) => timed_out.extend(alone),
            Err(Unrecorded::Rejected(alone)) => alone.into_iter().for_each(|one| replace(worker, one)),
        }
    }
    if timed_out.is_empty() { Ok(()) } else { Err(timed_out) }
}

/// Queues a failure with the store's reason instead of an outcome that the store rejects.
fn replace(worker: &WorkerInner, rejected: Completion) {
    if rejected.is_replacement {
        tracing::error!(unit = %rejected.lease.unit, "the unit's outcome cannot be recorded");
        worker.stats.on_lost(1);
        return worker.table.remove([rejected.lease]);
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

/// Outcomes that a call did not record.
enum Unrecorded {
    /// The store rejects the call permanently; the outcome of a single one is replaced by a failure with the reason.
    Rejected(Vec<Completion>),
    /// The call took too long, or effects of these wait for a lock.
    TimedOut(Vec<Completion>),
}

/// Records a batch, retrying while the store is unavailable.
async fn record(worker: &WorkerInner, mut batch: Vec<Completion>) -> Result<(), Unrecorded> {
    let mut backoff = Backoff::store();
    loop {
        // Units of a voided session were counted as lost when it was voided.
        batch.retain(|completion| worker.table.contains(completion.lease));
        let Some(session) = worker.table.session().filter(|_| !batch.is_empty()) else { return Ok(()) };
        worker.stats.on_flush();
        let finishes = batch.iter().map(FinishRequest::from).collect();
        match worker.store().finish(session, finishes).await {
            Ok(answers) => {
                worker.store_answered();
                let locked = apply_results(worker, batch, answers);
                return if locked.is_empty() { Ok(()) } else { Err(Unrecorded::TimedOut(locked)) };
            }
            Err(Error::SessionGone(_)) => {
                worker.session_gone(session);
                return Ok(());
            }
            Err(error @ Error::TimedOut { .. }) => {
                warn_slow(&batch, &error);
                return Err(Unrecorded::TimedOut(batch));
            }
            Err(error) if error.is_retryable() => {
                worker.store_failed(&error);
                backoff.wait().await;
            }
            Err(error) if !error.is_final() => {
                // An operator must repair the store; the outcomes are kept until then.
                let units = batch.len();
                tracing::error!(%error, units, "the store cannot record these outcomes; retrying");
                backoff.wait().await;
            }
            Err(error) => {
                tracing::warn!(%error, units = batch.len(), "the store rejected these outcomes");
                if let [completion] = &mut *batch {
                    completion.outcome = Outcome::Fail(Failure::new("refused", error.to_string()));
                }
                return Err(Unrecorded::Rejected(batch));
            }
        }
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
