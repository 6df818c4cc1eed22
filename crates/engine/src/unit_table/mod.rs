//! The unit table: every unit that a worker holds, from claim to recorded outcome, under one lock.
//!
//! It keeps the free slots and each unit's stage, and makes all transitions between stages. It
//! calls neither the store nor handlers: fetcher, executor, completer and heartbeat ask it what to
//! do next and report what they did.

mod claims;
mod runs;
mod state;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use longshore_core::batch_write::{batch_len, finish_bytes};
use longshore_core::store::LeasedUnit;
use longshore_core::worker_session::Lease;
use longshore_core::{Outcome, SessionId};
use tokio::sync::Notify;
use tracing::Span;

use crate::context::CancelReason;
use crate::handler::Commit;
pub(crate) use claims::ClaimReservation;
use state::{Stage, State, UnitEntry};

/// A leased unit. Boxed, because it is large and moved often.
pub(crate) type BoxedUnit = Box<LeasedUnit>;

/// The units that a worker holds.
pub(crate) struct UnitTable {
    state: Mutex<State>,
    /// Wakes the fetcher: a claim may succeed now.
    pub(crate) claim_hint: Notify,
    /// Wakes the fetcher: slots are free with an empty prefetch buffer, or a heavy unit may fit
    /// now.
    pub(crate) slots_freed: Notify,
    /// Wakes the executor: a unit can be started or run.
    pub(crate) runnable: Notify,
    /// Wakes the completer: there are completions.
    pub(crate) completions_ready: Notify,
    /// Wakes tasks that wait for the table to become idle.
    recheck_idle: Notify,
}

/// A run's outcome on its way to the store.
#[derive(Debug, Clone)]
pub(crate) struct Completion {
    pub(crate) lease: Lease,
    pub(crate) outcome: Outcome,
    pub(crate) commit: Commit,
    /// The store rejected the handler's own outcome and this one replaces it.
    pub(crate) is_replacement: bool,
    /// Closes when the outcome is recorded or lost.
    #[expect(dead_code, reason = "closes the span on drop")]
    pub(crate) finish_span: Span,
}

impl Completion {
    fn byte_size(&self) -> usize {
        let Commit { effects, checkpoint, calls } = &self.commit;
        finish_bytes(&self.outcome, effects, checkpoint.as_ref(), calls)
    }
}

impl UnitTable {
    pub(crate) fn new(slots: u32, resources: BTreeMap<String, u32>) -> Self {
        Self {
            state: Mutex::new(State::new(slots, resources)),
            claim_hint: Notify::new(),
            slots_freed: Notify::new(),
            runnable: Notify::new(),
            completions_ready: Notify::new(),
            recheck_idle: Notify::new(),
        }
    }

    /// Limits the worker to `limit` slots. Runs above the limit may finish.
    pub(crate) fn resize(&self, limit: u32) {
        let mut state = self.state();
        state.limit = limit.clamp(1, state.slots);
        drop(state);
        self.claim_hint.notify_one();
        self.slots_freed.notify_one();
        self.runnable.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that holds the leases.
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.state().session
    }

    /// Sets the session after it was opened.
    pub(crate) fn set_session(&self, session: SessionId) {
        self.state().session = Some(session);
        self.claim_hint.notify_one();
    }

    /// The number of units held.
    pub(crate) fn len(&self) -> usize {
        self.state().units.len()
    }

    /// The leases of all units held.
    pub(crate) fn leases(&self) -> Vec<Lease> {
        self.state().units.values().map(|entry| entry.lease).collect()
    }

    /// Whether no unit is held and no claim is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.state().is_idle()
    }

    /// Returns once no unit is held and no claim is in flight.
    pub(crate) async fn wait_idle(&self) {
        self.wait_until(State::is_idle).await;
    }

    /// Returns once no handler runs.
    pub(crate) async fn wait_no_runs(&self) {
        self.wait_until(|state| state.running == 0 && state.started.is_empty() && state.waiting.is_empty())
            .await;
    }

    async fn wait_until(&self, reached: impl Fn(&State) -> bool) {
        loop {
            let notified = self.recheck_idle.notified();
            if reached(&self.state()) {
                return;
            }
            notified.await;
        }
    }

    /// Whether a unit is held under exactly this lease.
    pub(crate) fn contains(&self, lease: Lease) -> bool {
        self.state().entry(lease).is_some()
    }

    /// Takes the oldest completions for one call, up to `most`.
    pub(crate) fn take_completions(&self, most: usize) -> Vec<Completion> {
        let mut state = self.state();
        let count = batch_len(state.completions.iter().map(Completion::byte_size), most);
        state.completions.drain(..count).collect()
    }

    /// Queues a completion first, to be recorded in another form.
    pub(crate) fn requeue_completion(&self, completion: Completion) {
        self.state().completions.push_front(completion);
        self.completions_ready.notify_one();
    }

    /// Queues a completion that the store deferred behind all others.
    pub(crate) fn defer_completion(&self, completion: Completion) {
        self.state().completions.push_back(completion);
        self.completions_ready.notify_one();
    }

    /// Removes units after their outcome was recorded or their lease was lost.
    pub(crate) fn remove(&self, leases: impl IntoIterator<Item = Lease>) {
        let mut state = self.state();
        leases.into_iter().for_each(|lease| state.remove(lease));
        let buffered = state.buffered() > 0;
        drop(state);
        self.claim_hint.notify_one();
        if buffered {
            self.runnable.notify_one();
        }
        self.recheck_idle.notify_waiters();
    }

    /// Drops all units after the store ended the session. Returns how many runs and outcomes were
    /// lost; `None` if `session` was replaced already.
    pub(crate) fn void_session(&self, session: SessionId) -> Option<usize> {
        let mut state = self.state();
        if state.session != Some(session) {
            return None;
        }
        state.session = None;
        state.cancel_all(CancelReason::LeaseLost);
        let started = |entry: &&UnitEntry| !matches!(entry.stage, Stage::Prefetched);
        let lost = state.units.values().filter(started).count();
        for held in std::mem::take(&mut state.started) {
            state.release_weight(&held.unit.weight);
        }
        state.units.clear();
        state.waiting.clear();
        state.prefetched.clear();
        state.completions.clear();
        state.uncompleted = 0;
        state.alone = None;
        drop(state);
        self.recheck_idle.notify_waiters();
        Some(lost)
    }
}

#[cfg(test)]
mod tests {
    use longshore_core::store::ClaimRequest;
    use longshore_core::worker_session::NewSession;
    use longshore_core::{Enqueue, Kind, NewUnit, Scope, WorkerApi};

    use super::*;
    use crate::MemoryStore;
    use crate::prefetch::ClaimBuffer;
    use crate::slot_yield::ClaimLimit;

    fn limit() -> ClaimLimit {
        ClaimLimit { max_units: u32::MAX, excluded_tenants: Vec::new() }
    }

    /// Claims what the table reserves, as the fetcher does.
    async fn claim(table: &UnitTable, store: &MemoryStore, kind: &Kind) -> (u32, u32) {
        let Some(reservation) = table.reserve_claim(ClaimBuffer::StartAhead(2), limit()) else {
            return (0, 0);
        };
        let (free, ahead) = (reservation.free, reservation.start_ahead);
        let request = ClaimRequest {
            free_slots: free + ahead,
            start_ahead: ahead,
            ..ClaimRequest::new(reservation.session, vec![kind.clone()], 2)
        };
        let claimed = store.claim(request).await.unwrap();
        assert!(table.add_claimed(reservation, claimed));
        (free, ahead)
    }

    #[test]
    fn a_call_takes_completions_up_to_a_number_of_bytes() {
        let table = UnitTable::new(9, BTreeMap::new());
        let result = longshore_core::Payload::from(vec![b'1'; 15 << 20]);
        for fence in 0..7 {
            let lease = Lease { unit: longshore_core::UnitId::new(), fence };
            table.defer_completion(Completion {
                lease,
                outcome: Outcome::Done(Some(result.clone())),
                commit: Commit::default(),
                is_replacement: false,
                finish_span: Span::none(),
            });
        }
        let calls = [(); 4].map(|()| table.take_completions(2_000).len());
        assert_eq!(calls, [3, 3, 1, 0]);
    }

    #[tokio::test]
    async fn a_prefetched_unit_whose_lease_is_lost_leaves_the_buffer() {
        let (store, kind, session) = (MemoryStore::default(), Kind::new("k").unwrap(), SessionId::new());
        store.open_session(NewSession::new(session, "")).await.unwrap();
        store.send(&Scope::All, vec![NewUnit::new(kind.clone(), serde_json::json!(1))]).await.unwrap();
        let table = UnitTable::new(1, BTreeMap::new());
        table.set_session(session);
        let claim = async || {
            let reservation = table.reserve_claim(ClaimBuffer::Prefetch(1), limit()).unwrap();
            let request = ClaimRequest {
                free_slots: 0,
                prefetch: 1,
                ..ClaimRequest::new(session, vec![kind.clone()], 1)
            };
            (reservation, store.claim(request).await.unwrap())
        };
        let (reservation, mut claimed) = claim().await;
        let lease = claimed.units[0].lease;
        assert!(table.add_claimed(reservation, claimed.clone()));
        let reservation = table.reserve_claim(ClaimBuffer::Prefetch(8), limit()).unwrap();
        claimed.units[0].lease.fence += 1;
        assert!(table.add_claimed(reservation, claimed));
        assert_eq!(
            (table.len(), table.contains(lease)),
            (1, false),
            "claimed again before the loss is known"
        );
        table.remove(table.leases());
        assert!(table.is_idle());
        assert!(table.reserve_claim(ClaimBuffer::Prefetch(1), limit()).is_some(), "nothing is buffered");
        assert!(table.take_runnable(true).start.is_empty());
    }

    #[tokio::test]
    async fn units_that_are_started_ahead_run_when_slots_are_free() {
        let (store, kind, session) = (MemoryStore::default(), Kind::new("k").unwrap(), SessionId::new());
        let ttl = std::time::Duration::from_secs(60);
        let new = NewSession { slots: 2, ttl, ..NewSession::new(session, "") };
        store.open_session(new).await.unwrap();
        let units = (0..8).map(|i| NewUnit::new(kind.clone(), serde_json::json!(i))).collect();
        store.send(&Scope::All, units).await.unwrap();
        let table = UnitTable::new(2, BTreeMap::new());
        table.set_session(session);
        assert_eq!(claim(&table, &store, &kind).await, (2, 2));
        assert_eq!(claim(&table, &store, &kind).await, (0, 0), "the buffer is full");
        let first = table.take_runnable(true);
        assert_eq!((first.run.len(), first.start.len()), (2, 0));
        assert!(table.take_runnable(true).run.is_empty(), "both slots are taken");
        let begun = table.begin_runs(first.run);
        let done = || Outcome::Done(None).into();
        let (ended, _) = &begun[0];
        assert!(table.complete_run(ended.lease, &ended.unit.weight, done(), Span::none()));
        assert_eq!(table.take_runnable(false).run.len(), 1, "it was started: it also runs while draining");
        table.stop();
        let interrupted = |completion: &Completion| completion.outcome == Outcome::Interrupted;
        let completions = table.take_completions(9);
        assert_eq!(completions.iter().filter(|one| interrupted(one)).count(), 1, "the one without a slot");
    }
}
