//! Encodes answers and errors for Anthropic's messages API.

use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

use super::anthropic_request;
use super::error::{GatewayError, GatewayErrorKind};
use super::request::{Delivery, ParsedRequest};
use super::response::{ApiFormat, EventEncoder, ResponseMeta};
use crate::chat::ToolCall;
use crate::model_api::{Answer, FinishReason};
use crate::profile::ProviderName;
use crate::raw_json::RawObject;
use crate::sse;

/// Anthropic's messages API.
pub(super) struct Anthropic;

impl ApiFormat for Anthropic {
    fn provider(&self) -> Option<ProviderName> {
        Some(ProviderName::Anthropic)
    }

    fn parse(&self, body: &RawObject) -> Result<ParsedRequest, GatewayError> {
        anthropic_request::parse(body)
    }

    fn encode(&self, meta: &ResponseMeta, answer: &Answer) -> Vec<u8> {
        let mut out = Vec::with_capacity(512 + answer.text.len());
        let text = (!answer.text.is_empty()).then_some(Block::Text { text: &answer.text });
        let calls = answer.tool_calls.iter().map(|call| Block::call(call, &call.input));
        let message = Message {
            model: &answer.model,
            content: text.into_iter().chain(calls).collect(),
            stop_reason: Some(stop_reason(answer)),
            usage: usage(answer),
            ..Message::meta(meta)
        };
        sse::json(&mut out, &message);
        out
    }

    fn events(&self, _delivery: Delivery) -> Box<dyn EventEncoder> {
        Box::new(AnthropicEvents { index: 0, open: false })
    }

    fn error(&self, error: &GatewayError, request_id: &str) -> (StatusCode, Value) {
        let (status, _) = status_of(error.kind);
        (status, error_body(error, request_id))
    }

    fn id_header(&self) -> Option<&'static str> {
        Some("request-id")
    }
}

/// Error types that clients of the API know.
const ERROR_TYPES: [&str; 5] =
    ["invalid_request_error", "not_found_error", "request_too_large", "rate_limit_error", "overloaded_error"];

/// HTTP status and error type.
fn status_of(kind: GatewayErrorKind) -> (StatusCode, &'static str) {
    match kind {
        GatewayErrorKind::InvalidRequest => (StatusCode::BAD_REQUEST, "invalid_request_error"),
        GatewayErrorKind::Unauthenticated => (StatusCode::UNAUTHORIZED, "authentication_error"),
        GatewayErrorKind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large"),
        GatewayErrorKind::NotFound | GatewayErrorKind::UnknownPath => {
            (StatusCode::NOT_FOUND, "not_found_error")
        }
        GatewayErrorKind::Forbidden | GatewayErrorKind::Disabled => {
            (StatusCode::FORBIDDEN, "permission_error")
        }
        GatewayErrorKind::RateLimited => (StatusCode::TOO_MANY_REQUESTS, "rate_limit_error"),
        GatewayErrorKind::OverBudget => (StatusCode::PAYMENT_REQUIRED, "billing_error"),
        GatewayErrorKind::ProviderAuth | GatewayErrorKind::ProviderFailed => {
            (StatusCode::BAD_GATEWAY, "api_error")
        }
        GatewayErrorKind::ProviderBusy => (StatusCode::SERVICE_UNAVAILABLE, "overloaded_error"),
        GatewayErrorKind::Timeout => (StatusCode::GATEWAY_TIMEOUT, "timeout_error"),
        GatewayErrorKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "api_error"),
    }
}

fn error_body(error: &GatewayError, request_id: &str) -> Value {
    let (_, kind) = status_of(error.kind);
    let own = error.provider_error.kind.as_deref().filter(|own| ERROR_TYPES.contains(own));
    let kind = own.unwrap_or(kind);
    let error = json!({"type": kind, "message": error.message});
    json!({"type": "error", "error": error, "request_id": request_id})
}

/// Encodes an answer as events: message start; per block start, deltas and stop; message stop.
struct AnthropicEvents {
    /// Index of the current block, or of the next one.
    index: u32,
    /// A text block is open.
    open: bool,
}

impl EventEncoder for AnthropicEvents {
    fn start(&mut self, meta: &ResponseMeta, out: &mut Vec<u8>) {
        let message = Message::meta(meta);
        event(out, "message_start", &json!({"type": "message_start", "message": message}));
    }

    fn text(&mut self, _meta: &ResponseMeta, text: &str, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.open, true) {
            self.start_block(Block::Text { text: "" }, out);
        }
        self.delta(Delta::TextDelta { text }, out);
    }

    fn call(&mut self, _meta: &ResponseMeta, call: &ToolCall, _number: u32, out: &mut Vec<u8>) {
        self.close(out);
        self.start_block(Block::call(call, &json!({})), out);
        let partial_json = &*call.input.to_string();
        self.delta(Delta::InputJsonDelta { partial_json }, out);
        self.stop(out);
    }

    /// Keeps the event's own name.
    fn raw(&mut self, event: &str, out: &mut Vec<u8>) {
        #[derive(serde::Deserialize)]
        struct Event<'a> {
            #[serde(borrow, rename = "type")]
            name: std::borrow::Cow<'a, str>,
        }
        if let Ok(Event { name }) = serde_json::from_str(event) {
            sse::name(out, &name);
            sse::line(out, event);
        }
    }

    fn finish(&mut self, _meta: &ResponseMeta, answer: &Answer, out: &mut Vec<u8>) {
        self.close(out);
        let delta = json!({"stop_reason": stop_reason(answer), "stop_sequence": null});
        let delta = json!({"type": "message_delta", "delta": delta, "usage": usage(answer)});
        event(out, "message_delta", &delta);
        event(out, "message_stop", &json!({"type": "message_stop"}));
    }

    fn fail(&mut self, meta: &ResponseMeta, error: &GatewayError, out: &mut Vec<u8>) {
        event(out, "error", &error_body(error, &meta.id));
    }
}

impl AnthropicEvents {
    fn start_block(&self, content_block: Block<'_>, out: &mut Vec<u8>) {
        let index = self.index;
        let body = json!({"type": "content_block_start", "index": index, "content_block": content_block});
        event(out, "content_block_start", &body);
    }

    fn delta(&self, delta: Delta<'_>, out: &mut Vec<u8>) {
        let body = BlockDelta { r#type: "content_block_delta", index: self.index, delta };
        event(out, "content_block_delta", &body);
    }

    fn stop(&mut self, out: &mut Vec<u8>) {
        let body = json!({"type": "content_block_stop", "index": self.index});
        event(out, "content_block_stop", &body);
        self.index += 1;
    }

    /// Closes the text block, if one is open.
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
        // The API has no value for other reasons.
        FinishReason::Stop | FinishReason::Other => "end_turn",
    }
}

/// In this API, `input_tokens` does not include tokens read from or written to a cache.
fn usage(answer: &Answer) -> Usage {
    let (minutes, hour) = (answer.tokens_cache_write, answer.tokens_cache_write_long);
    let cached = answer.tokens_cached + minutes + hour;
    Usage {
        input_tokens: answer.tokens_in.saturating_sub(cached),
        output_tokens: answer.tokens_out,
        cache_read_input_tokens: answer.tokens_cached,
        cache_creation_input_tokens: minutes + hour,
        cache_creation: CacheCreation { ephemeral_5m_input_tokens: minutes, ephemeral_1h_input_tokens: hour },
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
    /// A message without content yet.
    fn meta(meta: &'a ResponseMeta) -> Self {
        Self {
            id: Id(&meta.id),
            r#type: "message",
            role: "assistant",
            model: &meta.model,
            content: Vec::new(),
            stop_reason: None,
            stop_sequence: None,
            usage: Usage { input_tokens: meta.tokens_in, ..Usage::default() },
        }
    }
}

/// The answer's id, derived from the request's.
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
struct BlockDelta<'a> {
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
    cache_creation: CacheCreation,
}

#[derive(Serialize, Default)]
struct CacheCreation {
    ephemeral_5m_input_tokens: u64,
    ephemeral_1h_input_tokens: u64,
}
