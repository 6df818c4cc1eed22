//! The attempts of one call: retries while that may help, and forwards a streamed answer.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use longshore::Context;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::admission::breaker::MAX_WAIT_WITH_FALLBACK;
use super::admission::{AdmissionError, YieldingWait};
use super::call::ProfileCall;
use super::fallback_may_help;
use super::upstream_health::InFlight;
use crate::chat::AnswerPiece;
use crate::model_api::{Answer, AskError, BillingStatus, Code, Question, Retryability};
use crate::profile::WhenPoolFull;
use crate::resilience::{BucketCharge, Measure, RetryDecision};

/// The attempts of one call.
pub(super) struct RetryLoop<'c, 'd> {
    pub(super) call: &'c ProfileCall<'d>,
    pub(super) pieces: Option<&'c mpsc::Sender<AnswerPiece>>,
    /// Tokens that the question and its answer may take.
    pub(super) tokens: u64,
    /// What the first attempt took from the token buckets.
    pub(super) charges: Arc<[BucketCharge]>,
    /// Admission of the first attempt.
    pub(super) in_flight: Option<InFlight>,
    pub(super) attempts: u32,
    /// An attempt reached the provider.
    pub(super) sent: bool,
    /// It was not sent again because the provider's breaker is open.
    pub(super) blocked: bool,
    /// Part of the answer was forwarded: no retry is possible.
    pub(super) streamed: bool,
}

impl<'c, 'd> RetryLoop<'c, 'd> {
    /// The attempts of an admitted call.
    pub(super) fn new(
        call: &'c ProfileCall<'d>,
        pieces: Option<&'c mpsc::Sender<AnswerPiece>>,
        tokens: u64,
        charges: Arc<[BucketCharge]>,
        in_flight: InFlight,
    ) -> Self {
        let (in_flight, attempts) = (Some(in_flight), 0);
        let (sent, blocked, streamed) = (false, false, false);
        Self { call, pieces, tokens, charges, in_flight, attempts, sent, blocked, streamed }
    }

    /// Asks until an answer arrives or a retry cannot help.
    pub(super) async fn run(&mut self, question: &Question) -> Result<Answer, AskError> {
        let policy = self.call.entry.profile.retry.policy();
        let (began, mut attempt) = (Instant::now(), 0);
        let mut admitted = self.in_flight.take();
        loop {
            let in_flight = match admitted.take() {
                Some(in_flight) if Instant::now() < question.until => in_flight,
                _ => return Err(AskError::not_sent("the deadline passed before the question was sent")),
            };
            attempt += 1;
            self.attempts += 1;
            question.sent.begin_attempt();
            let result = self.attempt_as(&in_flight, question).await;
            let (error, next_probe) = match result {
                Err(error) if error.retry == Retryability::NotSent && question.until <= Instant::now() => {
                    // Our own deadline says nothing about the provider.
                    return Err(error);
                }
                result => {
                    let next_probe = in_flight.record(question, &result);
                    self.sent |= !matches!(&result, Err(error) if error.retry == Retryability::NotSent);
                    match result {
                        Ok(answer) => return Ok(answer),
                        Err(error) => (error, next_probe),
                    }
                }
            };
            // While it waits, it is not in flight.
            question.sent.set(error.billing != BillingStatus::Nothing);
            let (now, jitter) = (Instant::now(), jitter(&question.request_id, attempt));
            match policy.decide(attempt, &error, now, question.until, jitter) {
                // While the breaker is not closed, a fallback answers sooner, and other callers wait no longer either.
                RetryDecision::Retry { after }
                    if !self.streamed && next_probe.is_some() && after >= self.call.max_breaker_wait() =>
                {
                    self.blocked = true;
                    return Err(AskError { retry_after: error.retry_after.max(next_probe), ..error });
                }
                RetryDecision::Retry { after }
                    if !self.streamed && !self.prefers_fallback(attempt, &error, began.elapsed() + after) =>
                {
                    self.back_off(after).await;
                }
                _ => return Err(error),
            }
            // If it cannot be sent again, the previous error says more, and the breaker knows when.
            match self.readmit(question).await {
                Ok(in_flight) => admitted = Some(in_flight),
                Err(AdmissionError::Rejected(blocked)) => {
                    self.blocked = blocked.code == Code::ProviderError;
                    let retry_after = error.retry_after.max(blocked.retry_after);
                    return Err(AskError { retry_after, ..error });
                }
                Err(_) => return Err(error),
            }
        }
    }

    /// Admits a retry: the breaker, then one request of the limits.
    async fn readmit(&self, question: &Question) -> Result<InFlight, AdmissionError> {
        let until = match self.call.has_fallback {
            true => question.until.min(Instant::now() + MAX_WAIT_WITH_FALLBACK),
            false => question.until,
        };
        let wait = YieldingWait { run: None, until };
        let inner = self.call.inner;
        let owner = inner.profile_cache.tenant(&self.call.request.tenant).await?;
        loop {
            let mut in_flight = self.call.pass_breaker(question, self.tokens, wait).await?;
            // Every attempt counts against the request limit, whatever its result.
            let charges = self.retry_charges();
            let taking = inner.limiter.take(&owner.waiting, charges, until, WhenPoolFull::Wait);
            let taken = in_flight.wait_for(taking).await;
            drop(taken.map_err(|error| AskError::new(Code::RateLimited, error.to_string()))?);
            if in_flight.confirm() {
                return Ok(in_flight);
            }
        }
    }

    /// Whether a fallback profile is asked instead of a retry: a second attempt failed as the first
    /// did, or the retry would begin so late.
    fn prefers_fallback(&self, attempt: u32, error: &AskError, retry_at: Duration) -> bool {
        let is_late = attempt >= 2 || retry_at >= MAX_WAIT_WITH_FALLBACK;
        self.call.has_fallback && is_late && fallback_may_help(error)
    }

    /// Waits before a retry. The unit keeps its slot, because the call is journalled, but its
    /// worker knows that it only waits.
    async fn back_off(&self, after: Duration) {
        let _waiting = self.call.request.run.as_ref().map(Context::begin_wait);
        tokio::time::sleep(after).await;
    }

    /// What every retry takes: one request, no further tokens.
    fn retry_charges(&self) -> Arc<[BucketCharge]> {
        self.charges.iter().filter(|charge| charge.measure == Measure::Requests).cloned().collect()
    }

    /// Makes an attempt. An answer that begins shows that the provider works.
    async fn attempt_as(&mut self, in_flight: &InFlight, question: &Question) -> Result<Answer, AskError> {
        let mut attempt = pin!(self.attempt(question));
        tokio::select! {
            biased;
            result = &mut attempt => return result,
            () = question.sent.accepted() => in_flight.record_accepted(),
        }
        attempt.await
    }

    async fn attempt(&mut self, question: &Question) -> Result<Answer, AskError> {
        match self.pieces {
            None => self.call.entry.provider.ask(question).await,
            Some(out) => Box::pin(self.stream(question, out)).await,
        }
    }

    /// Streams an answer and forwards its pieces.
    async fn stream(
        &mut self,
        question: &Question,
        out: &mpsc::Sender<AnswerPiece>,
    ) -> Result<Answer, AskError> {
        let provider = &self.call.entry.provider;
        // If nothing was forwarded yet, the question may be retried.
        let (sender, mut pieces) = mpsc::channel(1);
        let asking = provider.stream(question, &sender);
        tokio::pin!(asking);
        loop {
            tokio::select! {
                biased;
                Some(piece) = pieces.recv() => {
                    if !self.forward(question, piece, out).await {
                        // The provider notices the closed channel, and returns what it received.
                        drop(pieces);
                        return disconnected(asking.await);
                    }
                }
                answer = &mut asking => {
                    while let Ok(piece) = pieces.try_recv() {
                        self.forward(question, piece, out).await;
                    }
                    return answer;
                }
                () = out.closed() => {
                    drop(pieces);
                    return disconnected(asking.await);
                }
            }
        }
    }

    /// Forwards a piece, before the first one the model that answers. Returns whether the receiver
    /// is still open.
    async fn forward(
        &mut self,
        question: &Question,
        piece: AnswerPiece,
        out: &mpsc::Sender<AnswerPiece>,
    ) -> bool {
        if !std::mem::replace(&mut self.streamed, true) {
            question.sent.set_accepted();
            let model = self.call.entry.profile.asked_model(question.model.as_deref());
            let dropped = self.call.entry.provider.dropped(question);
            let _ = out.send(AnswerPiece::Started { model: model.to_owned(), dropped }).await;
        }
        out.send(piece).await.is_ok()
    }
}

/// The error if the receiver of an answer was dropped: part of it arrived and is billed.
fn disconnected(answer: Result<Answer, AskError>) -> Result<Answer, AskError> {
    let answer = answer?;
    let bill = BillingStatus::Partial(Box::new(answer));
    Err(AskError { billing: bill, ..AskError::new(Code::Internal, "the caller disconnected") })
}

/// A number from 0 to 1, the same for the same request and attempt.
fn jitter(request_id: &str, attempt: u32) -> f64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (request_id, attempt).hash(&mut hasher);
    hasher.finish() as f64 / u64::MAX as f64
}
