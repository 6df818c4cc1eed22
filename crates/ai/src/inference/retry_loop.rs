//! The attempts of one call: retries while that may help, and forwards a streamed answer.

use std::sync::Arc;
use std::time::Duration;

use longshore::Context;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::admission::breaker::InFlight;
use super::call::ProfileCall;
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
    pub(super) in_flight: Option<InFlight<'c>>,
    pub(super) attempts: u32,
    /// Part of the answer was forwarded: no retry is possible.
    pub(super) streamed: bool,
}

impl RetryLoop<'_, '_> {
    /// Asks until an answer arrives or a retry cannot help.
    pub(super) async fn run(&mut self, question: &Question) -> Result<Answer, AskError> {
        let (inner, upstream) = (self.call.inner, &self.call.entry.upstream);
        let owner = inner.profile_cache.tenant(&self.call.request.tenant).await?;
        let tenant = &owner.waiting;
        let policy = self.call.entry.profile.retry.policy();
        let (mut attempt, mut before) = (0, None);
        loop {
            // If it cannot be sent again, the previous error says more.
            let in_flight = match self.in_flight.take() {
                Some(in_flight) => Ok(in_flight),
                None => upstream.send(tenant, self.tokens, question.until).await,
            };
            let in_flight = in_flight.map_err(|error| before.take().unwrap_or(error))?;
            attempt += 1;
            self.attempts += 1;
            let result = self.attempt(question).await;
            in_flight.record(&result);
            let error = match result {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let (now, jitter) = (Instant::now(), jitter(&question.request_id, attempt));
            match policy.decide(attempt, &error, now, question.until, jitter) {
                RetryDecision::Retry { after }
                    if !self.streamed && !self.prefers_fallback(attempt, &error) =>
                {
                    self.back_off(after).await;
                }
                _ => return Err(error),
            }
            let reservation =
                inner.limiter.take(tenant, self.retry_charges(), question.until, WhenPoolFull::Wait);
            let reservation = reservation.await;
            match reservation {
                // Every attempt counts against the request limit, whatever its result.
                Ok(reservation) => drop(reservation),
                Err(_) => return Err(error),
            }
            before = Some(error);
        }
    }

    /// Whether a fallback profile answers sooner than a retry: nothing listens at this one's
    /// endpoint, so that the second attempt failed as the first did.
    fn prefers_fallback(&self, attempt: u32, error: &AskError) -> bool {
        let has_fallback = !self.call.entry.profile.fallback.is_empty();
        has_fallback && error.retry == Retryability::NotSent && attempt >= 2
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
            let model = self.call.entry.profile.asked_model(question.model.as_deref());
            let _ = out.send(AnswerPiece::Started { model: model.to_owned() }).await;
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
