//! The settler: records the ends of runs.
//!
//! It has no timer: whatever gathered while the previous flush ran goes out as the next. A store
//! that is away is waited for; nothing is dropped but what was lost or can never be recorded.

use std::sync::Arc;

use longshore_core::store::{Finish, Finished};
use longshore_core::{Error, Failure, Outcome, UnitState};

use crate::backoff::Backoff;
use crate::handler::Commit;
use crate::held::Settling;
use crate::station::Station;

/// Ends per call: bounds a transaction.
const MOST: usize = 2_000;

/// Settles until the task is dropped.
pub(crate) async fn settle(station: Arc<Station>) {
    loop {
        // Whatever is about to end on this thread ends first and comes along; with nothing else to
        // run this costs no time.
        tokio::task::yield_now().await;
        let batch = station.desk.take_answers(MOST);
        if batch.is_empty() {
            station.desk.outcomes.notified().await;
        } else {
            flush(&station, batch).await;
        }
    }
}

async fn flush(station: &Station, batch: Vec<Settling>) {
    if let Some(refused) = record(station, batch).await {
        // One of them spoils the call: each on its own.
        for settling in refused {
            settle_alone(station, settling).await;
        }
    }
}

/// Records one end; if the store will not have it, a failure that says so instead.
async fn settle_alone(station: &Station, settling: Settling) {
    let Some(mut refused) = record(station, vec![settling]).await else {
        return;
    };
    let Some(settling) = refused.pop() else {
        return;
    };
    if settling.replaced {
        tracing::error!(unit = %settling.lease.unit, "the unit's end cannot be recorded");
        station.stats.on_lost(1);
        return station.desk.settled([settling.lease]);
    }
    station.desk.answer_again(replacement(settling));
}

fn replacement(refused: Settling) -> Settling {
    let outcome = match refused.outcome {
        // The reason was put there by `record`.
        Outcome::Fail(failure) => Outcome::Fail(failure),
        _ => Outcome::Fail(Failure::new("refused", "the store refused the unit's outcome")),
    };
    Settling { outcome, commit: only_calls(refused.commit), replaced: true, ..refused }
}

/// What was paid for is written whatever becomes of the run, unless it was the calls themselves
/// that cannot be written.
fn only_calls(commit: Commit) -> Commit {
    let sound = commit.calls.into_iter().filter(|record| record.check().is_ok());
    Commit { calls: sound.collect(), ..Commit::default() }
}

/// Records a batch, however long the store is away. Returns the batch if the store refuses it for
/// good, each with the reason as its failure where it stood alone.
async fn record(station: &Station, mut batch: Vec<Settling>) -> Option<Vec<Settling>> {
    let mut backoff = Backoff::store();
    loop {
        // What went with its session was counted as lost then.
        batch.retain(|settling| station.desk.holds(settling.lease));
        let session = station.desk.session().filter(|_| !batch.is_empty())?;
        station.stats.on_flush();
        let finishes = batch.iter().map(Finish::from).collect();
        match station.store().finish(session, finishes).await {
            Ok(answers) => {
                station.store_answered();
                recorded(station, batch, answers);
                return None;
            }
            Err(Error::SessionGone(_)) => {
                station.session_gone(session);
                return None;
            }
            Err(error) if error.is_retryable() => {
                station.store_failed(&error);
                backoff.wait().await;
            }
            Err(error) if !is_about_units(&error) => {
                // Somebody must look at the store; the work is done and is not thrown away.
                let units = batch.len();
                tracing::error!(%error, units, "the store cannot record these ends, trying again");
                backoff.wait().await;
            }
            Err(error) => {
                tracing::warn!(%error, units = batch.len(), "the store refuses these ends");
                if let [settling] = &mut *batch {
                    settling.outcome = Outcome::Fail(Failure::new("refused", error.to_string()));
                }
                return Some(batch);
            }
        }
    }
}

/// Whether the store refuses what was said, so that saying something else may help.
fn is_about_units(error: &Error) -> bool {
    matches!(
        error,
        Error::Invalid(_)
            | Error::TooLarge { .. }
            | Error::Unsupported(_)
            | Error::UnitRefuses(_)
            | Error::BatchRefuses(_)
            | Error::NotFound { .. }
    )
}

fn recorded(station: &Station, batch: Vec<Settling>, answers: Vec<Finished>) {
    let mut gone = Vec::with_capacity(batch.len());
    for (settling, answer) in batch.into_iter().zip(answers) {
        match answer {
            Finished::Recorded(state) => {
                station.stats.on_recorded(&settling.outcome, state);
                if state == UnitState::Scheduled {
                    station.scheduled.notify_one();
                }
                gone.push(settling.lease);
            }
            Finished::LeaseLost => {
                tracing::warn!(unit = %settling.lease.unit, "the unit was taken away meanwhile");
                // Unless it went with its session, and was counted then.
                station.stats.on_lost(usize::from(station.desk.holds(settling.lease)));
                gone.push(settling.lease);
            }
            Finished::EffectFailed(failure) => {
                let outcome = Outcome::Retry { failure, after: None };
                let commit = only_calls(settling.commit);
                station.desk.answer_again(Settling { outcome, commit, ..settling });
            }
        }
    }
    station.desk.settled(gone);
}

impl From<&Settling> for Finish {
    fn from(settling: &Settling) -> Self {
        Self {
            lease: settling.lease,
            outcome: settling.outcome.clone(),
            effects: settling.commit.effects.clone(),
            checkpoint: settling.commit.checkpoint.clone(),
            calls: settling.commit.calls.clone(),
        }
    }
}
