//! The unit table: every unit that a worker holds, from claim to recorded outcome, under one lock.
//!
//! It keeps the free slots and each unit's stage, and makes all transitions between stages. It
//! calls neither the store nor handlers: fetcher, executor, completer and heartbeat ask it what to
//! do next and report what they did.

mod state;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_core::store::{ClaimResult, LeasedUnit, ProgressNote};
use longshore_core::unit::Weight;
use longshore_core::worker_session::Lease;
use longshore_core::{Outcome, SessionId, TenantId, UnitId};
use tokio::sync::Notify;
use tracing::Span;

use crate::context::{CancelReason, RunControl};
use crate::handler::{Commit, RunOutcome};
use crate::prefetch::ClaimBuffer;
use crate::slot_yield::ClaimLimit;
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

/// What the fetcher may claim. Its slots and resources stay reserved until the claim returns.
#[derive(Debug)]
pub(crate) struct ClaimReservation {
    pub(crate) session: SessionId,
    pub(crate) free: u32,
    /// Units to start beyond the free slots.
    pub(crate) start_ahead: u32,
    pub(crate) resources: BTreeMap<String, u32>,
    pub(crate) prefetch: u32,
    pub(crate) worker_idle: bool,
    /// Tenants to skip.
    pub(crate) excluded_tenants: Vec<TenantId>,
}

/// What the executor does next.
#[derive(Default)]
pub(crate) struct RunnableUnits {
    /// Units to run.
    pub(crate) run: Vec<BoxedUnit>,
    /// Units to start in the store, then run.
    pub(crate) start: Vec<BoxedUnit>,
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

    /// How many slots may be used.
    pub(crate) fn slot_limit(&self) -> u32 {
        self.state().limit
    }

    /// Reserves slots and resources for a claim of at most `buffer` units beyond the free slots, within
    /// `limit`. `None` if nothing may be claimed now.
    pub(crate) fn reserve_claim(&self, buffer: ClaimBuffer, limit: ClaimLimit) -> Option<ClaimReservation> {
        let buffer = if limit.is_unlimited() { buffer } else { ClaimBuffer::Prefetch(0) };
        let mut state = self.state();
        // Claim again well before the buffer is empty: the rest must last until the claim returns.
        state.low_watermark = buffer.low_watermark();
        state.start_ahead = if let ClaimBuffer::StartAhead(units) = buffer { units } else { 0 };
        let session = state.session?;
        let worker_idle = state.units.is_empty() && state.running == 0;
        let start_budget = state.start_budget();
        let must_wait = state.alone.is_some() || start_budget == 0 || state.stopping;
        if must_wait || (state.drain_for_exclusive && !worker_idle) {
            return None;
        }
        // Buffered units have priority on free slots; started units already have theirs.
        let free = if state.buffered() == 0 { state.usable_slots().min(start_budget) } else { 0 };
        let free = free.min(limit.max_units);
        let may_buffer = !state.drain_for_exclusive && !state.heavy_waiting;
        let low = may_buffer && state.buffered() <= state.low_watermark;
        let (start_ahead, prefetch) = match buffer {
            ClaimBuffer::Prefetch(target) if low => (0, target.saturating_sub(state.buffered())),
            ClaimBuffer::StartAhead(target) if low && state.prefetched.is_empty() => {
                let count = (target as usize).saturating_sub(state.waiting.len());
                let count = u32::try_from(count).unwrap_or(target).min(start_budget - free);
                // A claim of few units costs nearly as much as one of many.
                (if free > 0 || count >= target / 2 { count } else { 0 }, 0)
            }
            _ => (0, 0),
        };
        if free == 0 && start_ahead == 0 && prefetch == 0 {
            return None;
        }
        state.free -= free;
        state.claiming = true;
        let resources = if free > 0 { std::mem::take(&mut state.resources) } else { BTreeMap::new() };
        let prefetch = u32::try_from(prefetch).unwrap_or(u32::MAX);
        let excluded_tenants = limit.excluded_tenants;
        Some(ClaimReservation {
            session,
            free,
            start_ahead,
            resources,
            prefetch,
            worker_idle,
            excluded_tenants,
        })
    }

    /// Reserves an empty claim, which checks whether the unit that must run alone still waits. If
    /// another worker took it, the slots need not stay free.
    pub(crate) fn reserve_probe(&self) -> Option<ClaimReservation> {
        let mut state = self.state();
        let session = state.session.filter(|_| state.drain_for_exclusive && !state.claiming)?;
        state.claiming = true;
        let resources = BTreeMap::new();
        let excluded_tenants = Vec::new();
        Some(ClaimReservation {
            session,
            free: 0,
            start_ahead: 0,
            resources,
            prefetch: 0,
            worker_idle: false,
            excluded_tenants,
        })
    }

    /// Whether slots are kept free for a unit that must run alone.
    pub(crate) fn drains_for_exclusive(&self) -> bool {
        self.state().drain_for_exclusive
    }

    /// Adds the claimed units. Returns false if the session was lost during the claim.
    pub(crate) fn add_claimed(&self, reservation: ClaimReservation, claimed: ClaimResult) -> bool {
        let mut state = self.state();
        state.release_reservation(&reservation);
        let ours = state.session == Some(reservation.session);
        if ours {
            if reservation.free + reservation.start_ahead + reservation.prefetch > 0 {
                state.heavy_waiting = claimed.heavy_waiting;
            }
            state.drain_for_exclusive = claimed.alone_waiting && !reservation.worker_idle;
            claimed.units.into_iter().for_each(|unit| state.insert(Box::new(unit)));
        }
        drop(state);
        self.runnable.notify_one();
        self.completions_ready.notify_one();
        self.recheck_idle.notify_waiters();
        ours
    }

    /// Releases the reservation of a failed claim.
    pub(crate) fn release_reservation(&self, reservation: &ClaimReservation) {
        self.state().release_reservation(reservation);
        self.recheck_idle.notify_waiters();
    }

    /// Takes all units that can run or start with the free slots, and reserves the slots.
    pub(crate) fn take_runnable(&self, may_start: bool) -> RunnableUnits {
        let mut state = self.state();
        let mut next = RunnableUnits { run: state.started.drain(..).collect(), start: Vec::new() };
        while let Some(unit) = state.pop_waiting() {
            next.run.push(unit);
        }
        // Units that were started ahead are not overtaken.
        if may_start && !state.stopping && state.alone.is_none() && state.waiting.is_empty() {
            while state.start_budget() > 0
                && let Some(unit) = state.pop_startable()
            {
                next.start.push(unit);
            }
        }
        state.running += next.run.len();
        let took_any = !next.run.is_empty() || !next.start.is_empty();
        let low = took_any && state.buffered() <= state.low_watermark;
        drop(state);
        if low {
            self.claim_hint.notify_one();
        }
        next
    }

    /// Marks units of [`Self::take_runnable`] as running. Omits units with a lost lease.
    pub(crate) fn begin_runs(&self, units: Vec<BoxedUnit>) -> Vec<(BoxedUnit, Arc<RunControl>)> {
        let mut state = self.state();
        let stopping = state.stopping;
        let mut begun = Vec::with_capacity(units.len());
        for unit in units {
            let Some(entry) = state.entry(unit.lease) else {
                state.running -= 1;
                state.release_weight(&unit.unit.weight);
                continue;
            };
            let run_control = Arc::new(RunControl::default());
            if stopping {
                run_control.cancel(CancelReason::Stopping);
            }
            entry.stage = Stage::Running(Arc::clone(&run_control));
            begun.push((unit, run_control));
        }
        begun
    }

    /// Counts `units` more runs, which the store has just started.
    pub(crate) fn count_running(&self, units: usize) {
        self.state().running += units;
    }

    /// Removes units that the store did not start: their leases are lost or released.
    pub(crate) fn remove_unstarted(&self, units: &[BoxedUnit]) {
        let mut state = self.state();
        for unit in units {
            state.release_weight(&unit.unit.weight);
            state.remove(unit.lease);
        }
        drop(state);
        self.claim_hint.notify_one();
        self.recheck_idle.notify_waiters();
    }

    /// Records that a handler returned: releases its slots and queues its answer for the completer.
    /// Returns false if the lease is lost and the answer was discarded.
    pub(crate) fn complete_run(
        &self,
        lease: Lease,
        weight: &Weight,
        answer: RunOutcome,
        finish_span: Span,
    ) -> bool {
        let mut state = self.state();
        state.running -= 1;
        state.release_weight(weight);
        let heavy = std::mem::take(&mut state.heavy_waiting);
        let ours = state.complete_traced(lease, answer, finish_span);
        let (buffered, low_watermark, at_rest) = (state.buffered(), state.low_watermark, state.running == 0);
        drop(state);
        self.completions_ready.notify_one();
        if buffered > 0 {
            self.runnable.notify_one();
        }
        if buffered <= low_watermark {
            self.claim_hint.notify_one();
        }
        if heavy || buffered == 0 {
            self.slots_freed.notify_one();
        }
        if at_rest {
            self.recheck_idle.notify_waiters();
        }
        ours
    }

    /// Whether a unit is held under exactly this lease.
    pub(crate) fn contains(&self, lease: Lease) -> bool {
        self.state().entry(lease).is_some()
    }

    /// Takes the oldest completions, up to `most`.
    pub(crate) fn take_completions(&self, most: usize) -> Vec<Completion> {
        let mut state = self.state();
        let count = state.completions.len().min(most);
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

    /// Takes all unstarted units out of the table, to be released.
    pub(crate) fn take_prefetched(&self) -> Vec<Lease> {
        self.take_prefetched_if(|_| true)
    }

    /// Takes the unstarted ones of `units` out of the table, to be released.
    pub(crate) fn take_prefetched_of(&self, units: &[UnitId]) -> Vec<Lease> {
        if units.is_empty() { Vec::new() } else { self.take_prefetched_if(|id| units.contains(&id)) }
    }

    fn take_prefetched_if(&self, wanted: impl Fn(UnitId) -> bool) -> Vec<Lease> {
        let mut state = self.state();
        let (out, keep): (VecDeque<_>, _) =
            std::mem::take(&mut state.prefetched).into_iter().partition(|held| wanted(held.unit.id));
        state.prefetched = keep;
        let leases: Vec<Lease> = out.iter().map(|held| held.lease).collect();
        leases.iter().for_each(|lease| state.remove(*lease));
        drop(state);
        self.recheck_idle.notify_waiters();
        leases
    }

    /// Cancels the runs of `units` after a user cancelled the units.
    pub(crate) fn cancel_runs(&self, units: &[UnitId]) {
        let state = self.state();
        for entry in units.iter().filter_map(|unit| state.units.get(unit)) {
            if let Stage::Running(run_control) = &entry.stage {
                run_control.cancel(CancelReason::Cancelled);
            }
        }
    }

    /// Stops: cancels running handlers and interrupts units that wait to run.
    pub(crate) fn stop(&self) {
        let mut state = self.state();
        state.stopping = true;
        state.cancel_all(CancelReason::Stopping);
        for held in std::mem::take(&mut state.started) {
            state.release_weight(&held.unit.weight);
            state.complete(held.lease, Outcome::Interrupted.into());
        }
        for (held, _) in std::mem::take(&mut state.waiting) {
            state.complete(held.lease, Outcome::Interrupted.into());
        }
        drop(state);
        self.completions_ready.notify_one();
        self.recheck_idle.notify_waiters();
    }

    /// Gives up handlers that did not return: records their units as interrupted and ignores their
    /// later answers.
    pub(crate) fn interrupt_running(&self) {
        let mut state = self.state();
        let running = |entry: &&UnitEntry| matches!(entry.stage, Stage::Running(_));
        let leases: Vec<Lease> = state.units.values().filter(running).map(|entry| entry.lease).collect();
        for lease in leases {
            state.complete(lease, Outcome::Interrupted.into());
        }
        drop(state);
        self.completions_ready.notify_one();
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

    /// Takes the latest progress of each run that reported any since the last call.
    pub(crate) fn take_progress(&self) -> Vec<ProgressNote> {
        let state = self.state();
        let note = |entry: &UnitEntry| {
            let Stage::Running(run_control) = &entry.stage else {
                return None;
            };
            let progress = run_control.take_progress()?;
            Some(ProgressNote { lease: entry.lease, progress })
        };
        state.units.values().filter_map(note).collect()
    }

    /// Puts back progress that did not reach the store, unless the run has reported newer progress.
    pub(crate) fn restore_progress(&self, notes: Vec<ProgressNote>) {
        let mut state = self.state();
        for note in notes {
            if let Some(UnitEntry { stage: Stage::Running(run_control), .. }) = state.entry(note.lease) {
                run_control.restore_progress(note.progress);
            }
        }
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
