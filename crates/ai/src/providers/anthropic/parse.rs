//! Parses Anthropic's answers, complete and streamed.

use serde::Deserialize;
use serde_json::Value;

use super::super::provider_adapter::{Draft, EventError, Flow, StreamParser, Usage, tool_input};
use crate::chat::{Piece, ToolCall};
use crate::model_api::FinishReason;
use crate::profile::CacheFor;
use crate::sse::DecodedEvent;

/// A message; in a stream, its start.
#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    model: String,
    content: Vec<Block>,
    stop_reason: Option<String>,
    #[serde(default)]
    usage: Counts,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
        #[serde(default)]
        input: Value,
    },
    /// Thinking, and future block types.
    #[serde(other)]
    Other,
}

/// Token counts, as far as they are reported. Later counts of a stream replace earlier ones.
#[derive(Deserialize, Default, Clone)]
struct Counts {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation: Option<Creation>,
    service_tier: Option<String>,
}

#[derive(Deserialize, Clone, Copy)]
struct Creation {
    #[serde(default)]
    ephemeral_1h_input_tokens: u64,
}

impl Counts {
    fn update(&mut self, later: Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.cache_creation_input_tokens =
            later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.cache_read_input_tokens =
            later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.cache_creation = later.cache_creation.or(self.cache_creation);
        self.service_tier = later.service_tier.or_else(|| self.service_tier.take());
    }

    /// Anthropic's `input_tokens` excludes cached tokens; ours includes them.
    fn usage(&self, cache: Option<CacheFor>) -> Usage {
        let written = self.cache_creation_input_tokens.unwrap_or(0);
        let cached = self.cache_read_input_tokens.unwrap_or(0);
        let long = match (self.cache_creation, cache) {
            (Some(creation), _) => creation.ephemeral_1h_input_tokens.min(written),
            (None, Some(CacheFor::Hour)) => written,
            (None, _) => 0,
        };
        Usage {
            input: self
                .input_tokens
                .map(|input| input.saturating_add(written).saturating_add(cached)),
            output: self.output_tokens,
            cached,
            cache_write: written - long,
            cache_write_long: long,
        }
    }

    fn tier(&self) -> Option<String> {
        self.service_tier.clone().filter(|tier| tier != "standard")
    }
}

fn finish(reason: &str) -> FinishReason {
    match reason {
        "end_turn" | "stop_sequence" | "tool_use" => FinishReason::Stop,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "refusal" => FinishReason::ContentFilter,
        _ => FinishReason::Other,
    }
}

/// Parses a complete message.
pub(super) fn answer(body: &[u8], cache: Option<CacheFor>) -> Result<Draft, String> {
    let message: Message = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let mut draft = Draft {
        model: Some(message.model),
        finish: Some(message.stop_reason.as_deref().map_or(FinishReason::Other, finish)),
        tier: message.usage.tier(),
        usage: message.usage.usage(cache),
        ..Draft::default()
    };
    for block in message.content {
        match block {
            Block::Text { text } => draft.text.push_str(&text),
            Block::ToolUse { id, name, input } => {
                draft.tool_calls.push(ToolCall { id, name, input });
            }
            Block::Other => {}
        }
    }
    Ok(draft)
}

/// One event. `ping` and unknown events are ignored.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum StreamEvent {
    MessageStart {
        message: Message,
    },
    ContentBlockStart {
        content_block: Block,
    },
    ContentBlockDelta {
        delta: Delta,
    },
    ContentBlockStop,
    MessageDelta {
        delta: MessageEnd,
        #[serde(default)]
        usage: Counts,
    },
    MessageStop,
    Error,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    Input { partial_json: String },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct MessageEnd {
    stop_reason: Option<String>,
}

/// Parses a message from its events.
pub(super) struct EventParser {
    cache: Option<CacheFor>,
    draft: Draft,
    counts: Counts,
    /// The tool call that is arriving, and its input so far.
    open_call: Option<(ToolCall, String)>,
    stop_reason: Option<String>,
}

impl EventParser {
    pub(super) fn new(cache: Option<CacheFor>) -> Self {
        let draft = Draft::default();
        Self { cache, draft, counts: Counts::default(), open_call: None, stop_reason: None }
    }

    fn text(&mut self, text: String, pieces: &mut Vec<Piece>) {
        if !text.is_empty() {
            self.draft.text.push_str(&text);
            pieces.push(Piece::Text(text));
        }
    }

    fn finish_call(&mut self, pieces: &mut Vec<Piece>) {
        if let Some((mut call, input)) = self.open_call.take() {
            if !input.is_empty() {
                call.input = tool_input(&input);
            }
            self.draft.tool_calls.push(call.clone());
            pieces.push(Piece::ToolCall(call));
        }
    }
}

impl StreamParser for EventParser {
    fn take(&mut self, event: &DecodedEvent, pieces: &mut Vec<Piece>) -> Result<Flow, EventError> {
        match serde_json::from_str(&event.data)? {
            StreamEvent::MessageStart { message } => {
                self.draft.model = Some(message.model);
                self.counts.update(message.usage);
            }
            StreamEvent::ContentBlockStart { content_block: Block::Text { text } } => {
                self.text(text, pieces);
            }
            StreamEvent::ContentBlockStart {
                content_block: Block::ToolUse { id, name, input },
            } => {
                self.open_call = Some((ToolCall { id, name, input }, String::new()));
            }
            StreamEvent::ContentBlockDelta { delta: Delta::Text { text } } => {
                self.text(text, pieces);
            }
            StreamEvent::ContentBlockDelta { delta: Delta::Input { partial_json } } => {
                if let Some((_, input)) = &mut self.open_call {
                    input.push_str(&partial_json);
                }
            }
            StreamEvent::ContentBlockStop => self.finish_call(pieces),
            StreamEvent::MessageDelta { delta, usage } => {
                self.stop_reason = delta.stop_reason.or(self.stop_reason.take());
                self.counts.update(usage);
            }
            StreamEvent::MessageStop => {
                let reason = self.stop_reason.as_deref();
                self.draft.finish = Some(reason.map_or(FinishReason::Other, finish));
                return Ok(Flow::Done);
            }
            StreamEvent::Error => {
                return Err(EventError::Provider(serde_json::from_str(&event.data)?));
            }
            StreamEvent::ContentBlockStart { .. }
            | StreamEvent::ContentBlockDelta { .. }
            | StreamEvent::Other => {}
        }
        Ok(Flow::More)
    }

    fn draft(mut self: Box<Self>) -> Draft {
        self.draft.usage = self.counts.usage(self.cache);
        self.draft.tier = self.counts.tier();
        // The counts of an interrupted stream are those of its start.
        if self.draft.finish.is_none() {
            self.draft.usage.output = None;
        }
        self.draft
    }
}
