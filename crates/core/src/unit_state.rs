//! The unit's state machine: one pure function, [`transition`].
//!
//! Stores load a unit's [`TransitionInput`], call `next`, and write its result. They decide nothing
//! themselves, so memory, SQLite and PostgreSQL cannot disagree.
//!
//! ```text
//!            ┌────────── dependencies ended ─────────┐
//!        blocked                                     ▼
//!  send ─▶ scheduled ──────── its time came ───▶  ready ──claim──▶ leased ──▶ done
//!            ▲                                       ▲               │  ├───▶ failed
//!            └───── retry or snooze with a delay ────┴── released, ──┘  └───▶ cancelled
//!                                                        lost, retry now
//! ```
//!
//! A unit that a failed dependency cancelled is blocked again when its batch is retried.

use crate::name::UnitId;
use crate::outcome::{Failure, Outcome};
use crate::priority::Priority;
use crate::retry::{OnLost, Policy};
use crate::time::Timestamp;
use crate::unit::UnitState;

/// What a transition depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransitionInput {
    /// The unit's id, which seeds the jitter.
    pub id: UnitId,
    /// Its state.
    pub state: UnitState,
    /// Its priority.
    pub priority: Priority,
    /// Attempts used, including the current one once it has started.
    pub attempt: u32,
    /// Runs lost with their workers.
    pub lost: u32,
    /// Whether the current lease has been started.
    pub started: bool,
    /// When it was sent.
    pub created_at: Timestamp,
    /// When it last became ready, which decides its place in the queue.
    pub ready_at: Timestamp,
    /// No run starts after this.
    pub deadline: Option<Timestamp>,
    /// Its cancellation was requested while it ran.
    pub cancel_requested: bool,
    /// An earlier run left a checkpoint, from which the next run continues.
    pub checkpointed: bool,
    /// Not ready before this, even if all dependencies have ended.
    pub not_before: Option<Timestamp>,
}

/// What happened to the unit.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Its handler returned an outcome.
    Finished(&'a Outcome),
    /// Its worker released it without starting it.
    Released,
    /// Its worker died.
    Lost,
    /// Its scheduled time has come.
    Due,
    /// All its dependencies have ended.
    Unblocked,
    /// A dependency failed or was cancelled.
    DependencyFailed(UnitId),
    /// Its deadline passed while it waited.
    Expired,
    /// An operator cancels it.
    Cancel,
    /// An operator retries it.
    Retry,
    /// Its batch is retried, and with it the dependencies that cancelled it: it waits for them again.
    RetryBlocked,
    /// The event it waits for has occurred: it need not wait for its scheduled time.
    Wake,
}

/// The unit's next state.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// The new state.
    pub state: UnitState,
    /// Its sort key within that state: the rank when ready, the due time when scheduled, the end
    /// time when final. Smaller comes first.
    pub sort_key: Timestamp,
    /// Attempts used from now on.
    pub attempt: u32,
    /// Lost runs from now on.
    pub lost: u32,
    /// The failure to record, for a run that did not succeed.
    pub failure: Option<Failure>,
    /// An operator retried it: its next generation begins.
    pub retried: bool,
}

/// The unit's state does not permit the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a unit that is {state} cannot be {event}")]
pub struct InvalidTransition {
    /// The unit's state.
    pub state: UnitState,
    /// The event, as a participle.
    pub event: &'static str,
}

/// The transition of `unit` when `event` happens at `now`.
///
/// ```
/// use longshore_core::unit_state::{Event, TransitionInput, transition};
/// use longshore_core::{Outcome, Policy, Priority, Timestamp, UnitId, UnitState};
///
/// let now = Timestamp::from_micros(1_000_000);
/// let unit = TransitionInput {
///     id: UnitId::new(), state: UnitState::Leased, priority: Priority::NORMAL, attempt: 1,
///     lost: 0, started: true, created_at: now, ready_at: now, deadline: None,
///     cancel_requested: false, checkpointed: false, not_before: None,
/// };
/// let step = transition(&unit, &Event::Finished(&Outcome::Done(None)), &Policy::default(), now).unwrap();
/// assert_eq!(step.state, UnitState::Done);
/// ```
pub fn transition(
    unit: &TransitionInput,
    event: &Event<'_>,
    policy: &Policy,
    now: Timestamp,
) -> Result<Transition, InvalidTransition> {
    use UnitState::{Blocked, Cancelled, Failed, Leased, Ready, Scheduled};
    let context = TransitionContext { unit, now };
    match (event, unit.state) {
        (Event::Released, Leased) => Ok(released(&context)),
        (Event::Lost, Leased) => Ok(lost(&context, "its worker died while it ran", policy)),
        (Event::Finished(outcome), Leased) => Ok(finished(&context, outcome, policy)),
        (Event::Due | Event::Wake, Scheduled) => Ok(context.ready()),
        (Event::Unblocked, Blocked) => Ok(context.schedule(unit.not_before.unwrap_or(now))),
        (Event::DependencyFailed(_), Blocked) => Ok(context.end(Cancelled, Some(dependency_failed(event)))),
        (Event::Expired, Blocked | Scheduled | Ready) => Ok(context.end(Failed, Some(deadline_passed()))),
        (Event::Cancel, Blocked | Scheduled | Ready) => Ok(context.end(Cancelled, None)),
        (Event::Retry, Failed | Cancelled | Scheduled) => {
            Ok(Transition { attempt: 0, lost: 0, retried: true, ..context.ready() })
        }
        (Event::RetryBlocked, Cancelled) => {
            Ok(Transition { attempt: 0, lost: 0, retried: true, ..context.to(Blocked, now, None) })
        }
        (event, state) => Err(InvalidTransition { state, event: event_name(event) }),
    }
}

struct TransitionContext<'a> {
    unit: &'a TransitionInput,
    now: Timestamp,
}

impl TransitionContext<'_> {
    fn ready(&self) -> Transition {
        self.to(UnitState::Ready, self.unit.priority.rank(self.now), None)
    }

    /// Ready at the rank that it was claimed with: it did not run, and keeps the place that it waited
    /// for.
    fn requeue(&self) -> Transition {
        self.to(UnitState::Ready, self.unit.priority.rank(self.unit.ready_at), None)
    }

    fn schedule(&self, due: Timestamp) -> Transition {
        if due <= self.now { self.ready() } else { self.to(UnitState::Scheduled, due, None) }
    }

    fn end(&self, state: UnitState, failure: Option<Failure>) -> Transition {
        self.to(state, self.now, failure)
    }

    fn to(&self, state: UnitState, sort_key: Timestamp, failure: Option<Failure>) -> Transition {
        let TransitionInput { attempt, lost, .. } = *self.unit;
        Transition { state, sort_key, attempt, lost, failure, retried: false }
    }

    /// `transition` with the attempt of the current run given back.
    fn refund_attempt(&self, transition: Transition) -> Transition {
        let used = u32::from(self.unit.started);
        Transition { attempt: self.unit.attempt.saturating_sub(used), ..transition }
    }

    fn is_past_deadline(&self) -> bool {
        self.unit.deadline.is_some_and(|deadline| deadline <= self.now)
    }
}

fn finished(context: &TransitionContext<'_>, outcome: &Outcome, policy: &Policy) -> Transition {
    let unit = context.unit;
    let to = match outcome {
        // A late success is a success: work that was paid for is not thrown away.
        Outcome::Done(_) => context.end(UnitState::Done, None),
        Outcome::Fail(failure) => context.end(UnitState::Failed, Some(failure.clone())),
        Outcome::Cancel => context.end(UnitState::Cancelled, None),
        _ if unit.cancel_requested => context.end(UnitState::Cancelled, None),
        Outcome::Retry { failure, after } => {
            let delay = after.unwrap_or_else(|| policy.retry.delay(unit.id, unit.attempt));
            let due = context.now + delay;
            let in_time = unit.deadline.is_none_or(|deadline| due < deadline);
            let again = in_time && policy.retry.allows(unit.attempt, unit.created_at, due);
            let to = if again { context.schedule(due) } else { context.end(UnitState::Failed, None) };
            Transition { failure: Some(failure.clone()), ..to }
        }
        Outcome::Snooze(_) | Outcome::Interrupted if context.is_past_deadline() => {
            context.end(UnitState::Failed, Some(deadline_passed()))
        }
        Outcome::Snooze(after) => context.refund_attempt(context.schedule(context.now + *after)),
        Outcome::Interrupted => context.refund_attempt(context.requeue()),
        Outcome::Lost(reason) => return lost(context, reason, policy),
    };
    to.clear_losses(unit)
}

impl Transition {
    /// A run that ended, with any outcome, clears its unit of the suspicion of having killed
    /// earlier workers.
    fn clear_losses(self, unit: &TransitionInput) -> Self {
        Self { lost: if unit.started { 0 } else { self.lost }, ..self }
    }
}

fn released(context: &TransitionContext<'_>) -> Transition {
    if context.unit.cancel_requested {
        return context.end(UnitState::Cancelled, None);
    }
    context.refund_attempt(context.requeue())
}

/// A unit that had not been started did not cause the loss, and keeps its attempts.
fn lost(context: &TransitionContext<'_>, reason: &str, policy: &Policy) -> Transition {
    let unit = context.unit;
    if unit.cancel_requested {
        return context.end(UnitState::Cancelled, None);
    }
    if !unit.started {
        return context.requeue();
    }
    let lost = unit.lost + 1;
    let reason = format!("{reason} ({lost} of {} allowed)", policy.max_lost);
    let failure = Some(Failure::new("lost", reason));
    // Continuing from a checkpoint does not repeat work, or pay for it again, so it is not a rerun.
    let may_rerun = policy.on_lost == OnLost::Rerun || unit.checkpointed;
    let again = may_rerun && lost < policy.max_lost && !context.is_past_deadline();
    let to = if again { context.ready() } else { context.end(UnitState::Failed, None) };
    Transition { lost, failure, ..to }
}

fn deadline_passed() -> Failure {
    Failure::new("deadline", "its deadline passed before it was done")
}

/// The code of the failure of a unit that a dependency cancelled.
pub const DEPENDENCY_FAILURE: &str = "dependency";

fn dependency_failed(event: &Event<'_>) -> Failure {
    let which = match event {
        Event::DependencyFailed(id) => id.to_string(),
        _ => "a unit".to_owned(),
    };
    Failure::new(DEPENDENCY_FAILURE, format!("its dependency {which} failed or was cancelled"))
}

fn event_name(event: &Event<'_>) -> &'static str {
    match event {
        Event::Finished(_) => "finished",
        Event::Released => "released",
        Event::Lost => "lost",
        Event::Due => "due",
        Event::Unblocked => "unblocked",
        Event::DependencyFailed(_) => "failed by a dependency",
        Event::Expired => "expired",
        Event::Cancel => "cancelled",
        Event::Retry | Event::RetryBlocked => "retried",
        Event::Wake => "woken",
    }
}

/// Whether a unit must run with no other beside it. It ran each time that a worker died; alone, it
/// either succeeds and is cleared, or is proven to be the cause.
pub fn runs_alone(lost: u32) -> bool {
    lost >= 2
}
