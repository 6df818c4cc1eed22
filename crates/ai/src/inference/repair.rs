//! One more call for an answer that does not follow the question's JSON Schema. It is a call of its
//! own: it reserves its own tokens and cost, and has its own record.

use std::sync::Arc;

use longshore::accounts::CallEnd;
use scopeguard::{ScopeGuard, guard};
use tokio::time::Instant;

use super::InferenceOutcome;
use super::admission::{AdmissionError, YieldingWait};
use super::call::ProfileCall;
use super::retry_loop::RetryLoop;
use crate::chat::{Chat, ChatRole, Message, Part};
use crate::model_api::{Answer, FinishReason, Question};
use crate::pricing::PriceMode;
use crate::resilience::TokenReservation;
use crate::schema::schema_violation;

impl ProfileCall<'_> {
    /// Asks for a corrected answer if the outcome has one that does not follow the schema. If the
    /// call is not admitted or fails, the first answer stays: it was paid for, and its reader
    /// reports what is wrong with it.
    pub(super) async fn repair(
        &self,
        question: &Question,
        retries: &mut RetryLoop<'_, '_>,
        outcome: &mut InferenceOutcome,
    ) {
        let Ok(first) = &outcome.result else { return };
        let Some(again) = repair_question(question, first).await else { return };
        let first = first.clone();
        // Boxed: corrections are rare, and every call's future would carry the space.
        let asked = Box::pin(self.ask_again(&first, &again, retries, outcome)).await;
        if let Err(AdmissionError::Rejected(error)) = asked {
            tracing::info!(request_id = again.request_id, %error, "an answer was not corrected");
        }
    }

    async fn ask_again(
        &self,
        first: &Answer,
        again: &Question,
        retries: &mut RetryLoop<'_, '_>,
        outcome: &mut InferenceOutcome,
    ) -> Result<(), AdmissionError> {
        let started = Instant::now();
        let bound = self.inner.bound(self.entry, &self.request.tenant, again, PriceMode::Direct).await?;
        let (tokens, wait) = (self.expected_tokens(again), YieldingWait { run: None, until: again.until });
        let in_flight = self.pass_breaker(again, tokens, wait).await?;
        let charges = self.charges(tokens).await?;
        let reservation = guard(self.reserve_tokens(wait, &charges).await?, TokenReservation::release);
        let mut call = self.reserve_budget(again, &bound).await?;
        call.begin(again);
        (retries.attempts, retries.in_flight) = (0, Some(in_flight));
        let result = retries.run(again).await;
        let end = bound.bill(ScopeGuard::into_inner(reservation), &result, retries.attempts, started);
        outcome.result = Ok(with_tokens(result.unwrap_or_else(|_| first.clone()), first, &end));
        outcome.add(call.finish(end));
        Ok(())
    }
}

/// The question that asks for a corrected answer. `None` if the answer is valid, or a second
/// request cannot help.
async fn repair_question(question: &Question, answer: &Answer) -> Option<Question> {
    let schema = question.schema.as_ref()?;
    // A truncated or filtered answer would be so again; an answer with tool calls is not the final
    // one.
    if answer.finish_reason != FinishReason::Stop || !answer.tool_calls.is_empty() {
        return None;
    }
    let why = schema_violation(schema, &answer.text).await.ok()??;
    let mut chat = question.chat.as_deref().cloned().unwrap_or_else(|| Chat {
        messages: vec![text_message(ChatRole::User, question.prompt.clone())],
        ..Chat::default()
    });
    chat.messages.push(text_message(ChatRole::Assistant, answer.text.clone()));
    let message = format!(
        "That does not follow the JSON Schema: {why}. Answer again, with nothing but JSON that does."
    );
    chat.messages.push(text_message(ChatRole::User, message));
    Some(Question { chat: Some(Arc::new(chat)), raw: None, ..question.clone() })
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
