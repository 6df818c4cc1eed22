//! One more call for an answer that does not follow the question's JSON Schema. It is a call of its
//! own: it reserves its own tokens and cost, and has its own record. An answer that is wrong after
//! it is an error for the gateway and for `ai ask`.

use std::sync::Arc;

use longshore::accounts::CallEnd;
use scopeguard::{ScopeGuard, guard};
use serde_json::Value;
use tokio::time::Instant;

use super::InferenceOutcome;
use super::admission::{AdmissionError, YieldingWait};
use super::call::ProfileCall;
use super::retry_loop::RetryLoop;
use crate::chat::{Chat, ChatRole, Message, Part};
use crate::model_api::{Answer, AskError, Code, FinishReason, Question};
use crate::pricing::PriceMode;
use crate::providers::openai::finished_choices;
use crate::resilience::TokenReservation;
use crate::schema::schema_violation;

impl ProfileCall<'_> {
    /// Asks for a corrected answer if the outcome has one that does not follow the schema. If the
    /// call is not admitted or fails, or its answer is wrong too, the outcome says so beside the
    /// answer, which was paid for.
    pub(super) async fn repair(
        &self,
        question: &Question,
        retries: &mut RetryLoop<'_, '_>,
        outcome: &mut InferenceOutcome,
    ) {
        let Ok(first) = &outcome.result else { return };
        let Some(schema) = question.schema.as_ref() else { return };
        if let Some(raw) = question.raw.as_ref().filter(|raw| raw.choices > 1).and(first.raw.as_deref()) {
            // A correction has one choice, and the client asked for several.
            let error = choices_violation(schema, raw).await;
            outcome.schema_error = error.map(|error| self.inner.text_without_quotes(error, question));
            return;
        }
        let Some(why) = violation(schema, first).await else { return };
        let (first, again) = (first.clone(), repair_question(question, first, &why));
        // Its tokens are known: the correction may need what it reserved.
        outcome.records.iter().for_each(|record| self.inner.journal.append(record.clone()));
        // Boxed: corrections are rare, and every call's future would carry the space.
        let asked = Box::pin(self.ask_again(&first, &again, retries, outcome)).await;
        let (why, became) = match (asked, &outcome.result) {
            (Err(error), _) => (Some(why), format!("no correction was possible: {error}")),
            (Ok(()), Ok(second)) => {
                (violation(schema, second).await, "a correction was asked for".to_owned())
            }
            (Ok(()), Err(_)) => (None, String::new()),
        };
        let error = why.map(|why| format!("{why} ({became})"));
        outcome.schema_error = error.map(|error| self.inner.text_without_quotes(error, question));
    }

    async fn ask_again(
        &self,
        first: &Answer,
        again: &Question,
        retries: &mut RetryLoop<'_, '_>,
        outcome: &mut InferenceOutcome,
    ) -> Result<(), AskError> {
        let started = Instant::now();
        let bound = self.inner.bound(self.entry, &self.request.tenant, again, PriceMode::Direct).await?;
        let (tokens, wait) = (self.expected_tokens(again), YieldingWait { run: None, until: again.until });
        let mut in_flight = self.pass_breaker(again, tokens, wait).await.map_err(rejection)?;
        let charges = self.charges(tokens).await?;
        let reservation = in_flight.wait_for(self.reserve_tokens(wait, &charges)).await.map_err(rejection)?;
        let reservation = guard(reservation, TokenReservation::release);
        if !in_flight.confirm() {
            return Err(AskError::not_sent("the provider failed meanwhile (circuit breaker open)"));
        }
        let mut call = self.reserve_budget_in_turn(again, &bound, wait).await.map_err(rejection)?;
        call.begin(again);
        (retries.attempts, retries.in_flight) = (0, Some(in_flight));
        let result = retries.run(again).await;
        let end = bound.bill(ScopeGuard::into_inner(reservation), &result, retries.attempts, started);
        let failed = result.as_ref().err().cloned();
        outcome.result = Ok(with_tokens(result.unwrap_or_else(|_| first.clone()), first, &end));
        outcome.add(call.finish(end));
        failed.map_or(Ok(()), Err)
    }
}

/// Why a correction was not admitted.
fn rejection(error: AdmissionError) -> AskError {
    match error {
        AdmissionError::Rejected(error) | AdmissionError::Reserved(error) => error,
        AdmissionError::Yielded | AdmissionError::Duplicate(_) => {
            AskError::new(Code::Internal, "another unit asked the same")
        }
    }
}

/// Why an answer does not follow the schema. A truncated or filtered answer would be so again, and
/// an answer with tool calls is not the final one: they are not checked.
async fn violation(schema: &Arc<Value>, answer: &Answer) -> Option<String> {
    if answer.finish_reason != FinishReason::Stop || !answer.tool_calls.is_empty() {
        return None;
    }
    schema_violation(schema, &answer.text).await.ok()?
}

/// Why one of the choices of an answer that was passed through does not follow the schema.
async fn choices_violation(schema: &Arc<Value>, body: &[u8]) -> Option<String> {
    for (number, text) in finished_choices(body) {
        if let Some(why) = schema_violation(schema, &text).await.ok()? {
            return Some(format!("choice {number}: {why}"));
        }
    }
    None
}

/// The question that asks for a corrected answer.
fn repair_question(question: &Question, answer: &Answer, why: &str) -> Question {
    let mut chat = question.chat.as_deref().cloned().unwrap_or_else(|| Chat {
        messages: vec![text_message(ChatRole::User, question.prompt.clone())],
        ..Chat::default()
    });
    chat.messages.push(text_message(ChatRole::Assistant, answer.text.clone()));
    let message = format!(
        "That does not follow the JSON Schema: {why}. Answer again, with nothing but JSON that does."
    );
    chat.messages.push(text_message(ChatRole::User, message));
    Question { chat: Some(Arc::new(chat)), raw: None, ..question.clone() }
}

/// An answer, with the tokens of the first one and of the correction.
fn with_tokens(answer: Answer, first: &Answer, correction: &CallEnd) -> Answer {
    let long = correction.tokens_cache_write_long;
    Answer {
        tokens_in: first.tokens_in + correction.tokens_in,
        tokens_out: first.tokens_out + correction.tokens_out,
        tokens_cached: first.tokens_cached + correction.tokens_cached,
        tokens_cache_write: first.tokens_cache_write + correction.tokens_cache_write - long,
        tokens_cache_write_long: first.tokens_cache_write_long + long,
        latency_ms: first.latency_ms + correction.latency_ms,
        estimated: first.estimated || correction.estimated,
        ..answer
    }
}

fn text_message(role: ChatRole, text: String) -> Message {
    Message { role, parts: vec![Part::Text(text)] }
}
