//! The desk: everything a worker holds, from claim to settled, under one lock.
//!
//! Owns the bookkeeping of slots and of each held unit's stage. Calls nobody: it hands out what
//! may be done next and is told what was done. All moves of a unit between stages are here.

mod state;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_core::session::Lease;
use longshore_core::store::{Claimed, HeldUnit, ProgressNote};
use longshore_core::unit::Weight;
use longshore_core::{Outcome, SessionId, TenantId, UnitId};
use tokio::sync::Notify;
use tracing::Span;

use crate::context::{CancelReason, Reins};
use crate::handler::{Answer, Commit};
use crate::waiting::Restraint;
use state::{Holding, Stage, State};

/// A unit in our hands. Boxed: it is large, and passes through many.
pub(crate) type Held = Box<HeldUnit>;

/// What a worker holds.
pub(crate) struct Desk {
    state: Mutex<State>,
    /// For intake: a claim may make sense now.
    pub(crate) room: Notify,
    /// For intake: slots came free for which nothing is buffered, or a heavy unit may fit now.
    pub(crate) lightened: Notify,
    /// For the executor: something may be started or run.
    pub(crate) runnable: Notify,
    /// For the settler: there are outcomes.
    pub(crate) outcomes: Notify,
    /// For whoever waits for the desk to be clear.
    emptied: Notify,
}

/// The end of a run, on its way to the store.
#[derive(Debug, Clone)]
pub(crate) struct Settling {
    pub(crate) lease: Lease,
    pub(crate) outcome: Outcome,
    pub(crate) commit: Commit,
    /// The store refused the handler's own outcome and this one stands for it.
    pub(crate) replaced: bool,
    /// Ends when it is recorded, or lost.
    #[expect(dead_code, reason = "held for its drop")]
    pub(crate) finishing: Span,
}

/// What intake may claim now. The free slots and resources in it are reserved until it is placed.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) session: SessionId,
    pub(crate) free: u32,
    pub(crate) resources: BTreeMap<String, u32>,
    pub(crate) ahead: u32,
    pub(crate) empty_handed: bool,
    /// Not from these tenants.
    pub(crate) except: Vec<TenantId>,
}

/// What the executor does next.
#[derive(Default)]
pub(crate) struct Next {
    /// Run these.
    pub(crate) run: Vec<Held>,
    /// Start these, then run them.
    pub(crate) start: Vec<Held>,
}

impl Desk {
    pub(crate) fn new(slots: u32, resources: BTreeMap<String, u32>) -> Self {
        Self {
            state: Mutex::new(State::new(slots, resources)),
            room: Notify::new(),
            lightened: Notify::new(),
            runnable: Notify::new(),
            outcomes: Notify::new(),
            emptied: Notify::new(),
        }
    }

    /// Uses at most `limit` slots from now on; what runs beyond that may finish.
    pub(crate) fn resize(&self, limit: u32) {
        let mut state = self.state();
        state.limit = limit.clamp(1, state.slots);
        drop(state);
        self.room.notify_one();
        self.lightened.notify_one();
        self.runnable.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that holds all this.
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.state().session
    }

    /// A session was opened.
    pub(crate) fn open(&self, session: SessionId) {
        self.state().session = Some(session);
        self.room.notify_one();
    }

    /// How many units are held.
    pub(crate) fn known(&self) -> usize {
        self.state().units.len()
    }

    /// The leases of all units held.
    pub(crate) fn leases(&self) -> Vec<Lease> {
        self.state().units.values().map(|holding| holding.lease).collect()
    }

    /// Whether nothing is held or on its way.
    pub(crate) fn is_clear(&self) -> bool {
        self.state().is_clear()
    }

    /// Returns once nothing is held or on its way.
    pub(crate) async fn cleared(&self) {
        self.until(State::is_clear).await;
    }

    /// Returns once no handler runs.
    pub(crate) async fn at_rest(&self) {
        self.until(|state| state.running == 0 && state.started.is_empty()).await;
    }

    async fn until(&self, reached: impl Fn(&State) -> bool) {
        loop {
            let emptied = self.emptied.notified();
            if reached(&self.state()) {
                return;
            }
            emptied.await;
        }
    }

    /// How many slots are used.
    pub(crate) fn limit(&self) -> u32 {
        self.state().limit
    }

    /// What may be claimed now within bounds, with up to `target` units buffered.
    pub(crate) fn ask(&self, target: usize, within: Restraint) -> Option<Ask> {
        let target = if within.is_none() { target } else { 0 };
        let mut state = self.state();
        // Asked for well before the buffer is empty: what is left must last until the answer.
        state.low_water = target - target / 4;
        let session = state.session?;
        let empty_handed = state.units.is_empty() && state.running == 0;
        let may_risk = state.may_risk();
        let must_wait = state.alone.is_some() || may_risk == 0 || state.stopping;
        if must_wait || (state.wants_empty && !empty_handed) {
            return None;
        }
        // Free slots belong to the units that wait for them; started ones have theirs.
        let free = if state.ahead.is_empty() { state.usable().min(may_risk) } else { 0 };
        let free = free.min(within.most);
        let low = state.ahead.len() <= state.low_water;
        let ahead =
            if low && !state.wants_empty && !state.heavy { target - state.ahead.len() } else { 0 };
        if free == 0 && ahead == 0 {
            return None;
        }
        state.free -= free;
        state.claiming = true;
        let resources =
            if free > 0 { std::mem::take(&mut state.resources) } else { BTreeMap::new() };
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        Some(Ask { session, free, resources, ahead, empty_handed, except: within.except })
    }

    /// A question without a wish: does the unit still wait that wants us empty-handed? Another
    /// worker may have taken it, and then slots need not be kept idle.
    pub(crate) fn ask_if_wanted_empty(&self) -> Option<Ask> {
        let mut state = self.state();
        let session = state.session.filter(|_| state.wants_empty && !state.claiming)?;
        state.claiming = true;
        let resources = BTreeMap::new();
        let except = Vec::new();
        Some(Ask { session, free: 0, resources, ahead: 0, empty_handed: false, except })
    }

    /// Whether slots are kept idle for a unit that must run alone.
    pub(crate) fn wants_empty(&self) -> bool {
        self.state().wants_empty
    }

    /// Puts a claim's answer on the desk; false if the session was lost meanwhile.
    pub(crate) fn place(&self, ask: Ask, claimed: Claimed) -> bool {
        let mut state = self.state();
        state.unreserve(&ask);
        let ours = state.session == Some(ask.session);
        if ours {
            if ask.free + ask.ahead > 0 {
                state.heavy = claimed.heavy_waiting;
            }
            state.wants_empty = claimed.alone_waiting && !ask.empty_handed;
            claimed.units.into_iter().for_each(|unit| state.take_in(Box::new(unit)));
        }
        drop(state);
        self.runnable.notify_one();
        self.outcomes.notify_one();
        self.emptied.notify_waiters();
        ours
    }

    /// A claim failed: gives its reservation back.
    pub(crate) fn unplace(&self, ask: &Ask) {
        self.state().unreserve(ask);
        self.emptied.notify_waiters();
    }

    /// Everything that can run or be started with what is free. Takes the slots.
    pub(crate) fn next(&self, may_start: bool) -> Next {
        let mut state = self.state();
        let mut next = Next { run: state.started.drain(..).collect(), start: Vec::new() };
        if may_start && !state.stopping && state.alone.is_none() {
            while state.may_risk() > 0
                && let Some(unit) = state.take_startable()
            {
                next.start.push(unit);
            }
        }
        state.running += next.run.len();
        let idle = !next.start.is_empty() && state.ahead.is_empty() && state.usable() > 0;
        drop(state);
        if idle {
            self.room.notify_one();
        }
        next
    }

    /// Units taken by [`Self::next`] were started: they run from here on. Those whose lease is
    /// gone are left out.
    pub(crate) fn begin(&self, units: Vec<Held>) -> Vec<(Held, Arc<Reins>)> {
        let mut state = self.state();
        let stopping = state.stopping;
        let mut begun = Vec::with_capacity(units.len());
        for unit in units {
            let Some(holding) = state.holding(unit.lease) else {
                state.running -= 1;
                state.free_weight(&unit.unit.weight);
                continue;
            };
            let reins = Arc::new(Reins::default());
            if stopping {
                reins.pull(CancelReason::Stopping);
            }
            holding.stage = Stage::Running(Arc::clone(&reins));
            begun.push((unit, reins));
        }
        begun
    }

    /// Of units that were to be started, `units` now run.
    pub(crate) fn started(&self, units: usize) {
        self.state().running += units;
    }

    /// Units that were to be started but may not: they are no longer ours.
    pub(crate) fn drop_unstarted(&self, units: &[Held]) {
        let mut state = self.state();
        for unit in units {
            state.free_weight(&unit.unit.weight);
            state.forget(unit.lease);
        }
        drop(state);
        self.room.notify_one();
        self.emptied.notify_waiters();
    }

    /// A handler returned: its slots are free, its answer waits for the settler, and `finishing` with
    /// it. False if the lease was lost meanwhile: the answer is of no use.
    pub(crate) fn ran(
        &self,
        lease: Lease,
        weight: &Weight,
        answer: Answer,
        finishing: Span,
    ) -> bool {
        let mut state = self.state();
        state.running -= 1;
        state.free_weight(weight);
        let heavy = std::mem::take(&mut state.heavy);
        let ours = state.answer_traced(lease, answer, finishing);
        let (buffered, low_water, at_rest) =
            (state.ahead.len(), state.low_water, state.running == 0);
        drop(state);
        self.outcomes.notify_one();
        if buffered > 0 {
            self.runnable.notify_one();
        }
        if buffered <= low_water {
            self.room.notify_one();
        }
        if heavy || buffered == 0 {
            self.lightened.notify_one();
        }
        if at_rest {
            self.emptied.notify_waiters();
        }
        ours
    }

    /// Whether a unit is held under this very lease.
    pub(crate) fn holds(&self, lease: Lease) -> bool {
        self.state().holding(lease).is_some()
    }

    /// The next outcomes to record, oldest first.
    pub(crate) fn take_answers(&self, most: usize) -> Vec<Settling> {
        let mut state = self.state();
        let count = state.answers.len().min(most);
        state.answers.drain(..count).collect()
    }

    /// An outcome that must be recorded differently.
    pub(crate) fn answer_again(&self, settling: Settling) {
        self.state().answers.push_front(settling);
        self.outcomes.notify_one();
    }

    /// These are no longer held: recorded, or lost.
    pub(crate) fn settled(&self, leases: impl IntoIterator<Item = Lease>) {
        let mut state = self.state();
        leases.into_iter().for_each(|lease| state.forget(lease));
        let buffered = !state.ahead.is_empty();
        drop(state);
        self.room.notify_one();
        if buffered {
            self.runnable.notify_one();
        }
        self.emptied.notify_waiters();
    }

    /// Takes all unstarted units off the desk, to be given back.
    pub(crate) fn take_ahead(&self) -> Vec<Lease> {
        self.take_ahead_if(|_| true)
    }

    /// Takes those of `units` off the desk that are unstarted, to be given back.
    pub(crate) fn take_unwanted(&self, units: &[UnitId]) -> Vec<Lease> {
        if units.is_empty() { Vec::new() } else { self.take_ahead_if(|id| units.contains(&id)) }
    }

    fn take_ahead_if(&self, wanted: impl Fn(UnitId) -> bool) -> Vec<Lease> {
        let mut state = self.state();
        let (out, keep): (VecDeque<_>, _) =
            std::mem::take(&mut state.ahead).into_iter().partition(|held| wanted(held.unit.id));
        state.ahead = keep;
        let leases: Vec<Lease> = out.iter().map(|held| held.lease).collect();
        leases.iter().for_each(|lease| state.forget(*lease));
        drop(state);
        self.emptied.notify_waiters();
        leases
    }

    /// Asks the running ones of `units` to end because someone cancelled them.
    pub(crate) fn cancel(&self, units: &[UnitId]) {
        let state = self.state();
        for holding in units.iter().filter_map(|unit| state.units.get(unit)) {
            if let Stage::Running(reins) = &holding.stage {
                reins.pull(CancelReason::Cancelled);
            }
        }
    }

    /// The worker stops: running handlers are asked to end, what waits to run is interrupted.
    pub(crate) fn stop(&self) {
        let mut state = self.state();
        state.stopping = true;
        state.pull_all(CancelReason::Stopping);
        for held in std::mem::take(&mut state.started) {
            state.free_weight(&held.unit.weight);
            state.answer(held.lease, Outcome::Interrupted.into());
        }
        drop(state);
        self.outcomes.notify_one();
        self.emptied.notify_waiters();
    }

    /// Handlers that would not end are given up: their units are interrupted, whatever they say.
    pub(crate) fn give_up_running(&self) {
        let mut state = self.state();
        let running = |holding: &&Holding| matches!(holding.stage, Stage::Running(_));
        let leases: Vec<Lease> =
            state.units.values().filter(running).map(|holding| holding.lease).collect();
        for lease in leases {
            state.answer(lease, Outcome::Interrupted.into());
        }
        drop(state);
        self.outcomes.notify_one();
    }

    /// The session is gone and every lease with it. Returns how many runs and outcomes were lost;
    /// `None` if `session` was replaced already.
    pub(crate) fn void(&self, session: SessionId) -> Option<usize> {
        let mut state = self.state();
        if state.session != Some(session) {
            return None;
        }
        state.session = None;
        state.pull_all(CancelReason::LeaseLost);
        let started = |holding: &&Holding| !matches!(holding.stage, Stage::Ahead);
        let lost = state.units.values().filter(started).count();
        for held in std::mem::take(&mut state.started) {
            state.free_weight(&held.unit.weight);
        }
        state.units.clear();
        state.ahead.clear();
        state.answers.clear();
        state.unsettled = 0;
        state.alone = None;
        drop(state);
        self.emptied.notify_waiters();
        Some(lost)
    }

    /// The latest word of each run that has said something new.
    pub(crate) fn progress(&self) -> Vec<ProgressNote> {
        let state = self.state();
        let note = |holding: &Holding| {
            let Stage::Running(reins) = &holding.stage else {
                return None;
            };
            let progress = reins.take_progress()?;
            Some(ProgressNote { lease: holding.lease, progress })
        };
        state.units.values().filter_map(note).collect()
    }

    /// Words that did not reach the store: they go with the next beat unless there are newer ones.
    pub(crate) fn keep_progress(&self, notes: Vec<ProgressNote>) {
        let mut state = self.state();
        for note in notes {
            if let Some(Holding { stage: Stage::Running(reins), .. }) = state.holding(note.lease) {
                reins.keep_progress(note.progress);
            }
        }
    }
}
