//! What is done next about a shipment, and what each answer means for it. Pure: effects are the
//! [`super::Conductor`]'s.
//!
//! What must survive is in the store: that a shipment was sealed, and its ticket. A [`Note`] is what one run
//! knows beside that, and may be lost at any moment: a shipment without a note and without a ticket *may*
//! have been submitted, so it is looked for before it is submitted again.

use std::time::Duration;

use longshore::Timestamp;
use longshore::ledger::{Return, Shipment};
use serde::{Deserialize, Serialize};

use super::{BatchState, BatchTicket, Found, was_refused};
use crate::ask::{Again, AskError, Code};

/// How patient a conductor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// How long between two looks at a batch, at first; the longer it takes, the longer.
    pub look: Duration,
    /// The longest wait between two tries of anything.
    pub most: Duration,
    /// How long it may take until a new batch is in the provider's list.
    pub lag: Duration,
    /// How long a question waits for others to go with.
    pub gather: Duration,
    /// How many shipments a question goes with before it is given up.
    pub tries: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            look: Duration::from_secs(30),
            most: Duration::from_secs(600),
            lag: Duration::from_secs(60),
            gather: Duration::from_secs(60),
            tries: 5,
        }
    }
}

/// What this run knows of a shipment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Note {
    stage: Stage,
    not_before: Timestamp,
    /// Looks that brought nothing new, or tries that failed, in a row.
    in_vain: u32,
    /// The provider was asked to cancel it.
    #[serde(default)]
    cancelled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stage {
    /// It was sealed by this run, or looked for and not found: nobody has sent it.
    Unsent,
    /// Nobody knows whether it was sent.
    Perhaps,
    /// It is out, or nobody has looked yet.
    Out,
    /// It has ended, and there are results.
    Ended,
    /// All its results were delivered.
    Fetched,
}

/// What is done next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Nothing, before this.
    Rest(Timestamp),
    /// Look whether it was submitted.
    Find,
    /// Submit it.
    Submit,
    /// Look how far it is.
    Poll(BatchTicket),
    /// Deliver its results.
    Fetch(BatchTicket),
    /// All is delivered that there is: what is left goes with another.
    Close,
}

/// What is to be written down before the next step.
#[derive(Debug, Clone, PartialEq)]
pub enum After {
    /// Nothing.
    Nothing,
    /// Its ticket.
    Ship(BatchTicket),
    /// That nothing was done about what is in it, which waits again.
    Release(Return),
    /// That there will be no answer to anything in it.
    GiveUp(AskError),
    /// The same, but there may have been one.
    Lost(AskError),
}

impl Note {
    /// Of a shipment that this run has sealed.
    pub fn of_a_new_one() -> Self {
        Self { stage: Stage::Unsent, not_before: Timestamp::ZERO, in_vain: 0, cancelled: false }
    }

    /// Of a shipment that another run has left behind, now. What that run did a moment ago may not show yet.
    pub fn of_a_found_one(shipment: &Shipment, now: Timestamp, pace: &Pace) -> Self {
        match shipment.ticket {
            Some(_) => Self {
                stage: Stage::Out,
                not_before: Timestamp::ZERO,
                in_vain: 0,
                cancelled: false,
            },
            None => Self {
                stage: Stage::Perhaps,
                not_before: now + pace.lag,
                in_vain: 0,
                cancelled: false,
            },
        }
    }

    /// Whether it is true however much later it is read: that nobody has sent it may not be.
    pub fn may_be_kept(&self) -> bool {
        self.stage != Stage::Unsent
    }

    /// Whether the provider was asked to cancel it.
    pub fn was_cancelled(&self) -> bool {
        self.cancelled
    }

    /// After the provider was asked to cancel it. One that has ended refuses, and will be found to have.
    pub fn cancelled(&mut self, said: &Result<(), AskError>) {
        self.cancelled = said.as_ref().err().is_none_or(was_refused);
    }

    /// What is done next.
    pub fn next(&self, shipment: &Shipment, now: Timestamp) -> Step {
        if now < self.not_before {
            return Step::Rest(self.not_before);
        }
        let ticket = shipment.ticket.clone().map(BatchTicket);
        match (self.stage, ticket) {
            (Stage::Fetched, _) => Step::Close,
            (Stage::Ended, Some(ticket)) => Step::Fetch(ticket),
            (_, Some(ticket)) => Step::Poll(ticket),
            (Stage::Unsent, None) => Step::Submit,
            (_, None) => Step::Find,
        }
    }

    /// After it was submitted, perhaps.
    pub fn submitted(
        &mut self,
        said: Result<BatchTicket, AskError>,
        now: Timestamp,
        pace: &Pace,
    ) -> After {
        match said {
            Ok(ticket) => self.out(ticket, now, pace),
            Err(error) if !was_refused(&error) => {
                self.stage = Stage::Perhaps;
                self.not_before = now + pace.lag;
                After::Nothing
            }
            // It makes no sense to the provider, and never will.
            Err(error) if error.code == Code::InvalidRequest && error.again == Again::Never => {
                After::GiveUp(error)
            }
            Err(error) => self.later(&error, now, pace),
        }
    }

    /// After it was looked for.
    pub fn looked_for(
        &mut self,
        said: Result<Found, AskError>,
        now: Timestamp,
        pace: &Pace,
    ) -> After {
        match said {
            Ok(Found::Here(ticket)) => self.out(ticket, now, pace),
            Ok(Found::Nowhere) => {
                *self = Self::of_a_new_one();
                After::Nothing
            }
            Ok(Found::NotYetKnown) => self.still(now, pace),
            Err(error) => self.later(&error, now, pace),
        }
    }

    /// After it was looked at.
    pub fn polled(
        &mut self,
        said: Result<BatchState, AskError>,
        now: Timestamp,
        pace: &Pace,
    ) -> After {
        match said {
            Ok(BatchState::Going { .. }) => self.still(now, pace),
            Ok(BatchState::Ended) => {
                *self = Self { stage: Stage::Ended, ..Self::of_a_new_one() };
                After::Nothing
            }
            Ok(BatchState::Failed(error)) if error.again == Again::Never => After::GiveUp(error),
            Ok(BatchState::Failed(_)) => After::Release(Return::Untried),
            // It was there and is not any more. What was in it may have been billed.
            Err(error) if error.provider_status == Some(404) => After::Lost(error),
            Err(error) => self.later(&error, now, pace),
        }
    }

    /// After its results were delivered, or some of them.
    pub fn fetched(&mut self, said: Result<(), AskError>, now: Timestamp, pace: &Pace) -> After {
        match said {
            Ok(()) => {
                self.stage = Stage::Fetched;
                After::Nothing
            }
            Err(error) => self.later(&error, now, pace),
        }
    }

    fn out(&mut self, ticket: BatchTicket, now: Timestamp, pace: &Pace) -> After {
        *self =
            Self { stage: Stage::Out, not_before: now + pace.look, in_vain: 0, cancelled: false };
        After::Ship(ticket)
    }

    fn still(&mut self, now: Timestamp, pace: &Pace) -> After {
        self.not_before = now + pace.wait(self.in_vain);
        self.in_vain = self.in_vain.saturating_add(1);
        After::Nothing
    }

    /// Where somebody has to pay or to mend a key, there is no hurry.
    fn later(&mut self, error: &AskError, now: Timestamp, pace: &Pace) -> After {
        let person = error.again == Again::Money || error.code == Code::ProviderAuth;
        let wait = if person { pace.most } else { pace.wait(self.in_vain) };
        self.not_before = now + wait.max(error.retry_after.unwrap_or_default());
        self.in_vain = self.in_vain.saturating_add(1);
        After::Nothing
    }
}

impl Pace {
    fn wait(&self, in_vain: u32) -> Duration {
        self.look.saturating_mul(1 << in_vain.min(10)).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

    fn shipment(ticket: Option<&str>) -> Shipment {
        Shipment { mark: "m".into(), sealed_at: NOW, ticket: ticket.map(str::to_owned) }
    }

    fn error(status: u16, code: Code, again: Again) -> AskError {
        AskError { again, provider_status: Some(status), ..AskError::new(code, "x") }
    }

    fn lost() -> AskError {
        AskError::new(Code::ProviderError, "the connection broke")
    }

    fn ticket() -> BatchTicket {
        BatchTicket("t".into())
    }

    #[test]
    fn what_another_run_left_without_a_ticket_is_looked_for_before_it_is_sent() {
        let pace = Pace::default();
        let mut note = Note::of_a_found_one(&shipment(None), NOW, &pace);
        assert_eq!(note.next(&shipment(None), NOW), Step::Rest(NOW + pace.lag));
        let later = NOW + pace.lag;
        assert_eq!(note.next(&shipment(None), later), Step::Find);
        assert_eq!(note.looked_for(Ok(Found::Nowhere), later, &pace), After::Nothing);
        assert_eq!(note.next(&shipment(None), later), Step::Submit);
    }

    #[test]
    fn a_submission_nobody_heard_of_is_looked_for() {
        let pace = Pace::default();
        for error in [lost(), error(500, Code::ProviderError, Again::Later)] {
            let mut note = Note::of_a_new_one();
            assert_eq!(note.next(&shipment(None), NOW), Step::Submit);
            assert_eq!(note.submitted(Err(error), NOW, &pace), After::Nothing);
            assert_eq!(note.next(&shipment(None), NOW + pace.lag), Step::Find);
            let after = note.looked_for(Ok(Found::Here(ticket())), NOW, &pace);
            assert_eq!(after, After::Ship(ticket()));
        }
    }

    #[test]
    fn a_refused_submission_is_repeated_later_or_given_up() {
        let pace = Pace::default();
        let mut note = Note::of_a_new_one();
        let busy = AskError {
            retry_after: Some(Duration::from_secs(90)),
            ..error(429, Code::RateLimited, Again::Later)
        };
        assert_eq!(note.submitted(Err(busy), NOW, &pace), After::Nothing);
        let then = NOW + Duration::from_secs(90);
        assert_eq!(note.next(&shipment(None), NOW), Step::Rest(then));
        assert_eq!(note.next(&shipment(None), then), Step::Submit);
        let broke = error(402, Code::OverBudget, Again::Money);
        assert_eq!(note.submitted(Err(broke), NOW, &pace), After::Nothing);
        assert_eq!(note.next(&shipment(None), NOW), Step::Rest(NOW + pace.most));
        let senseless = error(400, Code::InvalidRequest, Again::Never);
        let after = note.submitted(Err(senseless.clone()), NOW, &pace);
        assert_eq!(after, After::GiveUp(senseless));
    }

    #[test]
    fn a_batch_is_looked_at_ever_more_seldom() {
        let pace = Pace::default();
        let mut note = Note::of_a_found_one(&shipment(Some("t")), NOW, &pace);
        assert_eq!(note.next(&shipment(Some("t")), NOW), Step::Poll(ticket()));
        let mut waits = Vec::new();
        for _ in 0..7 {
            note.polled(Ok(BatchState::Going { done: 0, total: 1 }), NOW, &pace);
            let Step::Rest(until) = note.next(&shipment(Some("t")), NOW) else { panic!("no rest") };
            waits.push(until.since(NOW).as_secs());
        }
        assert_eq!(waits, [30, 60, 120, 240, 480, 600, 600]);
    }

    #[test]
    fn what_ended_is_fetched_until_all_of_it_came_and_then_closed() {
        let (pace, out) = (Pace::default(), shipment(Some("t")));
        let mut note = Note::of_a_found_one(&out, NOW, &pace);
        note.polled(Ok(BatchState::Ended), NOW, &pace);
        assert_eq!(note.next(&out, NOW), Step::Fetch(ticket()));
        note.fetched(Err(lost()), NOW, &pace);
        assert_eq!(note.next(&out, NOW + pace.look), Step::Fetch(ticket()));
        note.fetched(Ok(()), NOW, &pace);
        assert_eq!(note.next(&out, NOW + pace.look), Step::Close);
    }

    #[test]
    fn a_batch_that_failed_goes_again_unless_it_makes_no_sense() {
        let pace = Pace::default();
        let mut note = Note::of_a_found_one(&shipment(Some("t")), NOW, &pace);
        let full = error(429, Code::RateLimited, Again::Later);
        let after = note.polled(Ok(BatchState::Failed(full)), NOW, &pace);
        assert_eq!(after, After::Release(Return::Untried));
        let bad = error(400, Code::InvalidRequest, Again::Never);
        let after = note.polled(Ok(BatchState::Failed(bad.clone())), NOW, &pace);
        assert_eq!(after, After::GiveUp(bad));
        // Gone: it may have been billed.
        let gone = error(404, Code::InvalidRequest, Again::Never);
        assert_eq!(note.polled(Err(gone.clone()), NOW, &pace), After::Lost(gone));
    }
}
