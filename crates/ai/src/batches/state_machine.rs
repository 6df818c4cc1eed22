//! The next step for a provider batch, and the transition after each result. Pure:
//! [`super::BatchRunner`] has the effects.
//!
//! What must survive is in the store: that a provider batch was formed, and the provider's id. A
//! [`BatchProgress`] is what one run knows besides that, and may be lost at any time: a batch without it
//! and without an id *may* have been submitted, so the runner searches for it before it submits it
//! again.

use std::time::Duration;

use longshore::accounts::{CloseReason, ProviderBatch};
use longshore::{Timestamp, exponential_delay};
use serde::{Deserialize, Serialize};

use super::{BatchState, BatchTicket, FindResult, was_refused};
use crate::model_api::{AskError, Code, Retryability};

/// Intervals and limits of a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPacing {
    /// First interval between two polls; it grows the longer the batch takes.
    pub poll_interval: Duration,
    /// Longest wait between two attempts.
    pub max_interval: Duration,
    /// How long a new batch may take to appear in the provider's list.
    pub listing_lag: Duration,
    /// How long a question waits for others to fill a batch.
    pub fill_delay: Duration,
    /// Provider batches that a question goes into before it fails.
    pub max_batches: u32,
}

impl Default for BatchPacing {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_secs(30),
            max_interval: Duration::from_secs(600),
            listing_lag: Duration::from_secs(60),
            fill_delay: Duration::from_secs(60),
            max_batches: 5,
        }
    }
}

/// What this run knows of a provider batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchProgress {
    stage: Stage,
    not_before: Timestamp,
    /// Consecutive polls without progress, or failed attempts.
    #[serde(rename = "in_vain")]
    misses: u32,
    /// The provider was asked to cancel it.
    #[serde(default)]
    cancelled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stage {
    /// Formed by this run, or searched for and not found: it was not submitted.
    Unsent,
    /// It may have been submitted.
    #[serde(rename = "perhaps")]
    Uncertain,
    /// Submitted, and not polled yet or still processed.
    #[serde(rename = "out")]
    Submitted,
    /// It has ended and has results.
    Ended,
    /// All its results were delivered.
    Fetched,
}

/// The next step.
#[derive(Debug, Clone, PartialEq)]
pub enum BatchStep {
    /// Nothing before this time.
    Wait(Timestamp),
    /// Search whether it was submitted.
    Find,
    /// Submit it.
    Submit,
    /// Poll its progress.
    Poll(BatchTicket),
    /// Download and deliver its results.
    Fetch(BatchTicket),
    /// Everything is delivered: release the remaining questions for another batch.
    Close,
}

/// What to write to the store before the next step.
#[derive(Debug, Clone, PartialEq)]
pub enum ProviderBatchUpdate {
    /// No change.
    Nothing,
    /// The provider's id.
    Ship(BatchTicket),
    /// Its questions are pending again.
    Release(CloseReason),
    /// Its questions failed.
    Fail(AskError),
    /// Its questions failed, and may have been billed.
    Lost(AskError),
}

impl BatchProgress {
    /// A provider batch that this run has formed.
    pub fn unsubmitted() -> Self {
        Self { stage: Stage::Unsent, not_before: Timestamp::ZERO, misses: 0, cancelled: false }
    }

    /// A provider batch that an earlier run left. Its submission a moment ago may not be listed
    /// yet.
    pub fn from_store(provider_batch: &ProviderBatch, now: Timestamp, pace: &BatchPacing) -> Self {
        match provider_batch.provider_id {
            Some(_) => {
                Self { stage: Stage::Submitted, not_before: Timestamp::ZERO, misses: 0, cancelled: false }
            }
            None => Self {
                stage: Stage::Uncertain,
                not_before: now + pace.listing_lag,
                misses: 0,
                cancelled: false,
            },
        }
    }

    /// Whether it is true however late it is read. "Not submitted" may not be.
    pub fn may_be_stored(&self) -> bool {
        self.stage != Stage::Unsent
    }

    /// Whether the provider was asked to cancel it.
    pub fn was_cancelled(&self) -> bool {
        self.cancelled
    }

    /// The result of a cancellation. The provider rejects it for a batch that has ended, which the
    /// next poll shows.
    pub fn cancelled(&mut self, result: &Result<(), AskError>) {
        self.cancelled = result.as_ref().err().is_none_or(was_refused);
    }

    /// The next step.
    pub fn next(&self, provider_batch: &ProviderBatch, now: Timestamp) -> BatchStep {
        if now < self.not_before {
            return BatchStep::Wait(self.not_before);
        }
        let ticket = provider_batch.provider_id.clone().map(BatchTicket);
        match (self.stage, ticket) {
            (Stage::Fetched, _) => BatchStep::Close,
            (Stage::Ended, Some(ticket)) => BatchStep::Fetch(ticket),
            (_, Some(ticket)) => BatchStep::Poll(ticket),
            (Stage::Unsent, None) => BatchStep::Submit,
            (_, None) => BatchStep::Find,
        }
    }

    /// The result of a submission.
    pub fn submitted(
        &mut self,
        result: Result<BatchTicket, AskError>,
        now: Timestamp,
        pace: &BatchPacing,
    ) -> ProviderBatchUpdate {
        match result {
            Ok(ticket) => self.shipped(ticket, now, pace),
            Err(error) if !was_refused(&error) => {
                self.stage = Stage::Uncertain;
                self.not_before = now + pace.listing_lag;
                ProviderBatchUpdate::Nothing
            }
            // The provider will never accept it.
            Err(error) if error.code == Code::InvalidRequest && error.retry == Retryability::Never => {
                ProviderBatchUpdate::Fail(error)
            }
            Err(error) => self.retry_later(&error, now, pace),
        }
    }

    /// The result of a search.
    pub fn searched(
        &mut self,
        result: Result<FindResult, AskError>,
        now: Timestamp,
        pace: &BatchPacing,
    ) -> ProviderBatchUpdate {
        match result {
            Ok(FindResult::Submitted(ticket)) => self.shipped(ticket, now, pace),
            Ok(FindResult::NotSubmitted) => {
                *self = Self::unsubmitted();
                ProviderBatchUpdate::Nothing
            }
            Ok(FindResult::Unknown) => self.poll_later(now, pace),
            Err(error) => self.retry_later(&error, now, pace),
        }
    }

    /// The result of a poll.
    pub fn polled(
        &mut self,
        result: Result<BatchState, AskError>,
        now: Timestamp,
        pace: &BatchPacing,
    ) -> ProviderBatchUpdate {
        match result {
            Ok(BatchState::Running { .. }) => self.poll_later(now, pace),
            Ok(BatchState::Ended) => {
                *self = Self { stage: Stage::Ended, ..Self::unsubmitted() };
                ProviderBatchUpdate::Nothing
            }
            Ok(BatchState::Failed(error)) if error.retry == Retryability::Never => {
                ProviderBatchUpdate::Fail(error)
            }
            Ok(BatchState::Failed(_)) => ProviderBatchUpdate::Release(CloseReason::NotProcessed),
            // The provider no longer has it. Its questions may have been billed.
            Err(error) if error.provider_status == Some(404) => ProviderBatchUpdate::Lost(error),
            Err(error) => self.retry_later(&error, now, pace),
        }
    }

    /// The result of delivering its results, or some of them.
    pub fn fetched(
        &mut self,
        result: Result<(), AskError>,
        now: Timestamp,
        pace: &BatchPacing,
    ) -> ProviderBatchUpdate {
        match result {
            Ok(()) => {
                self.stage = Stage::Fetched;
                ProviderBatchUpdate::Nothing
            }
            Err(error) => self.retry_later(&error, now, pace),
        }
    }

    fn shipped(&mut self, ticket: BatchTicket, now: Timestamp, pace: &BatchPacing) -> ProviderBatchUpdate {
        *self = Self {
            stage: Stage::Submitted,
            not_before: now + pace.poll_interval,
            misses: 0,
            cancelled: false,
        };
        ProviderBatchUpdate::Ship(ticket)
    }

    fn poll_later(&mut self, now: Timestamp, pace: &BatchPacing) -> ProviderBatchUpdate {
        self.not_before = now + pace.backoff(self.misses);
        self.misses = self.misses.saturating_add(1);
        ProviderBatchUpdate::Nothing
    }

    /// If an operator has to add credit or fix a key, wait the longest interval.
    fn retry_later(&mut self, error: &AskError, now: Timestamp, pace: &BatchPacing) -> ProviderBatchUpdate {
        let needs_operator = error.retry == Retryability::AfterTopUp || error.code == Code::ProviderAuth;
        let wait = if needs_operator { pace.max_interval } else { pace.backoff(self.misses) };
        self.not_before = now + wait.max(error.retry_after.unwrap_or_default());
        self.misses = self.misses.saturating_add(1);
        ProviderBatchUpdate::Nothing
    }
}

impl BatchPacing {
    fn backoff(&self, misses: u32) -> Duration {
        exponential_delay(self.poll_interval, self.max_interval, misses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

    fn provider_batch(ticket: Option<&str>) -> ProviderBatch {
        ProviderBatch { name: "m".into(), sealed_at: NOW, provider_id: ticket.map(str::to_owned) }
    }

    fn error(status: u16, code: Code, again: Retryability) -> AskError {
        AskError { retry: again, provider_status: Some(status), ..AskError::new(code, "x") }
    }

    fn lost() -> AskError {
        AskError::new(Code::ProviderError, "the connection broke")
    }

    fn ticket() -> BatchTicket {
        BatchTicket("t".into())
    }

    #[test]
    fn what_another_run_left_without_a_ticket_is_looked_for_before_it_is_sent() {
        let pace = BatchPacing::default();
        let mut progress = BatchProgress::from_store(&provider_batch(None), NOW, &pace);
        assert_eq!(progress.next(&provider_batch(None), NOW), BatchStep::Wait(NOW + pace.listing_lag));
        let later = NOW + pace.listing_lag;
        assert_eq!(progress.next(&provider_batch(None), later), BatchStep::Find);
        assert_eq!(
            progress.searched(Ok(FindResult::NotSubmitted), later, &pace),
            ProviderBatchUpdate::Nothing
        );
        assert_eq!(progress.next(&provider_batch(None), later), BatchStep::Submit);
    }

    #[test]
    fn a_submission_nobody_heard_of_is_looked_for() {
        let pace = BatchPacing::default();
        for error in [lost(), error(500, Code::ProviderError, Retryability::Later)] {
            let mut progress = BatchProgress::unsubmitted();
            assert_eq!(progress.next(&provider_batch(None), NOW), BatchStep::Submit);
            assert_eq!(progress.submitted(Err(error), NOW, &pace), ProviderBatchUpdate::Nothing);
            assert_eq!(progress.next(&provider_batch(None), NOW + pace.listing_lag), BatchStep::Find);
            let after = progress.searched(Ok(FindResult::Submitted(ticket())), NOW, &pace);
            assert_eq!(after, ProviderBatchUpdate::Ship(ticket()));
        }
    }

    #[test]
    fn a_refused_submission_is_repeated_later_or_given_up() {
        let pace = BatchPacing::default();
        let mut progress = BatchProgress::unsubmitted();
        let busy = AskError {
            retry_after: Some(Duration::from_secs(90)),
            ..error(429, Code::RateLimited, Retryability::Later)
        };
        assert_eq!(progress.submitted(Err(busy), NOW, &pace), ProviderBatchUpdate::Nothing);
        let then = NOW + Duration::from_secs(90);
        assert_eq!(progress.next(&provider_batch(None), NOW), BatchStep::Wait(then));
        assert_eq!(progress.next(&provider_batch(None), then), BatchStep::Submit);
        let broke = error(402, Code::OverBudget, Retryability::AfterTopUp);
        assert_eq!(progress.submitted(Err(broke), NOW, &pace), ProviderBatchUpdate::Nothing);
        assert_eq!(progress.next(&provider_batch(None), NOW), BatchStep::Wait(NOW + pace.max_interval));
        let senseless = error(400, Code::InvalidRequest, Retryability::Never);
        let after = progress.submitted(Err(senseless.clone()), NOW, &pace);
        assert_eq!(after, ProviderBatchUpdate::Fail(senseless));
    }

    #[test]
    fn a_batch_is_looked_at_ever_more_seldom() {
        let pace = BatchPacing::default();
        let mut progress = BatchProgress::from_store(&provider_batch(Some("t")), NOW, &pace);
        assert_eq!(progress.next(&provider_batch(Some("t")), NOW), BatchStep::Poll(ticket()));
        let mut waits = Vec::new();
        for _ in 0..7 {
            progress.polled(Ok(BatchState::Running { done: 0, total: 1 }), NOW, &pace);
            let BatchStep::Wait(until) = progress.next(&provider_batch(Some("t")), NOW) else {
                panic!("no rest")
            };
            waits.push(until.since(NOW).as_secs());
        }
        assert_eq!(waits, [30, 60, 120, 240, 480, 600, 600]);
    }

    #[test]
    fn what_ended_is_fetched_until_all_of_it_came_and_then_closed() {
        let (pace, out) = (BatchPacing::default(), provider_batch(Some("t")));
        let mut progress = BatchProgress::from_store(&out, NOW, &pace);
        progress.polled(Ok(BatchState::Ended), NOW, &pace);
        assert_eq!(progress.next(&out, NOW), BatchStep::Fetch(ticket()));
        progress.fetched(Err(lost()), NOW, &pace);
        assert_eq!(progress.next(&out, NOW + pace.poll_interval), BatchStep::Fetch(ticket()));
        progress.fetched(Ok(()), NOW, &pace);
        assert_eq!(progress.next(&out, NOW + pace.poll_interval), BatchStep::Close);
    }

    #[test]
    fn a_batch_that_failed_goes_again_unless_it_makes_no_sense() {
        let pace = BatchPacing::default();
        let mut progress = BatchProgress::from_store(&provider_batch(Some("t")), NOW, &pace);
        let full = error(429, Code::RateLimited, Retryability::Later);
        let after = progress.polled(Ok(BatchState::Failed(full)), NOW, &pace);
        assert_eq!(after, ProviderBatchUpdate::Release(CloseReason::NotProcessed));
        let bad = error(400, Code::InvalidRequest, Retryability::Never);
        let after = progress.polled(Ok(BatchState::Failed(bad.clone())), NOW, &pace);
        assert_eq!(after, ProviderBatchUpdate::Fail(bad));
        // Gone: it may have been billed.
        let gone = error(404, Code::InvalidRequest, Retryability::Never);
        assert_eq!(progress.polled(Err(gone.clone()), NOW, &pace), ProviderBatchUpdate::Lost(gone));
    }
}
