//! One call of one profile: admission, attempts, settlement.

use std::borrow::Cow;

use longshore::accounts::{Admission, CallEnd, CallRecord, CallStatus, NewCall};
use longshore::{Went, trace};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::admission::{AdmissionError, AdmissionGuard};
use super::batch_api::used_up;
use super::open_call::OpenCall;
use super::profile_cache::{ResolvedProfile, ledger_error};
use super::retry_loop::RetryLoop;
use super::{Errand, Inner, Settled, failed, succeeded};
use crate::chat::Piece;
use crate::model_api::{Again, Answer, AskError, Bill, Code, Question};
use crate::pricing::Mode;
use crate::resilience::TokenReservation;

/// A call of one profile.
pub(super) struct ProfileCall<'d> {
    pub(super) inner: &'d Inner,
    pub(super) entry: &'d ResolvedProfile,
    pub(super) request: &'d Errand,
}

/// What an adaptive pool learns from the result.
fn pool_feedback(result: &Result<Answer, AskError>) -> Went {
    match result {
        Err(error) if error.code == Code::RateLimited => Went::Refused,
        Err(error) if matches!(error.code, Code::ProviderError | Code::Timeout) => Went::Failed,
        _ => Went::Well,
    }
}

/// Settles the reservation of a failed call. A rejected call cost nothing; tokens that may have
/// been billed stay reserved.
fn settle_failed(reservation: TokenReservation, error: &AskError) {
    match &error.bill {
        Bill::Unknown => drop(reservation),
        Bill::Partial(answer) => reservation.settle(answer.tokens_in + answer.tokens_out),
        Bill::Nothing if error.again == Again::NotSent => reservation.release(),
        Bill::Nothing => reservation.settle(0),
    }
}

/// Records the result in the trace span; never the prompt or the answer.
fn record_result(span: &Span, result: &Result<Answer, AskError>) {
    match result {
        Ok(answer) => {
            let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
            span.record("gen_ai.usage.input_tokens", count(answer.tokens_in));
            span.record("gen_ai.usage.output_tokens", count(answer.tokens_out));
        }
        Err(error) => {
            span.record("error.type", error.code.as_str());
            span.record("otel.status_code", "ERROR");
        }
    }
}

impl ProfileCall<'_> {
    /// Makes the call and adds its result to `outcome`.
    pub(super) async fn make(self, pieces: Option<&mpsc::Sender<Piece>>, outcome: &mut Settled) {
        let started = Instant::now();
        let question = self.question();
        let provider = self.entry.profile.provider;
        if let Some(error) = question.raw.as_ref().and_then(|raw| raw.unsupported_by(provider)) {
            return self.reject(&question, error, started, outcome);
        }
        let tokens = self.entry.provider.estimate(&question) + u64::from(question.max_tokens);
        // Once a provider was asked, the unit keeps its slot: a requeued unit would ask again.
        let run = self.request.run.as_ref().filter(|_| outcome.is_pending());
        let guard = match self.admission(run, tokens, question.until).await {
            Ok(guard) => guard,
            Err(AdmissionError::Yielded) => return outcome.yields = true,
            Err(AdmissionError::Rejected(error)) => {
                return self.reject(&question, error, started, outcome);
            }
        };
        let AdmissionGuard { _concurrency, mut permit, reservation, charges, in_flight } = guard;
        let mut call = match self.admit(&question, tokens, outcome).await {
            Ok(call) => call,
            Err(error) => {
                in_flight.cancel();
                reservation.release();
                return self.reject(&question, error, started, outcome);
            }
        };
        call.mark_sent();
        let (attempts, streamed, in_flight) = (0, false, Some(in_flight));
        let mut attempts_loop =
            RetryLoop { call: &self, pieces, tokens, charges, in_flight, attempts, streamed };
        let span = self.span(&question);
        let result = attempts_loop.run(&question).instrument(span.clone()).await;
        record_result(&span, &result);
        let (attempts, streamed) = (attempts_loop.attempts, attempts_loop.streamed);
        if let Some(permit) = &mut permit {
            permit.note(pool_feedback(&result));
        }
        let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let end = match &result {
            Ok(answer) => {
                reservation.settle(answer.tokens_in + answer.tokens_out);
                let now = self.inner.clock.now();
                let cost = self.entry.profile.prices.cost(answer, now, Mode::Direct);
                succeeded(answer, attempts, latency_ms, cost.0)
            }
            Err(error) => {
                settle_failed(reservation, error);
                self.unanswered(&question, error, tokens, (attempts, latency_ms))
            }
        };
        outcome.cost_picos = outcome.cost_picos.saturating_add(end.cost_picos);
        outcome.attempts += attempts;
        outcome.streamed |= streamed;
        // Usually one; a push into an empty vector would allocate space for four.
        outcome.records.reserve_exact(1);
        outcome.records.extend(call.finish(end));
        outcome.result = result.map(|answer| Answer { latency_ms, ..answer });
    }

    /// The call's span, with OpenTelemetry's attribute names for such calls.
    fn span(&self, question: &Question) -> Span {
        let ResolvedProfile { name, profile, .. } = self.entry;
        tracing::info_span!(
            target: trace::TARGET,
            "chat",
            otel.name = %format_args!("chat {}", profile.asked_model(question.model.as_deref())),
            otel.kind = "client",
            otel.status_code = Empty,
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = profile.provider.as_str(),
            gen_ai.request.model = profile.asked_model(question.model.as_deref()),
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
            error.type = Empty,
            tenant = %self.request.tenant,
            profile = %name,
        )
    }

    /// The end of a call that was sent and not answered. If it may have been billed, it counts as
    /// much as was received, or else as much as was reserved.
    fn unanswered(
        &self,
        question: &Question,
        error: &AskError,
        tokens: u64,
        (attempts, latency_ms): (u32, u64),
    ) -> CallEnd {
        let (prices, now) = (&self.entry.profile.prices, self.inner.clock.now());
        let end = failed(error, attempts, latency_ms);
        match &error.bill {
            Bill::Nothing => end,
            Bill::Unknown => {
                let answer = u64::from(question.max_tokens);
                let most = prices.at_most(tokens - answer, answer, now, Mode::Direct);
                maybe_billed(end, tokens - answer, answer, most.0)
            }
            Bill::Partial(answer) => {
                let cost = prices.cost(answer, now, Mode::Direct);
                CallEnd {
                    status: CallStatus::MaybeBilled,
                    code: end.code,
                    estimated: true,
                    ..succeeded(answer, attempts, latency_ms, cost.0)
                }
            }
        }
    }

    /// The question as this profile sends it: with the profile's system prompt if it has none.
    fn question(&self) -> Cow<'_, Question> {
        let (own, asked) = (&self.entry.profile.system, &self.request.question);
        match own {
            Some(_) if asked.system.is_none() => {
                Cow::Owned(Question { system: own.clone(), ..asked.clone() })
            }
            _ => Cow::Borrowed(asked),
        }
    }

    /// Journals the call and reserves its tokens and cost. Without a budget and without a unit, the
    /// caller does not wait for the write.
    async fn admit(
        &self,
        question: &Question,
        tokens: u64,
        outcome: &mut Settled,
    ) -> Result<OpenCall<'_>, AskError> {
        let call = self.new_call(question, tokens);
        let tenant = self.inner.profile_cache.tenant(&self.request.tenant).await?;
        if self.request.unit.is_none() && !tenant.has_budget {
            self.inner.journal.append(CallRecord { call: call.clone(), end: None });
            return Ok(OpenCall::new(self.inner, call));
        }
        Box::pin(self.admitted(call, outcome)).await
    }

    /// Waits for the ledger to admit the call.
    async fn admitted(
        &self,
        call: NewCall,
        outcome: &mut Settled,
    ) -> Result<OpenCall<'_>, AskError> {
        let admitted = self.inner.ledger.admit_calls(vec![call.clone()]).await;
        match admitted.map_err(|error| ledger_error(&error))?.pop() {
            Some(Admission::OverBudget(month)) => Err(used_up(&month)),
            Some(Admission::Duplicate(other)) => {
                outcome.duplicate = Some(other);
                Err(AskError::new(Code::InvalidRequest, "the same request was asked before"))
            }
            Some(Admission::NearBudget(part)) => {
                self.inner.warnings.near_budget(&self.request.tenant, part);
                Ok(OpenCall::new(self.inner, call))
            }
            Some(Admission::Admitted) => Ok(OpenCall::new(self.inner, call)),
            None => Err(AskError::new(Code::Internal, "the ledger did not answer")),
        }
    }

    fn new_call(&self, question: &Question, tokens: u64) -> NewCall {
        let ResolvedProfile { name, profile, .. } = self.entry;
        let model = question.model.as_deref().unwrap_or(&profile.model);
        let questions = tokens - u64::from(question.max_tokens);
        let (now, answer) = (self.inner.clock.now(), u64::from(question.max_tokens));
        let most = profile.prices.at_most(questions, answer, now, Mode::Direct);
        NewCall {
            reserve_tokens: tokens,
            reserve_picos: most.0,
            ..self.inner.new_call(self.request, name, profile.provider.as_str(), model)
        }
    }

    /// Records a call that was rejected before a provider was asked.
    fn reject(
        &self,
        question: &Question,
        error: AskError,
        started: Instant,
        outcome: &mut Settled,
    ) {
        let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        if outcome.duplicate.is_none() {
            let call = self.new_call(question, u64::from(question.max_tokens));
            let call = NewCall { reserve_tokens: 0, reserve_picos: 0, ..call };
            outcome.records.push(CallRecord { call, end: Some(failed(&error, 0, latency_ms)) });
        }
        outcome.result = Err(error);
    }
}

/// The end of a call with an unknown cost.
fn maybe_billed(end: CallEnd, tokens_in: u64, tokens_out: u64, cost_picos: i64) -> CallEnd {
    let status = CallStatus::MaybeBilled;
    CallEnd { status, tokens_in, tokens_out, cost_picos, estimated: true, ..end }
}
