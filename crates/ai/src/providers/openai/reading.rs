//! Chat completions, whole and in chunks.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::super::dialect::{Draft, Fault, Flow, Reading, Usage, tool_input};
use crate::ask::FinishReason;
use crate::chat::{Piece, ToolCall};
use crate::http::Event;

/// A completion, or a chunk of one: they differ in what a choice has.
#[derive(Deserialize)]
struct Completion<'a> {
    #[serde(default)]
    model: Option<String>,
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    usage: Option<Counts>,
    #[serde(borrow)]
    service_tier: Option<Word<'a>>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(alias = "delta")]
    message: Option<Said>,
    #[serde(borrow)]
    finish_reason: Option<Word<'a>>,
}

/// A word that is only looked at: not copied where nothing in it is escaped.
#[derive(Deserialize)]
struct Word<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Said {
    content: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<Call>>,
}

/// A tool call, or a part of one: only the first has a name.
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

/// Here the question's tokens are all of them, as ours are.
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

/// The tiers that have the usual price.
fn tier(tier: Option<Word<'_>>) -> Option<String> {
    let Word(tier) = tier?;
    (!matches!(&*tier, "default" | "auto" | "standard")).then(|| tier.into_owned())
}

/// Reads a whole completion.
pub(super) fn whole(body: &[u8]) -> Result<Draft, String> {
    // Once for all: otherwise each word in it would be checked by itself.
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    let completion: Completion<'_> =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    let choice = completion.choices.unwrap_or_default().into_iter().next();
    let choice = choice.ok_or("there is no choice in it")?;
    let message = choice.message.ok_or("there is no message in it")?;
    let reason = choice.finish_reason.map_or(FinishReason::Other, |Word(reason)| finish(&reason));
    let refused = message.refusal.is_some();
    let calls = message.tool_calls.unwrap_or_default();
    Ok(Draft {
        text: message.content.or(message.refusal).unwrap_or_default(),
        model: completion.model,
        tool_calls: calls.into_iter().enumerate().map(|(at, call)| call.whole(at)).collect(),
        finish: Some(if refused { FinishReason::ContentFilter } else { reason }),
        tier: tier(completion.service_tier),
        usage: completion.usage.map(Usage::from).unwrap_or_default(),
    })
}

impl Call {
    fn whole(self, at: usize) -> ToolCall {
        let mut calling = Calling::default();
        calling.add(self);
        calling.call(at)
    }
}

/// A call whose parts are coming.
#[derive(Default)]
struct Calling {
    id: String,
    name: String,
    arguments: String,
}

impl Calling {
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

/// Reads a completion from its chunks.
#[derive(Default)]
pub(super) struct Chunks {
    draft: Draft,
    calls: Vec<Calling>,
    refused: bool,
}

impl Chunks {
    fn choice(&mut self, choice: Choice<'_>, pieces: &mut Vec<Piece>) {
        if let Some(said) = choice.message {
            self.refused |= said.refusal.is_some();
            let text = said.content.or(said.refusal).filter(|text| !text.is_empty());
            if let Some(text) = text {
                self.draft.text.push_str(&text);
                pieces.push(Piece::Text(text));
            }
            for part in said.tool_calls.unwrap_or_default() {
                self.part(part);
            }
        }
        if let Some(Word(reason)) = choice.finish_reason {
            let reason = if self.refused { FinishReason::ContentFilter } else { finish(&reason) };
            self.draft.finish = Some(reason);
            self.called(pieces);
        }
    }

    /// Parts name their call by its place. Servers that leave it out send each call in one.
    fn part(&mut self, part: Call) {
        let at = part.index.unwrap_or(self.calls.len()).min(self.calls.len());
        if at == self.calls.len() {
            self.calls.push(Calling::default());
        }
        self.calls[at].add(part);
    }

    fn called(&mut self, pieces: &mut Vec<Piece>) {
        for (at, call) in std::mem::take(&mut self.calls).into_iter().enumerate() {
            let call = call.call(at);
            self.draft.tool_calls.push(call.clone());
            pieces.push(Piece::ToolCall(call));
        }
    }
}

impl Reading for Chunks {
    fn take(&mut self, event: &Event, pieces: &mut Vec<Piece>) -> Result<Flow, Fault> {
        if event.data.trim() == "[DONE]" {
            return Ok(Flow::Done);
        }
        let chunk: Completion<'_> = serde_json::from_str(&event.data)?;
        if let Some(error) = chunk.error {
            return Err(Fault::Told(error));
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
