//! Answers that should be JSON of a certain form, and one chance to mend one that is not.

use std::sync::Arc;

use crate::ask::{Answer, Bill, FinishReason, Question};
use crate::chat::{Chat, Message, Part, Role};
use crate::schema::ResponseSchema;

/// The question that asks for a better answer; `None` if the answer is as it should be, or cannot be
/// mended.
pub(super) fn repair(question: &Question, answer: &Answer) -> Option<Question> {
    let schema = ResponseSchema::new(question.schema.as_deref()?).ok()?;
    let why = schema.read(&answer.text).err()?;
    // One that was cut or withheld would be so again; one that calls tools is not there yet.
    if answer.finish_reason != FinishReason::Stop || !answer.tool_calls.is_empty() {
        return None;
    }
    let mut chat = question.chat.as_deref().cloned().unwrap_or_else(|| Chat {
        messages: vec![said(Role::User, question.prompt.clone())],
        ..Chat::default()
    });
    chat.messages.push(said(Role::Assistant, answer.text.clone()));
    let words = format!(
        "That does not follow the JSON Schema: {why}. Answer again, with nothing but JSON that does."
    );
    chat.messages.push(said(Role::User, words));
    Some(Question { chat: Some(Arc::new(chat)), raw: None, ..question.clone() })
}

/// The better answer, at the price of both.
pub(super) fn both(first: &Answer, second: Answer) -> Answer {
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

/// An answer at the price of itself and of an attempt to mend it that may have been billed.
pub(super) fn with_bill(answer: Answer, again: &Question, bill: Bill) -> Answer {
    let unknown = || Answer {
        tokens_in: again.estimate(),
        tokens_out: again.max_tokens.into(),
        estimated: true,
        ..Answer::default()
    };
    let spent = match bill {
        Bill::Nothing => return answer,
        Bill::Unknown => unknown(),
        Bill::Came(came) => *came,
    };
    let sum = both(&spent, answer.clone());
    Answer { estimated: true, latency_ms: answer.latency_ms, ..sum }
}

fn said(role: Role, text: String) -> Message {
    Message { role, parts: vec![Part::Text(text)] }
}
