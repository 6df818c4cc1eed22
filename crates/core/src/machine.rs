//! The unit's state machine: one pure function, [`next`].
//!
//! Stores load a unit's [`Head`], ask `next`, and write what it says. They decide nothing
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

use crate::name::UnitId;
use crate::outcome::{Failure, Outcome};
use crate::rank::Priority;
use crate::retry::{OnLost, Policy};
use crate::time::Timestamp;
use crate::unit::UnitState;

/// What the decision looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Its identity, the source of the jitter.
    pub id: UnitId,
    /// Where it stands.
    pub state: UnitState,
    /// How early it goes.
    pub priority: Priority,
    /// Attempts used, the present one included once started.
    pub attempt: u32,
    /// Runs lost with their workers.
    pub lost: u32,
    /// Whether the present lease has been started.
    pub started: bool,
    /// When it was sent.
    pub created_at: Timestamp,
    /// No run after this.
    pub deadline: Option<Timestamp>,
    /// Someone asked for it to be cancelled while it ran.
    pub cancel_requested: bool,
    /// An earlier run left a checkpoint: the next one goes on from there.
    pub checkpointed: bool,
    /// Not ready before this, however soon what it waits for has ended.
    pub not_before: Option<Timestamp>,
}

/// What happened to the unit.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Its handler answered.
    Finished(&'a Outcome),
    /// Its holder gave it back without starting it.
    Released,
    /// Its holder died.
    Lost,
    /// Its time came.
    Due,
    /// All it waited for has ended.
    Unblocked,
    /// Something it waited for did not end well.
    DependencyFailed(UnitId),
    /// Its deadline passed while it waited.
    Expired,
    /// An operator cancels it.
    Cancel,
    /// An operator wants it run again.
    Retry,
    /// What it waits for has come: it need not wait for its time.
    Wake,
}

/// Where the unit goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// The new state.
    pub state: UnitState,
    /// Its place within that state: the rank when ready, the due time when scheduled, the end
    /// when final. Smaller comes first.
    pub place: Timestamp,
    /// Attempts used from now on.
    pub attempt: u32,
    /// Losses from now on.
    pub lost: u32,
    /// What to record, for a run that did not end well.
    pub failure: Option<Failure>,
}

/// Why an event does not apply to a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a unit that is {state} cannot be {wanted}")]
pub struct NotApplicable {
    /// Where the unit stands.
    pub state: UnitState,
    /// What was wanted of it.
    pub wanted: &'static str,
}

/// What `unit` does when `event` happens at `now`.
///
/// ```
/// use longshore_core::machine::{Event, Head, next};
/// use longshore_core::{Outcome, Policy, Priority, Timestamp, UnitId, UnitState};
///
/// let now = Timestamp::from_micros(1_000_000);
/// let unit = Head {
///     id: UnitId::new(), state: UnitState::Leased, priority: Priority::NORMAL, attempt: 1,
///     lost: 0, started: true, created_at: now, deadline: None, cancel_requested: false,
///     checkpointed: false, not_before: None,
/// };
/// let step = next(&unit, &Event::Finished(&Outcome::Done(None)), &Policy::default(), now).unwrap();
/// assert_eq!(step.state, UnitState::Done);
/// ```
pub fn next(
    unit: &Head,
    event: &Event<'_>,
    policy: &Policy,
    now: Timestamp,
) -> Result<Transition, NotApplicable> {
    use UnitState::{Blocked, Cancelled, Failed, Leased, Ready, Scheduled};
    let step = Step { unit, now };
    match (event, unit.state) {
        (Event::Released, Leased) => Ok(released(&step)),
        (Event::Lost, Leased) => Ok(lost(&step, "its worker died while it ran", policy)),
        (Event::Finished(outcome), Leased) => Ok(finished(&step, outcome, policy)),
        (Event::Due | Event::Wake, Scheduled) => Ok(step.ready()),
        (Event::Unblocked, Blocked) => Ok(step.at(unit.not_before.unwrap_or(now))),
        (Event::DependencyFailed(_), Blocked) => {
            Ok(step.ended(Cancelled, Some(dependency_failed(event))))
        }
        (Event::Expired, Blocked | Scheduled | Ready) => {
            Ok(step.ended(Failed, Some(deadline_passed())))
        }
        (Event::Cancel, Blocked | Scheduled | Ready) => Ok(step.ended(Cancelled, None)),
        (Event::Retry, Failed | Cancelled | Scheduled) => {
            Ok(Transition { attempt: 0, lost: 0, ..step.ready() })
        }
        (event, state) => Err(NotApplicable { state, wanted: wanted(event) }),
    }
}

struct Step<'a> {
    unit: &'a Head,
    now: Timestamp,
}

impl Step<'_> {
    fn ready(&self) -> Transition {
        self.to(UnitState::Ready, self.unit.priority.rank(self.now), None)
    }

    /// Ready again at its old place: it did not have its turn.
    fn back(&self) -> Transition {
        self.to(UnitState::Ready, self.unit.priority.rank(self.unit.created_at), None)
    }

    fn at(&self, due: Timestamp) -> Transition {
        if due <= self.now { self.ready() } else { self.to(UnitState::Scheduled, due, None) }
    }

    fn ended(&self, state: UnitState, failure: Option<Failure>) -> Transition {
        self.to(state, self.now, failure)
    }

    fn to(&self, state: UnitState, place: Timestamp, failure: Option<Failure>) -> Transition {
        let Head { attempt, lost, .. } = *self.unit;
        Transition { state, place, attempt, lost, failure }
    }

    /// The same step with this run's attempt given back.
    fn refunded(&self, step: Transition) -> Transition {
        let used = u32::from(self.unit.started);
        Transition { attempt: self.unit.attempt.saturating_sub(used), ..step }
    }

    fn is_late(&self) -> bool {
        self.unit.deadline.is_some_and(|deadline| deadline <= self.now)
    }
}

fn finished(step: &Step<'_>, outcome: &Outcome, policy: &Policy) -> Transition {
    let unit = step.unit;
    let to = match outcome {
        // Late but done is done: work that was paid for is not thrown away.
        Outcome::Done(_) => step.ended(UnitState::Done, None),
        Outcome::Fail(failure) => step.ended(UnitState::Failed, Some(failure.clone())),
        Outcome::Cancel => step.ended(UnitState::Cancelled, None),
        _ if unit.cancel_requested => step.ended(UnitState::Cancelled, None),
        Outcome::Retry { failure, after } => {
            let delay = after.unwrap_or_else(|| policy.retry.delay(unit.id, unit.attempt));
            let due = step.now + delay;
            let in_time = unit.deadline.is_none_or(|deadline| due < deadline);
            let again = in_time && policy.retry.allows(unit.attempt, unit.created_at, due);
            let to = if again { step.at(due) } else { step.ended(UnitState::Failed, None) };
            Transition { failure: Some(failure.clone()), ..to }
        }
        Outcome::Snooze(_) | Outcome::Interrupted if step.is_late() => {
            step.ended(UnitState::Failed, Some(deadline_passed()))
        }
        Outcome::Snooze(after) => step.refunded(step.at(step.now + *after)),
        Outcome::Interrupted => step.refunded(step.back()),
        Outcome::Lost(story) => return lost(step, story, policy),
    };
    to.cleared(unit)
}

impl Transition {
    /// A run that came to an end, whichever, clears its unit of having killed earlier workers.
    fn cleared(self, unit: &Head) -> Self {
        Self { lost: if unit.started { 0 } else { self.lost }, ..self }
    }
}

fn released(step: &Step<'_>) -> Transition {
    if step.unit.cancel_requested {
        return step.ended(UnitState::Cancelled, None);
    }
    step.refunded(step.back())
}

/// A unit that had not been started is not to blame and loses nothing.
fn lost(step: &Step<'_>, story: &str, policy: &Policy) -> Transition {
    let unit = step.unit;
    if unit.cancel_requested {
        return step.ended(UnitState::Cancelled, None);
    }
    if !unit.started {
        return step.back();
    }
    let lost = unit.lost + 1;
    let story = format!("{story} ({lost} of {} allowed)", policy.max_lost);
    let failure = Some(Failure::new("lost", story));
    // What was reached and kept need not be done, or paid, again: going on from it is no rerun.
    let may_rerun = policy.on_lost == OnLost::Rerun || unit.checkpointed;
    let again = may_rerun && lost < policy.max_lost && !step.is_late();
    let to = if again { step.ready() } else { step.ended(UnitState::Failed, None) };
    Transition { lost, failure, ..to }
}

fn deadline_passed() -> Failure {
    Failure::new("deadline", "its deadline passed before it was done")
}

fn dependency_failed(event: &Event<'_>) -> Failure {
    let which = match event {
        Event::DependencyFailed(id) => id.to_string(),
        _ => "a unit".to_owned(),
    };
    Failure::new("dependency", format!("{which}, which it waited for, did not end well"))
}

fn wanted(event: &Event<'_>) -> &'static str {
    match event {
        Event::Finished(_) => "finished",
        Event::Released => "released",
        Event::Lost => "lost",
        Event::Due => "due",
        Event::Unblocked => "unblocked",
        Event::DependencyFailed(_) => "failed by a dependency",
        Event::Expired => "expired",
        Event::Cancel => "cancelled",
        Event::Retry => "retried",
        Event::Wake => "woken",
    }
}

/// Whether a unit must run with nothing beside it: it was there each time a worker died, and
/// alone it either clears its name or is proven to be the cause.
pub fn runs_alone(lost: u32) -> bool {
    lost >= 2
}
