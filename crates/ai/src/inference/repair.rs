//! One more request for an answer that does not follow the question's JSON Schema.

use std::sync::Arc;

use crate::chat::{Chat, Message, Part, Role};
use crate::model_api::{Answer, Bill, FinishReason, Question};
use crate::schema::ResponseSchema;

/// The question that asks for a corrected answer. `None` if the answer is valid, or a second
/// request cannot help.
pub(super) fn repair_question(question: &Question, answer: &Answer) -> Option<Question> {
    let schema = ResponseSchema::new(question.schema.as_deref()?).ok()?;
    let why = schema.read(&answer.text).err()?;
    // A truncated or filtered answer would be so again; an answer with tool calls is not the final
    // one.
    if answer.finish_reason != FinishReason::Stop || !answer.tool_calls.is_empty() {
        return None;
    }
    let mut chat = question.chat.as_deref().cloned().unwrap_or_else(|| Chat {
        messages: vec![text_message(Role::User, question.prompt.clone())],
        ..Chat::default()
    });
    chat.messages.push(text_message(Role::Assistant, answer.text.clone()));
    let message = format!(
        "That does not follow the JSON Schema: {why}. Answer again, with nothing but JSON that does."
    );
    chat.messages.push(text_message(Role::User, message));
    Some(Question { chat: Some(Arc::new(chat)), raw: None, ..question.clone() })
}

/// The second answer, with the tokens of both.
pub(super) fn combine(first: &Answer, second: Answer) -> Answer {
    Answer {
        tokens_in: first.tokens_in + second.tokens_in,
        tokens_out: first.tokens_out + second.tokens_out,
        tokens_cached: first.tokens_cached + second.tokens_cached,
        tokens_cache_write: first.tokens_cache_write + second.tokens_cache_write,
        tokens_cache_write_long: first.tokens_cache_write_long + second.tokens_cache_write_long,
        latency_ms: first.latency_ms + second.latency_ms,
        estimated: first.estimated || second.estimated,
        ..second
    }
}

/// The first answer, with the tokens that a failed correction may have been billed for.
pub(super) fn with_repair_cost(answer: Answer, again: &Question, bill: Bill) -> Answer {
    let unknown = || Answer {
        tokens_in: again.estimate(),
        tokens_out: again.max_tokens.into(),
        estimated: true,
        ..Answer::default()
    };
    let spent = match bill {
        Bill::Nothing => return answer,
        Bill::Unknown => unknown(),
        Bill::Partial(partial) => *partial,
    };
    let sum = combine(&spent, answer.clone());
    Answer { estimated: true, latency_ms: answer.latency_ms, ..sum }
}

fn text_message(role: Role, text: String) -> Message {
    Message { role, parts: vec![Part::Text(text)] }
}
