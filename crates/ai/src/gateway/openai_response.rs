//! Encodes answers and errors for OpenAI's chat completions API.

use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

use super::error::{GatewayError, GatewayErrorKind};
use super::openai_request;
use super::request::{Delivery, ParsedRequest};
use super::response::{ApiFormat, EventEncoder, ResponseMeta};
use crate::chat::ToolCall;
use crate::model_api::{Answer, FinishReason};
use crate::profile::ProviderName;
use crate::raw_json::RawObject;
use crate::sse;

/// OpenAI's chat completions API.
pub(super) struct OpenAi;

impl ApiFormat for OpenAi {
    fn provider(&self) -> Option<ProviderName> {
        Some(ProviderName::Openai)
    }

    fn parse(&self, body: &RawObject) -> Result<ParsedRequest, GatewayError> {
        openai_request::parse(body)
    }

    fn encode(&self, meta: &ResponseMeta, answer: &Answer) -> Vec<u8> {
        let mut out = Vec::with_capacity(512 + answer.text.len());
        let mute = answer.text.is_empty() && !answer.tool_calls.is_empty();
        let message = CompleteMessage {
            role: "assistant",
            content: (!mute).then_some(&*answer.text),
            refusal: None,
            tool_calls: answer.tool_calls.iter().map(|call| Call::new(call, None)).collect(),
        };
        let finish_reason = Some(finish_reason(answer));
        let choice = Choice { index: 0, message: Some(message), delta: None, finish_reason };
        let completion = Completion {
            object: "chat.completion",
            choices: &[choice],
            usage: Some(usage(answer)),
            ..Completion::meta(meta, &answer.model)
        };
        sse::json(&mut out, &completion);
        out
    }

    fn events(&self, delivery: Delivery) -> Box<dyn EventEncoder> {
        Box::new(OpenAiEvents { delivery })
    }

    fn error(&self, error: &GatewayError, _request_id: &str) -> (StatusCode, Value) {
        let (status, ..) = status_of(error.kind);
        (status, error_body(error))
    }
}

/// HTTP status, error type and code.
fn status_of(kind: GatewayErrorKind) -> (StatusCode, &'static str, Option<&'static str>) {
    const INVALID: &str = "invalid_request_error";
    const SERVER: &str = "server_error";
    match kind {
        GatewayErrorKind::InvalidRequest => (StatusCode::BAD_REQUEST, INVALID, None),
        GatewayErrorKind::Unauthenticated => (StatusCode::UNAUTHORIZED, INVALID, Some("invalid_api_key")),
        GatewayErrorKind::Forbidden => (StatusCode::FORBIDDEN, INVALID, Some("insufficient_permissions")),
        GatewayErrorKind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, INVALID, Some("request_too_large")),
        GatewayErrorKind::NotFound => (StatusCode::NOT_FOUND, INVALID, Some("model_not_found")),
        GatewayErrorKind::UnknownPath => (StatusCode::NOT_FOUND, INVALID, Some("unknown_url")),
        GatewayErrorKind::Disabled => (StatusCode::FORBIDDEN, INVALID, Some("profile_disabled")),
        GatewayErrorKind::RateLimited => {
            (StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", Some("rate_limit_exceeded"))
        }
        GatewayErrorKind::OverBudget => {
            (StatusCode::TOO_MANY_REQUESTS, "insufficient_quota", Some("insufficient_quota"))
        }
        GatewayErrorKind::ProviderAuth => (StatusCode::BAD_GATEWAY, SERVER, Some("provider_auth")),
        GatewayErrorKind::ProviderFailed => (StatusCode::BAD_GATEWAY, SERVER, Some("provider_error")),
        GatewayErrorKind::ProviderBusy => (StatusCode::SERVICE_UNAVAILABLE, SERVER, Some("provider_error")),
        GatewayErrorKind::Timeout => (StatusCode::GATEWAY_TIMEOUT, SERVER, Some("timeout")),
        GatewayErrorKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, SERVER, Some("internal")),
    }
}

fn error_body(error: &GatewayError) -> Value {
    let (_, kind, code) = status_of(error.kind);
    let GatewayError { message, param, provider_error, .. } = error;
    let kind = provider_error.kind.as_deref().unwrap_or(kind);
    let code = provider_error.code.as_deref().or(code);
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}

/// Encodes an answer as chunks.
struct OpenAiEvents {
    delivery: Delivery,
}

impl EventEncoder for OpenAiEvents {
    fn start(&mut self, meta: &ResponseMeta, out: &mut Vec<u8>) {
        let role = Delta { role: Some("assistant"), content: Some(""), ..Delta::default() };
        write_delta(meta, role, out);
    }

    fn text(&mut self, meta: &ResponseMeta, text: &str, out: &mut Vec<u8>) {
        write_delta(meta, Delta { content: Some(text), ..Delta::default() }, out);
    }

    fn call(&mut self, meta: &ResponseMeta, call: &ToolCall, number: u32, out: &mut Vec<u8>) {
        let tool_calls = vec![Call::new(call, Some(number))];
        write_delta(meta, Delta { tool_calls, ..Delta::default() }, out);
    }

    /// Leaves a usage event out that only the gateway asked for.
    fn raw(&mut self, event: &str, out: &mut Vec<u8>) {
        let unrequested = self.delivery != Delivery::StreamWithUsage && is_usage(event);
        if event != "[DONE]" && !unrequested {
            sse::line(out, event);
        }
    }

    fn finish(&mut self, meta: &ResponseMeta, answer: &Answer, out: &mut Vec<u8>) {
        let end = Choice { finish_reason: Some(finish_reason(answer)), ..Choice::delta(Delta::default()) };
        let meta = || Completion::meta(meta, &answer.model);
        sse::data(out, &Completion { choices: &[end], ..meta() });
        if self.delivery == Delivery::StreamWithUsage {
            sse::data(out, &Completion { usage: Some(usage(answer)), ..meta() });
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        sse::line(out, "[DONE]");
    }

    fn fail(&mut self, _meta: &ResponseMeta, error: &GatewayError, out: &mut Vec<u8>) {
        sse::data(out, &error_body(error));
    }
}

fn write_delta(meta: &ResponseMeta, delta: Delta<'_>, out: &mut Vec<u8>) {
    let meta = Completion::meta(meta, &meta.model);
    sse::data(out, &Completion { choices: &[Choice::delta(delta)], ..meta });
}

/// Whether an event contains nothing but the usage.
fn is_usage(line: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Chunk {
        choices: Vec<serde::de::IgnoredAny>,
        usage: Option<serde::de::IgnoredAny>,
    }
    // Most events are text and need not be parsed.
    line.contains("\"usage\"")
        && serde_json::from_str::<Chunk>(line)
            .is_ok_and(|chunk| chunk.choices.is_empty() && chunk.usage.is_some())
}

pub(super) fn finish_reason(answer: &Answer) -> &'static str {
    match answer.finish_reason {
        FinishReason::Length => "length",
        FinishReason::ContentFilter => "content_filter",
        _ if !answer.tool_calls.is_empty() => "tool_calls",
        // The API has no value for other reasons.
        FinishReason::Stop | FinishReason::Other => "stop",
    }
}

pub(super) fn usage(answer: &Answer) -> Usage {
    let cache_write_tokens = answer.tokens_cache_write + answer.tokens_cache_write_long;
    Usage {
        prompt_tokens: answer.tokens_in,
        completion_tokens: answer.tokens_out,
        total_tokens: answer.tokens_in + answer.tokens_out,
        prompt_tokens_details: Details { cached_tokens: answer.tokens_cached, cache_write_tokens },
    }
}

/// A call's input as text. Invalid JSON was kept as a string, and is sent unchanged.
pub(super) fn arguments(call: &ToolCall) -> String {
    match &call.input {
        Value::String(text) => text.clone(),
        input => input.to_string(),
    }
}

#[derive(Serialize)]
struct Completion<'a> {
    id: Id<'a>,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: &'a [Choice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

impl<'a> Completion<'a> {
    /// A chunk without choices.
    fn meta(meta: &'a ResponseMeta, model: &'a str) -> Self {
        Self {
            id: Id(&meta.id),
            object: "chat.completion.chunk",
            created: meta.created,
            model,
            choices: &[],
            usage: None,
        }
    }
}

/// The answer's id, derived from the request's.
struct Id<'a>(&'a str);

impl Serialize for Id<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("chatcmpl-{}", self.0))
    }
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<CompleteMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<Delta<'a>>,
    finish_reason: Option<&'static str>,
}

impl<'a> Choice<'a> {
    fn delta(delta: Delta<'a>) -> Self {
        Self { index: 0, message: None, delta: Some(delta), finish_reason: None }
    }
}

#[derive(Serialize)]
struct CompleteMessage<'a> {
    role: &'static str,
    content: Option<&'a str>,
    refusal: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
}

#[derive(Serialize, Default)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
}

#[derive(Serialize)]
struct Call<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u32>,
    id: &'a str,
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: String,
}

impl<'a> Call<'a> {
    fn new(call: &'a ToolCall, index: Option<u32>) -> Self {
        let function = Function { name: &call.name, arguments: arguments(call) };
        Self { index, id: &call.id, r#type: "function", function }
    }
}

#[derive(Serialize)]
pub(super) struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: Details,
}

#[derive(Serialize)]
struct Details {
    cached_tokens: u64,
    cache_write_tokens: u64,
}
