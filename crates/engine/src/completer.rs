//! The completer records the outcomes of runs.
//!
//! It has no timer: outcomes that arrive during one call to the store are sent together in the
//! next. While the store is unavailable it retries. It drops an outcome only if the lease is lost
//! or the store can never record it.

use std::sync::Arc;

use longshore_core::call::CallRecord;
use longshore_core::store::{FinishRequest, FinishResult};
use longshore_core::{Error, Failure, Outcome, UnitState};

use crate::backoff::Backoff;
use crate::handler::Commit;
use crate::unit_table::Completion;
use crate::worker_inner::WorkerInner;

/// Outcomes per call; bounds the transaction.
const MAX_BATCH: usize = 2_000;

/// Records outcomes until the task is dropped.
pub(crate) async fn run(worker: Arc<WorkerInner>) {
    loop {
        // Runs that are about to end on this thread end first and join the batch; with nothing else
        // to run the yield costs no time.
        tokio::task::yield_now().await;
        let batch = worker.table.take_completions(MAX_BATCH);
        if batch.is_empty() {
            worker.table.completions_ready.notified().await;
        } else {
            flush(&worker, batch).await;
        }
    }
}

async fn flush(worker: &WorkerInner, batch: Vec<Completion>) {
    if let Some(refused) = record(worker, batch).await {
        // One outcome makes the store reject the call: record each alone.
        for completion in refused {
            record_alone(worker, completion).await;
        }
    }
}

/// Records one outcome. If the store rejects it, queues a failure with the store's reason instead.
async fn record_alone(worker: &WorkerInner, completion: Completion) {
    let Some(mut refused) = record(worker, vec![completion]).await else {
        return;
    };
    let Some(completion) = refused.pop() else {
        return;
    };
    if completion.is_replacement {
        tracing::error!(unit = %completion.lease.unit, "the unit's outcome cannot be recorded");
        worker.stats.on_lost(1);
        return worker.table.remove([completion.lease]);
    }
    worker.table.requeue_completion(replacement(completion));
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

/// Records a batch, retrying while the store is unavailable. Returns the batch if the store rejects
/// it permanently; a single outcome is then replaced by a failure with the reason.
async fn record(worker: &WorkerInner, mut batch: Vec<Completion>) -> Option<Vec<Completion>> {
    let mut backoff = Backoff::store();
    loop {
        // Units of a voided session were counted as lost when it was voided.
        batch.retain(|completion| worker.table.contains(completion.lease));
        let session = worker.table.session().filter(|_| !batch.is_empty())?;
        worker.stats.on_flush();
        let finishes = batch.iter().map(FinishRequest::from).collect();
        match worker.store().finish(session, finishes).await {
            Ok(answers) => {
                worker.store_answered();
                apply_results(worker, batch, answers);
                return None;
            }
            Err(Error::SessionGone(_)) => {
                worker.session_gone(session);
                return None;
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
                return Some(batch);
            }
        }
    }
}

fn apply_results(worker: &WorkerInner, batch: Vec<Completion>, answers: Vec<FinishResult>) {
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
                let outcome = Outcome::Retry { failure, after: None };
                let commit = calls_only(completion.commit);
                worker.table.requeue_completion(Completion { outcome, commit, ..completion });
            }
        }
    }
    worker.table.remove(finished);
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
