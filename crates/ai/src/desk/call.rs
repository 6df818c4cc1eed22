//! One profile is asked: room, leave, tries, and what it came to.

use std::borrow::Cow;

use longshore::ledger::{Admission, CallEnd, CallRecord, CallStatus, NewCall};
use longshore::{Went, trace};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::attempts::TriesOf;
use super::bulk::used_up;
use super::leave::{Leave, NoLeave};
use super::open_call::OpenCall;
use super::register::{Entry, away};
use super::{Errand, Inner, Settled, failed, succeeded};
use crate::ask::{Again, Answer, AskError, Bill, Code, Question};
use crate::chat::Piece;
use crate::limiter::Taken;
use crate::rate::Mode;

/// A call of one profile.
pub(super) struct CallToMake<'d> {
    pub(super) desk: &'d Inner,
    pub(super) entry: &'d Entry,
    pub(super) errand: &'d Errand,
}

/// What a pool that finds its own maximum goes by.
fn went(result: &Result<Answer, AskError>) -> Went {
    match result {
        Err(error) if error.code == Code::RateLimited => Went::Refused,
        Err(error) if matches!(error.code, Code::ProviderError | Code::Timeout) => Went::Failed,
        _ => Went::Well,
    }
}

/// Settles what came to an error: one that was refused cost nothing, and what may have been billed stays
/// taken.
fn settle(taken: Taken, error: &AskError) {
    match &error.bill {
        Bill::Unknown => drop(taken),
        Bill::Came(answer) => taken.settle(answer.tokens_in + answer.tokens_out),
        Bill::Nothing if error.again == Again::NotSent => taken.give_back(),
        Bill::Nothing => taken.settle(0),
    }
}

/// Tells whoever follows the trace what a call came to; never what was asked or answered.
fn told(span: &Span, result: &Result<Answer, AskError>) {
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

impl CallToMake<'_> {
    /// Asks, and adds to `settled` what came of it.
    pub(super) async fn make(self, pieces: Option<&mpsc::Sender<Piece>>, settled: &mut Settled) {
        let begun = Instant::now();
        let question = self.question();
        let wire = self.entry.profile.provider;
        if let Some(error) = question.raw.as_ref().and_then(|raw| raw.refusal(wire)) {
            return self.refused(&question, error, begun, settled);
        }
        let tokens = self.entry.provider.estimate(&question) + u64::from(question.max_tokens);
        // Once somebody was asked, the question stays: it would be asked again.
        let run = self.errand.run.as_ref().filter(|_| settled.is_untold());
        let leave = match self.leave(run, tokens, question.until).await {
            Ok(leave) => leave,
            Err(NoLeave::Yields) => return settled.yields = true,
            Err(NoLeave::Refused(error)) => {
                return self.refused(&question, error, begun, settled);
            }
        };
        let Leave { _room, mut permit, taken, needs, out } = leave;
        let mut call = match self.admit(&question, tokens, settled).await {
            Ok(call) => call,
            Err(error) => {
                out.unsent();
                taken.give_back();
                return self.refused(&question, error, begun, settled);
            }
        };
        call.begins();
        let (attempts, handed_on, out) = (0, false, Some(out));
        let mut tries =
            TriesOf { call: &self, pieces, tokens, needs, out, attempts, begun: handed_on };
        let span = self.span(&question);
        let result = tries.run(&question).instrument(span.clone()).await;
        told(&span, &result);
        let (attempts, handed_on) = (tries.attempts, tries.begun);
        if let Some(permit) = &mut permit {
            permit.note(went(&result));
        }
        let latency_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let end = match &result {
            Ok(answer) => {
                taken.settle(answer.tokens_in + answer.tokens_out);
                let now = self.desk.clock.now();
                let cost = self.entry.profile.prices.cost(answer, now, Mode::Direct);
                succeeded(answer, attempts, latency_ms, cost.0)
            }
            Err(error) => {
                settle(taken, error);
                self.unanswered(&question, error, tokens, (attempts, latency_ms))
            }
        };
        settled.cost_picos = settled.cost_picos.saturating_add(end.cost_picos);
        settled.attempts += attempts;
        settled.begun |= handed_on;
        // One is the rule; a vector by itself would make room for four.
        settled.records.reserve_exact(1);
        settled.records.extend(call.ended(end));
        settled.result = result.map(|answer| Answer { latency_ms, ..answer });
    }

    /// The part of a trace that the call is, in the words that OpenTelemetry has for such calls.
    fn span(&self, question: &Question) -> Span {
        let Entry { name, profile, .. } = self.entry;
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
            tenant = %self.errand.tenant,
            profile = %name,
        )
    }

    /// What a question came to that was sent and brought no answer. If it may have been billed it
    /// counts as what came of the answer, or else as much as was reserved for it.
    fn unanswered(
        &self,
        question: &Question,
        error: &AskError,
        tokens: u64,
        (attempts, latency_ms): (u32, u64),
    ) -> CallEnd {
        let (prices, now) = (&self.entry.profile.prices, self.desk.clock.now());
        let end = failed(error, attempts, latency_ms);
        match &error.bill {
            Bill::Nothing => end,
            Bill::Unknown => {
                let answer = u64::from(question.max_tokens);
                let most = prices.at_most(tokens - answer, answer, now, Mode::Direct);
                maybe_billed(end, tokens - answer, answer, most.0)
            }
            Bill::Came(answer) => {
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

    /// The question as this profile has it asked: mostly as it is.
    fn question(&self) -> Cow<'_, Question> {
        let (own, asked) = (&self.entry.profile.system, &self.errand.question);
        match own {
            Some(_) if asked.system.is_none() => {
                Cow::Owned(Question { system: own.clone(), ..asked.clone() })
            }
            _ => Cow::Borrowed(asked),
        }
    }

    /// Journals the call and reserves what it may use. Where nothing is bounded and no unit asks,
    /// nobody waits for that.
    async fn admit(
        &self,
        question: &Question,
        tokens: u64,
        settled: &mut Settled,
    ) -> Result<OpenCall<'_>, AskError> {
        let call = self.new_call(question, tokens);
        let owner = self.desk.register.owner(&self.errand.tenant).await?;
        if self.errand.unit.is_none() && !owner.has_budget {
            self.desk.journal.note(CallRecord { call: call.clone(), end: None });
            return Ok(OpenCall::new(self.desk, call));
        }
        Box::pin(self.admitted(call, settled)).await
    }

    /// Waits for the ledger's word on a call.
    async fn admitted(
        &self,
        call: NewCall,
        settled: &mut Settled,
    ) -> Result<OpenCall<'_>, AskError> {
        let admitted = self.desk.ledger.admit_calls(vec![call.clone()]).await;
        match admitted.map_err(|error| away(&error))?.pop() {
            Some(Admission::OverBudget(month)) => Err(used_up(&month)),
            Some(Admission::Duplicate(other)) => {
                settled.duplicate = Some(other);
                Err(AskError::new(Code::InvalidRequest, "the same request was asked before"))
            }
            Some(Admission::NearBudget(part)) => {
                self.desk.warnings.near_budget(&self.errand.tenant, part);
                Ok(OpenCall::new(self.desk, call))
            }
            Some(Admission::Admitted) => Ok(OpenCall::new(self.desk, call)),
            None => Err(AskError::new(Code::Internal, "the ledger did not answer")),
        }
    }

    fn new_call(&self, question: &Question, tokens: u64) -> NewCall {
        let Entry { name, profile, .. } = self.entry;
        let model = question.model.as_deref().unwrap_or(&profile.model);
        let questions = tokens - u64::from(question.max_tokens);
        let (now, answer) = (self.desk.clock.now(), u64::from(question.max_tokens));
        let most = profile.prices.at_most(questions, answer, now, Mode::Direct);
        NewCall {
            reserve_tokens: tokens,
            reserve_picos: most.0,
            ..self.desk.new_call(self.errand, name, profile.provider.as_str(), model)
        }
    }

    /// Nobody was asked.
    fn refused(&self, question: &Question, error: AskError, begun: Instant, settled: &mut Settled) {
        let latency_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        if settled.duplicate.is_none() {
            let call = self.new_call(question, u64::from(question.max_tokens));
            let call = NewCall { reserve_tokens: 0, reserve_picos: 0, ..call };
            settled.records.push(CallRecord { call, end: Some(failed(&error, 0, latency_ms)) });
        }
        settled.result = Err(error);
    }
}

/// The end of a call of which nobody knows what it cost.
fn maybe_billed(end: CallEnd, tokens_in: u64, tokens_out: u64, cost_picos: i64) -> CallEnd {
    let status = CallStatus::MaybeBilled;
    CallEnd { status, tokens_in, tokens_out, cost_picos, estimated: true, ..end }
}
