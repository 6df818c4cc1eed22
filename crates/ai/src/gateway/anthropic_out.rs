//! Anthropic's messages, from an answer to the wire.

use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

use super::anthropic_in;
use super::refusal::{Refusal, Why};
use super::sse;
use super::wire::{About, Asked, Delivery, Teller, Wire};
use crate::ask::{Answer, FinishReason};
use crate::chat::{Piece, ToolCall};
use crate::object::Object;
use crate::profile::ProviderName;

/// The wire of Anthropic's messages.
pub(super) struct Anthropic;

impl Wire for Anthropic {
    fn name(&self) -> ProviderName {
        ProviderName::Anthropic
    }

    fn read(&self, body: &Object) -> Result<Asked, Refusal> {
        anthropic_in::read(body)
    }

    fn whole(&self, about: &About, answer: &Answer) -> Vec<u8> {
        let mut out = Vec::with_capacity(512 + answer.text.len());
        let text = (!answer.text.is_empty()).then_some(Block::Text { text: &answer.text });
        let calls = answer.tool_calls.iter().map(|call| Block::call(call, &call.input));
        let message = Message {
            model: &answer.model,
            content: text.into_iter().chain(calls).collect(),
            stop_reason: Some(stop_reason(answer)),
            usage: usage(answer),
            ..Message::about(about)
        };
        sse::json(&mut out, &message);
        out
    }

    fn teller(&self, about: About, _delivery: Delivery) -> Box<dyn Teller> {
        let (index, calls) = (0, 0);
        Box::new(Telling {
            about,
            begun: false,
            index,
            open: false,
            words: false,
            calls,
            raw: false,
        })
    }

    fn refuse(&self, refusal: &Refusal, request_id: &str) -> (StatusCode, Vec<u8>) {
        let (status, _) = words(refusal.why);
        let mut out = Vec::new();
        sse::json(&mut out, &error(refusal, request_id));
        (status, out)
    }

    fn id_header(&self) -> Option<&'static str> {
        Some("request-id")
    }
}

/// Status and type of a refusal.
fn words(why: Why) -> (StatusCode, &'static str) {
    match why {
        Why::Malformed => (StatusCode::BAD_REQUEST, "invalid_request_error"),
        Why::Stranger => (StatusCode::UNAUTHORIZED, "authentication_error"),
        Why::TooLong => (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large"),
        Why::Unknown => (StatusCode::NOT_FOUND, "not_found_error"),
        Why::Disabled => (StatusCode::FORBIDDEN, "permission_error"),
        Why::RateLimited => (StatusCode::TOO_MANY_REQUESTS, "rate_limit_error"),
        Why::OverBudget => (StatusCode::PAYMENT_REQUIRED, "billing_error"),
        Why::ProviderAuth | Why::ProviderFailed => (StatusCode::BAD_GATEWAY, "api_error"),
        Why::ProviderBusy => (StatusCode::SERVICE_UNAVAILABLE, "overloaded_error"),
        Why::Timeout => (StatusCode::GATEWAY_TIMEOUT, "timeout_error"),
        Why::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "api_error"),
    }
}

fn error(refusal: &Refusal, request_id: &str) -> Value {
    let (_, kind) = words(refusal.why);
    let error = json!({"type": kind, "message": refusal.message});
    json!({"type": "error", "error": error, "request_id": request_id})
}

/// Tells an answer as events: the message begins, blocks begin, grow and end, the message ends.
struct Telling {
    about: About,
    begun: bool,
    /// The block that is told, or the next.
    index: u32,
    /// A block of text is being told.
    open: bool,
    /// Some of the text was told.
    words: bool,
    /// How many calls of tools were told.
    calls: usize,
    /// The provider's own events are handed on.
    raw: bool,
}

impl Teller for Telling {
    fn piece(&mut self, piece: Piece, out: &mut Vec<u8>) {
        match piece {
            Piece::Begun { model } => self.about.model = model,
            Piece::Text(text) => self.text(&text, out),
            Piece::ToolCall(call) => self.call(&call, out),
            Piece::Raw(line) => self.line(&line, out),
        }
    }

    fn end(&mut self, answer: &Answer, out: &mut Vec<u8>) {
        if self.raw {
            return;
        }
        if !self.words {
            self.text(&answer.text, out);
        }
        for call in answer.tool_calls.iter().skip(self.calls) {
            self.call(call, out);
        }
        self.begin(out);
        self.close(out);
        let delta = json!({"stop_reason": stop_reason(answer), "stop_sequence": null});
        let delta = json!({"type": "message_delta", "delta": delta, "usage": usage(answer)});
        event(out, "message_delta", &delta);
        event(out, "message_stop", &json!({"type": "message_stop"}));
    }

    fn fail(&mut self, refusal: &Refusal, out: &mut Vec<u8>) {
        event(out, "error", &error(refusal, &self.about.id));
    }
}

impl Telling {
    fn begin(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.begun, true) {
            let message = Message::about(&self.about);
            event(out, "message_start", &json!({"type": "message_start", "message": message}));
        }
    }

    fn text(&mut self, text: &str, out: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        self.begin(out);
        self.words = true;
        if !std::mem::replace(&mut self.open, true) {
            self.start(Block::Text { text: "" }, out);
        }
        self.grow(Delta::TextDelta { text }, out);
    }

    fn call(&mut self, call: &ToolCall, out: &mut Vec<u8>) {
        self.begin(out);
        self.close(out);
        self.start(Block::call(call, &json!({})), out);
        let partial_json = &*call.input.to_string();
        self.grow(Delta::InputJsonDelta { partial_json }, out);
        self.stop(out);
        self.calls += 1;
    }

    /// The provider's own event, under its own name.
    fn line(&mut self, line: &str, out: &mut Vec<u8>) {
        #[derive(serde::Deserialize)]
        struct Event<'a> {
            #[serde(borrow, rename = "type")]
            name: std::borrow::Cow<'a, str>,
        }
        self.raw = true;
        if let Ok(Event { name }) = serde_json::from_str(line) {
            sse::name(out, &name);
            sse::line(out, line);
        }
    }

    fn start(&self, content_block: Block<'_>, out: &mut Vec<u8>) {
        let index = self.index;
        let body =
            json!({"type": "content_block_start", "index": index, "content_block": content_block});
        event(out, "content_block_start", &body);
    }

    fn grow(&self, delta: Delta<'_>, out: &mut Vec<u8>) {
        let body = Grown { r#type: "content_block_delta", index: self.index, delta };
        event(out, "content_block_delta", &body);
    }

    fn stop(&mut self, out: &mut Vec<u8>) {
        let body = json!({"type": "content_block_stop", "index": self.index});
        event(out, "content_block_stop", &body);
        self.index += 1;
    }

    /// Ends the block of text, if one is open.
    fn close(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.open) {
            self.stop(out);
        }
    }
}

fn event(out: &mut Vec<u8>, name: &str, body: &impl Serialize) {
    sse::name(out, name);
    sse::data(out, body);
}

fn stop_reason(answer: &Answer) -> &'static str {
    match answer.finish_reason {
        FinishReason::Length => "max_tokens",
        FinishReason::ContentFilter => "refusal",
        _ if !answer.tool_calls.is_empty() => "tool_use",
        // The wire has no word for the rest.
        FinishReason::Stop | FinishReason::Other => "end_turn",
    }
}

/// On this wire, tokens that a cache had to do with are not among the others.
fn usage(answer: &Answer) -> Usage {
    let (minutes, hour) = (answer.tokens_cache_write, answer.tokens_cache_write_long);
    let cached = answer.tokens_cached + minutes + hour;
    Usage {
        input_tokens: answer.tokens_in.saturating_sub(cached),
        output_tokens: answer.tokens_out,
        cache_read_input_tokens: answer.tokens_cached,
        cache_creation_input_tokens: minutes + hour,
        cache_creation: Written {
            ephemeral_5m_input_tokens: minutes,
            ephemeral_1h_input_tokens: hour,
        },
    }
}

#[derive(Serialize)]
struct Message<'a> {
    id: Id<'a>,
    r#type: &'static str,
    role: &'static str,
    model: &'a str,
    content: Vec<Block<'a>>,
    stop_reason: Option<&'static str>,
    stop_sequence: Option<&'static str>,
    usage: Usage,
}

impl<'a> Message<'a> {
    /// A message of which nothing is known yet but what was asked.
    fn about(about: &'a About) -> Self {
        Self {
            id: Id(&about.id),
            r#type: "message",
            role: "assistant",
            model: &about.model,
            content: Vec::new(),
            stop_reason: None,
            stop_sequence: None,
            usage: Usage { input_tokens: about.tokens_in, ..Usage::default() },
        }
    }
}

/// A request's id as that of its answer.
struct Id<'a>(&'a str);

impl Serialize for Id<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("msg_{}", self.0))
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text { text: &'a str },
    ToolUse { id: &'a str, name: &'a str, input: &'a Value },
}

impl<'a> Block<'a> {
    fn call(call: &'a ToolCall, input: &'a Value) -> Self {
        Self::ToolUse { id: &call.id, name: &call.name, input }
    }
}

#[derive(Serialize)]
struct Grown<'a> {
    r#type: &'static str,
    index: u32,
    delta: Delta<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Delta<'a> {
    TextDelta { text: &'a str },
    InputJsonDelta { partial_json: &'a str },
}

#[derive(Serialize, Default)]
struct Usage {
    input_tokens: u64,
    output_tokens: u64,
    cache_read_input_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_creation: Written,
}

#[derive(Serialize, Default)]
struct Written {
    ephemeral_5m_input_tokens: u64,
    ephemeral_1h_input_tokens: u64,
}
