//! The heartbeat: one per worker. It renews the session, applies orders and cancellations from the
//! store, and opens a new session after one was ended.
//!
//! It waits for nothing but its own calls to the store: neither handlers nor the completer can
//! delay it. `heartbeat_thread` decides where it runs.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::store::{FinishRequest, Heartbeat, HeartbeatReply};
use longshore_core::worker_session::{Lease, WorkerCommand};
use longshore_core::{Error, Outcome, Result, SessionId};
use tokio::time::timeout;

use crate::backoff::Backoff;
use crate::cpu::cpu_time;
use crate::randomness::new_session_id;
use crate::worker_inner::{StoreCall, WorkerInner};

/// Beats until the task is dropped.
pub(crate) async fn run(worker: Arc<WorkerInner>) {
    let every = interval(worker.settings.ttl);
    let backoff = Backoff::store();
    let mut heartbeat = HeartbeatLoop { worker, every, surplus_beats: 0, pending_order: None, backoff };
    let mut wait = every;
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep(wait) => {}
            () = heartbeat.worker.session_ended.notified() => {}
        }
        wait = match heartbeat.worker.table.session() {
            Some(session) => heartbeat.beat(session).await,
            None => heartbeat.reopen_session().await,
        };
    }
}

/// Six beats per ttl, so that five may be missed; between 1 and 5 s where the ttl allows it.
fn interval(ttl: Duration) -> Duration {
    let least = Duration::from_secs(1).min(ttl / 4);
    (ttl / 6).clamp(least, Duration::from_secs(5))
}

struct HeartbeatLoop {
    worker: Arc<WorkerInner>,
    every: Duration,
    /// Consecutive beats at which the store counted more leases than the unit table.
    surplus_beats: u32,
    /// An operator's order to the previous session that the current session does not have yet.
    pending_order: Option<WorkerCommand>,
    backoff: Backoff,
}

impl HeartbeatLoop {
    /// Beats once. Returns the wait until the next beat.
    async fn beat(&mut self, session: SessionId) -> Duration {
        let worker = Arc::clone(&self.worker);
        let known = worker.table.len();
        self.reapply_order(session).await;
        let progress = worker.table.take_progress();
        // While the unit table may lack leases, the store searches all of them; but not at the cost of the next beat.
        let may_differ = worker.may_leases_differ() || self.surplus_beats > 0;
        let count_all = may_differ && self.backoff.tries() == 0;
        let leases = (!count_all).then(|| worker.table.leases());
        let beat = Heartbeat { cpu: cpu_time(), progress: progress.clone(), leases };
        // A beat without an answer, as on a connection that was cut, is repeated before the ttl has passed.
        let limit = worker.settings.ttl / 3;
        let late = |_| Err(Error::timed_out(format!("no answer to a heartbeat within {limit:?}")));
        match timeout(limit, worker.store().heartbeat(session, beat)).await.unwrap_or_else(late) {
            Ok(answer) => {
                worker.store_answered(StoreCall::Session);
                self.backoff.reset();
                self.apply_answer(session, answer, known).await;
                self.every
            }
            Err(Error::SessionGone(_)) => {
                worker.session_gone(session);
                Duration::ZERO
            }
            Err(error) => {
                worker.table.restore_progress(progress);
                worker.store_failed(StoreCall::Session, &error);
                self.backoff.next_wait().min(self.every)
            }
        }
    }

    /// Applies an operator's order to the new session too, until the operator lifts it.
    async fn reapply_order(&mut self, session: SessionId) {
        if let Some(order) = self.pending_order
            // Bounded: it must not delay the next beat.
            && let Ok(Ok(())) = timeout(self.every, self.worker.store().command_worker(session, order)).await
        {
            self.pending_order = None;
        }
    }

    async fn apply_answer(&mut self, session: SessionId, answer: HeartbeatReply, count_before: usize) {
        let worker = Arc::clone(&self.worker);
        if self.pending_order.is_none() {
            worker.control.set_operator_order(answer.order);
        }
        worker.table.cancel_runs(&answer.cancel);
        let mut returned = worker.table.take_prefetched_of(&answer.to_release);
        returned.extend(worker.table.take_prefetched_of(&answer.cancel));
        if !returned.is_empty() {
            // Bounded: releasing must not delay the next beat.
            let _ = timeout(self.every, worker.release(returned)).await;
        }
        let known = count_before.max(worker.table.len());
        let more = usize::try_from(answer.held).unwrap_or(usize::MAX) > known;
        self.surplus_beats = if more { self.surplus_beats + 1 } else { 0 };
        if self.surplus_beats >= 2 {
            let _ = timeout(self.every, self.return_unknown_leases(session)).await;
        }
    }

    /// Returns leases that the store counts and the unit table does not have: the response to a
    /// claim was lost, or the completer gave a lease up.
    async fn return_unknown_leases(&mut self, session: SessionId) {
        let worker = Arc::clone(&self.worker);
        // During a claim its units would look unknown. The next beat tries again.
        let Ok(_no_claim) = worker.claiming.try_lock() else {
            return;
        };
        match unknown_leases(&worker, session).await {
            Ok(leases) if leases.is_empty() => self.surplus_beats = 0,
            Ok(leases) => {
                tracing::warn!(units = leases.len(), "returning units that this worker does not run");
                if let Err(error) = release_or_interrupt(&worker, session, leases).await {
                    tracing::debug!(%error, "cannot return the units yet");
                }
            }
            Err(error) => tracing::debug!(%error, "cannot compare leases yet"),
        }
    }

    /// Opens a new session after the last one was ended.
    async fn reopen_session(&mut self) -> Duration {
        let session = new_session_id();
        match self.worker.store().open_session(self.worker.new_session(session)).await {
            Ok(()) => {
                self.worker.store_answered(StoreCall::Session);
                self.backoff.reset();
                let order = self.worker.control.operator_order();
                self.pending_order = Some(order).filter(|order| *order > WorkerCommand::Work);
                self.worker.table.set_session(session);
                self.reapply_order(session).await;
                self.every
            }
            Err(error) => {
                self.worker.store_failed(StoreCall::Session, &error);
                self.backoff.next_wait()
            }
        }
    }
}

/// Leases that the store has and the unit table had neither before nor after the query.
async fn unknown_leases(worker: &WorkerInner, session: SessionId) -> Result<Vec<Lease>> {
    let mut known: HashSet<Lease> = worker.table.leases().into_iter().collect();
    let held = worker.store().leases_of(session).await?;
    known.extend(worker.table.leases());
    Ok(held.into_iter().filter(|lease| !known.contains(lease)).collect())
}

/// Releases unstarted units; units that the session still holds afterwards had been started and are
/// interrupted.
async fn release_or_interrupt(worker: &WorkerInner, session: SessionId, leases: Vec<Lease>) -> Result<()> {
    let store = worker.store();
    store.release(session, &leases).await?;
    let still: HashSet<Lease> = store.leases_of(session).await?.into_iter().collect();
    let interrupted = |lease| FinishRequest::new(lease, Outcome::Interrupted);
    let finishes: Vec<FinishRequest> =
        leases.into_iter().filter(|lease| still.contains(lease)).map(interrupted).collect();
    if !finishes.is_empty() {
        store.finish(session, finishes).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_beats_fit_into_every_ttl() {
        let seconds = |ttl| interval(Duration::from_secs(ttl)).as_secs_f64();
        assert_eq!(seconds(15), 2.5);
        assert_eq!(seconds(60), 5.0);
        assert_eq!(seconds(3), 0.75);
        assert_eq!(seconds(1), 0.25);
    }
}
