//! A unit's record, with the data that the store does not return.

use std::collections::BTreeSet;

use longshore_core::outcome::KEPT_FAILURES;
use longshore_core::store::UnitFailure;
use longshore_core::unit::{DedupWindow, OnDependencyFailure};
use longshore_core::unit_state::{
    DEPENDENCY_FAILURE, Event, InvalidTransition, Transition, TransitionInput, transition,
};
use longshore_core::{
    BatchId, Failure, Kind, NewUnit, Outcome, Policy, QueueName, TenantId, Timestamp, Unit, UnitId, UnitState,
};

/// Identifies a lane.
pub(super) type LaneKey = (QueueName, TenantId);

/// Identifies a stream of a tenant: units of one queue, kind and batch.
pub(super) type StreamKey = (QueueName, Kind, Option<BatchId>);

/// A unit and its internal data.
#[derive(Debug, Clone)]
pub(super) struct UnitRecord {
    pub(super) unit: Unit,
    /// [`NewUnit::stored_bytes`].
    pub(super) bytes: u64,
    /// Rank when ready, due time when scheduled, end when final.
    pub(super) sort_key: Timestamp,
    /// When it last became ready; when it was sent, if it never did.
    pub(super) ready_at: Timestamp,
    pub(super) window: DedupWindow,
    pub(super) not_before: Option<Timestamp>,
    /// The dependencies that have not ended.
    pub(super) waits_for: BTreeSet<UnitId>,
    /// All its dependencies, until it is ready.
    pub(super) after: Vec<UnitId>,
    pub(super) on_failure: OnDependencyFailure,
    pub(super) failures: Vec<UnitFailure>,
    /// A client waits for this unit: its end is published as a change of its own.
    pub(super) awaited: bool,
}

impl UnitRecord {
    /// Creates a record of a new unit in state blocked.
    pub(super) fn new(
        new: NewUnit,
        batch: Option<BatchId>,
        waits_for: BTreeSet<UnitId>,
        now: Timestamp,
    ) -> Self {
        let bytes = new.stored_bytes();
        let (window, key) = match new.dedup {
            Some(dedup) => (dedup.window, Some(dedup.key)),
            None => (DedupWindow::default(), None),
        };
        let unit = Unit {
            id: new.id,
            tenant: new.tenant,
            queue: new.queue,
            kind: new.kind,
            batch,
            state: UnitState::Blocked,
            priority: new.priority,
            attempt: 0,
            lost: 0,
            generation: 1,
            batch_generation: 1,
            fence: 0,
            session: None,
            created_at: now,
            since: now,
            started_at: None,
            deadline: new.deadline,
            key,
            weight: new.weight,
            cap: new.cap,
            policy: new.policy,
            trace: new.trace,
            rights: new.rights,
            progress: None,
            failure: None,
            cancel_requested: false,
            payload: new.payload,
            checkpoint: None,
            result: None,
        };
        let (not_before, on_failure) = (new.not_before, new.dependencies.on_failure);
        let after = new.dependencies.units;
        let (failures, awaited) = (Vec::new(), new.awaited);
        let (sort_key, ready_at) = (now, now);
        Self {
            unit,
            bytes,
            sort_key,
            ready_at,
            window,
            not_before,
            waits_for,
            after,
            on_failure,
            failures,
            awaited,
        }
    }

    pub(super) fn lane(&self) -> LaneKey {
        (self.unit.queue.clone(), self.unit.tenant.clone())
    }

    pub(super) fn stream(&self) -> StreamKey {
        (self.unit.queue.clone(), self.unit.kind.clone(), self.unit.batch.clone())
    }

    /// Whether the unit holds its dedup key.
    pub(super) fn keeps_key(&self) -> bool {
        let live = !self.unit.state.is_final();
        self.unit.key.is_some() && (live || self.window != DedupWindow::WhileLive)
    }

    /// Whether a failed dependency cancelled it.
    pub(super) fn was_cancelled_by_dependency(&self) -> bool {
        let is_cause = |failure: &Failure| failure.code == DEPENDENCY_FAILURE;
        let cancelled = self.unit.state == UnitState::Cancelled && !self.after.is_empty();
        cancelled && self.unit.failure.as_ref().is_some_and(is_cause)
    }

    /// When it ended, if it has.
    pub(super) fn ended_at(&self) -> Option<Timestamp> {
        self.unit.state.is_final().then_some(self.sort_key)
    }

    pub(super) fn is_started(&self) -> bool {
        self.unit.state == UnitState::Leased && self.unit.started_at.is_some()
    }

    /// Counts the attempt, unless it is counted already.
    pub(super) fn count_attempt(&mut self, now: Timestamp) {
        if self.unit.started_at.is_none() {
            self.unit.attempt += 1;
            self.unit.started_at = Some(now);
        }
    }

    pub(super) fn is_late(&self, now: Timestamp) -> bool {
        self.unit.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Asks the state machine for the transition on `event`.
    pub(super) fn decide(
        &self,
        event: &Event<'_>,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<Transition, InvalidTransition> {
        let unit = &self.unit;
        let input = TransitionInput {
            id: unit.id,
            state: unit.state,
            priority: unit.priority,
            attempt: unit.attempt,
            lost: unit.lost,
            started: self.is_started(),
            created_at: unit.created_at,
            ready_at: self.ready_at,
            deadline: unit.deadline,
            cancel_requested: unit.cancel_requested,
            checkpointed: unit.checkpoint.is_some(),
            not_before: self.not_before,
        };
        transition(&input, event, policy, now)
    }

    /// Applies a transition of the state machine.
    pub(super) fn apply(&mut self, event: &Event<'_>, step: Transition, now: Timestamp) {
        self.record_failure(event, &step, now);
        let unit = &mut self.unit;
        (unit.state, unit.attempt, unit.lost) = (step.state, step.attempt, step.lost);
        self.sort_key = step.sort_key;
        unit.since = match step.state {
            UnitState::Ready => unit.priority.ready_at(step.sort_key),
            UnitState::Blocked => unit.created_at,
            _ => step.sort_key,
        };
        if step.state == UnitState::Ready {
            self.ready_at = unit.since;
        }
        // A unit that is cancelled by itself, or ready, is not cancelled by a dependency any more.
        let is_cancelled = step.state == UnitState::Cancelled && step.failure.is_none();
        if step.state == UnitState::Ready || is_cancelled {
            self.after.clear();
        }
        unit.session = None;
        unit.progress = None;
        if !step.state.is_final() {
            (unit.started_at, unit.cancel_requested) = (None, false);
        }
        if step.state != UnitState::Blocked {
            self.waits_for.clear();
        } else {
            self.not_before = Some(step.sort_key);
        }
        if let Event::Finished(Outcome::Done(result)) = event {
            unit.result.clone_from(result);
        }
    }

    fn record_failure(&mut self, event: &Event<'_>, step: &Transition, now: Timestamp) {
        let unit = &mut self.unit;
        if step.state == UnitState::Done {
            unit.failure = None;
        }
        let Some(failure) = &step.failure else { return };
        unit.failure = Some(failure.clone());
        if matches!(event, Event::Finished(_) | Event::Lost) {
            let (attempt, session) = (unit.attempt, unit.session);
            self.failures.push(UnitFailure { attempt, at: now, session, failure: failure.clone() });
            if self.failures.len() > KEPT_FAILURES.first + KEPT_FAILURES.last {
                self.failures.remove(KEPT_FAILURES.first);
            }
        }
    }
}
