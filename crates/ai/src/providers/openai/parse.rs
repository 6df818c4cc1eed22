//! Parses chat completions, complete and streamed.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::super::provider_adapter::{Draft, EventError, Flow, StreamParser, Usage, tool_input};
use crate::chat::{Piece, ToolCall};
use crate::model_api::FinishReason;
use crate::sse::DecodedEvent;

/// A completion, or a chunk of one: only the choices differ.
#[derive(Deserialize)]
struct Completion<'a> {
    #[serde(default)]
    model: Option<String>,
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    usage: Option<Counts>,
    #[serde(borrow)]
    service_tier: Option<BorrowedStr<'a>>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(alias = "delta")]
    message: Option<ResponseMessage>,
    #[serde(borrow)]
    finish_reason: Option<BorrowedStr<'a>>,
}

/// A string that is only compared: borrowed unless it contains escapes.
#[derive(Deserialize)]
struct BorrowedStr<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct ResponseMessage {
    content: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<Call>>,
}

/// A tool call, or a part of one: only the first part has a name.
#[derive(Deserialize)]
struct Call {
    index: Option<usize>,
    id: Option<String>,
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: Option<String>,
    arguments: Option<String>,
}

/// As in our counts, the prompt's tokens include the cached ones.
#[derive(Deserialize, Clone, Copy)]
struct Counts {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize, Clone, Copy, Default)]
struct Details {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

impl From<Counts> for Usage {
    fn from(counts: Counts) -> Self {
        let details = counts.prompt_tokens_details.unwrap_or_default();
        Self {
            input: counts.prompt_tokens,
            output: counts.completion_tokens,
            cached: details.cached_tokens.unwrap_or(0),
            cache_write: details.cache_write_tokens.unwrap_or(0),
            cache_write_long: 0,
        }
    }
}

fn finish(reason: &str) -> FinishReason {
    match reason {
        "stop" | "tool_calls" | "function_call" => FinishReason::Stop,
        "length" => FinishReason::Length,
        "content_filter" => FinishReason::ContentFilter,
        _ => FinishReason::Other,
    }
}

/// The service tier, unless it has the standard price.
fn tier(tier: Option<BorrowedStr<'_>>) -> Option<String> {
    let BorrowedStr(tier) = tier?;
    (!matches!(&*tier, "default" | "auto" | "standard")).then(|| tier.into_owned())
}

/// Parses a complete completion.
pub(super) fn answer(body: &[u8]) -> Result<Draft, String> {
    // Validated once: otherwise serde would validate each string by itself.
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    let completion: Completion<'_> =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    let choice = completion.choices.unwrap_or_default().into_iter().next();
    let choice = choice.ok_or("it has no choice")?;
    let message = choice.message.ok_or("it has no message")?;
    let reason =
        choice.finish_reason.map_or(FinishReason::Other, |BorrowedStr(reason)| finish(&reason));
    let refused = message.refusal.is_some();
    let calls = message.tool_calls.unwrap_or_default();
    Ok(Draft {
        text: message.content.or(message.refusal).unwrap_or_default(),
        model: completion.model,
        tool_calls: calls
            .into_iter()
            .enumerate()
            .map(|(at, call)| call.into_tool_call(at))
            .collect(),
        finish: Some(if refused { FinishReason::ContentFilter } else { reason }),
        tier: tier(completion.service_tier),
        usage: completion.usage.map(Usage::from).unwrap_or_default(),
    })
}

impl Call {
    fn into_tool_call(self, at: usize) -> ToolCall {
        let mut partial = PartialToolCall::default();
        partial.add(self);
        partial.call(at)
    }
}

/// A tool call that is arriving in parts.
#[derive(Default)]
struct PartialToolCall {
    id: String,
    name: String,
    arguments: String,
}

impl PartialToolCall {
    fn add(&mut self, part: Call) {
        self.id.push_str(part.id.as_deref().unwrap_or_default());
        if let Some(function) = part.function {
            self.name.push_str(function.name.as_deref().unwrap_or_default());
            self.arguments.push_str(function.arguments.as_deref().unwrap_or_default());
        }
    }

    fn call(self, at: usize) -> ToolCall {
        let id = if self.id.is_empty() { format!("call_{at}") } else { self.id };
        ToolCall { id, name: self.name, input: tool_input(&self.arguments) }
    }
}

/// Parses a completion from its chunks.
#[derive(Default)]
pub(super) struct ChunkParser {
    draft: Draft,
    calls: Vec<PartialToolCall>,
    refused: bool,
}

impl ChunkParser {
    fn choice(&mut self, choice: Choice<'_>, pieces: &mut Vec<Piece>) {
        if let Some(message) = choice.message {
            self.refused |= message.refusal.is_some();
            let text = message.content.or(message.refusal).filter(|text| !text.is_empty());
            if let Some(text) = text {
                self.draft.text.push_str(&text);
                pieces.push(Piece::Text(text));
            }
            for part in message.tool_calls.unwrap_or_default() {
                self.part(part);
            }
        }
        if let Some(BorrowedStr(reason)) = choice.finish_reason {
            let reason = if self.refused { FinishReason::ContentFilter } else { finish(&reason) };
            self.draft.finish = Some(reason);
            self.finish_calls(pieces);
        }
    }

    /// Parts name their call by its index. Servers that omit it send each call in one part.
    fn part(&mut self, part: Call) {
        let at = part.index.unwrap_or(self.calls.len()).min(self.calls.len());
        if at == self.calls.len() {
            self.calls.push(PartialToolCall::default());
        }
        self.calls[at].add(part);
    }

    fn finish_calls(&mut self, pieces: &mut Vec<Piece>) {
        for (at, call) in std::mem::take(&mut self.calls).into_iter().enumerate() {
            let call = call.call(at);
            self.draft.tool_calls.push(call.clone());
            pieces.push(Piece::ToolCall(call));
        }
    }
}

impl StreamParser for ChunkParser {
    fn take(&mut self, event: &DecodedEvent, pieces: &mut Vec<Piece>) -> Result<Flow, EventError> {
        if event.data.trim() == "[DONE]" {
            return Ok(Flow::Done);
        }
        let chunk: Completion<'_> = serde_json::from_str(&event.data)?;
        if let Some(error) = chunk.error {
            return Err(EventError::Provider(error));
        }
        self.draft.model = chunk.model.or(self.draft.model.take());
        self.draft.tier = tier(chunk.service_tier).or(self.draft.tier.take());
        if let Some(counts) = chunk.usage {
            self.draft.usage = counts.into();
        }
        if let Some(choice) = chunk.choices.unwrap_or_default().into_iter().next() {
            self.choice(choice, pieces);
        }
        Ok(Flow::More)
    }

    fn draft(self: Box<Self>) -> Draft {
        self.draft
    }
}
