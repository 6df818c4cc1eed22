//! OpenAI's chat completions, from an answer to the wire.

use axum::http::StatusCode;
use serde::Serialize;
use serde_json::json;

use super::openai_in;
use super::refusal::{Refusal, Why};
use super::sse;
use super::wire::{About, Asked, Delivery, Teller, Wire};
use crate::ask::{Answer, FinishReason};
use crate::chat::{Piece, ToolCall};
use crate::object::Object;
use crate::profile::ProviderName;

/// The wire of OpenAI's chat completions.
pub(super) struct OpenAi;

impl Wire for OpenAi {
    fn name(&self) -> ProviderName {
        ProviderName::Openai
    }

    fn read(&self, body: &Object) -> Result<Asked, Refusal> {
        openai_in::read(body)
    }

    fn whole(&self, about: &About, answer: &Answer) -> Vec<u8> {
        let mut out = Vec::with_capacity(512 + answer.text.len());
        let mute = answer.text.is_empty() && !answer.tool_calls.is_empty();
        let message = Whole {
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
            ..Completion::about(about, &answer.model)
        };
        sse::json(&mut out, &completion);
        out
    }

    fn teller(&self, about: About, delivery: Delivery) -> Box<dyn Teller> {
        Box::new(Telling { about, delivery, begun: false, words: false, calls: 0, raw: false })
    }

    fn refuse(&self, refusal: &Refusal, _request_id: &str) -> (StatusCode, Vec<u8>) {
        let (status, ..) = words(refusal.why);
        let mut out = Vec::new();
        sse::json(&mut out, &error(refusal));
        (status, out)
    }
}

/// Status, type and code of a refusal.
fn words(why: Why) -> (StatusCode, &'static str, Option<&'static str>) {
    const INVALID: &str = "invalid_request_error";
    const SERVER: &str = "server_error";
    match why {
        Why::Malformed => (StatusCode::BAD_REQUEST, INVALID, None),
        Why::Stranger => (StatusCode::UNAUTHORIZED, INVALID, Some("invalid_api_key")),
        Why::TooLong => (StatusCode::PAYLOAD_TOO_LARGE, INVALID, Some("request_too_large")),
        Why::Unknown => (StatusCode::NOT_FOUND, INVALID, Some("model_not_found")),
        Why::Disabled => (StatusCode::FORBIDDEN, INVALID, Some("profile_disabled")),
        Why::RateLimited => {
            (StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", Some("rate_limit_exceeded"))
        }
        Why::OverBudget => {
            (StatusCode::TOO_MANY_REQUESTS, "insufficient_quota", Some("insufficient_quota"))
        }
        Why::ProviderAuth => (StatusCode::BAD_GATEWAY, SERVER, Some("provider_auth")),
        Why::ProviderFailed => (StatusCode::BAD_GATEWAY, SERVER, Some("provider_error")),
        Why::ProviderBusy => (StatusCode::SERVICE_UNAVAILABLE, SERVER, Some("provider_error")),
        Why::Timeout => (StatusCode::GATEWAY_TIMEOUT, SERVER, Some("timeout")),
        Why::Internal => (StatusCode::INTERNAL_SERVER_ERROR, SERVER, Some("internal")),
    }
}

fn error(refusal: &Refusal) -> serde_json::Value {
    let (_, kind, code) = words(refusal.why);
    let Refusal { message, param, .. } = refusal;
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}

/// Tells an answer as chunks.
struct Telling {
    about: About,
    delivery: Delivery,
    begun: bool,
    /// Some of the text was told.
    words: bool,
    /// How many calls of tools were told.
    calls: u32,
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
        if !self.raw {
            self.finish(answer, out);
        }
        sse::line(out, "[DONE]");
    }

    fn fail(&mut self, refusal: &Refusal, out: &mut Vec<u8>) {
        sse::data(out, &error(refusal));
    }
}

impl Telling {
    fn text(&mut self, text: &str, out: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        self.words = true;
        self.delta(Delta { content: Some(text), ..Delta::default() }, out);
    }

    fn call(&mut self, call: &ToolCall, out: &mut Vec<u8>) {
        let call = Call::new(call, Some(self.calls));
        self.calls += 1;
        self.delta(Delta { tool_calls: vec![call], ..Delta::default() }, out);
    }

    /// The provider's own event, save those that were only asked for our own books.
    fn line(&mut self, line: &str, out: &mut Vec<u8>) {
        self.raw = true;
        let books = self.delivery != Delivery::StreamWithUsage && is_usage(line);
        if line != "[DONE]" && !books {
            sse::line(out, line);
        }
    }

    /// Whatever was not told yet, why it ends, and what it took.
    fn finish(&mut self, answer: &Answer, out: &mut Vec<u8>) {
        if !self.words {
            self.text(&answer.text, out);
        }
        for call in answer.tool_calls.iter().skip(self.calls as usize) {
            self.call(call, out);
        }
        self.begin(out);
        let end = Choice {
            finish_reason: Some(finish_reason(answer)),
            ..Choice::delta(Delta::default())
        };
        let about = Completion::about(&self.about, &answer.model);
        sse::data(out, &Completion { choices: &[end], ..about });
        if self.delivery == Delivery::StreamWithUsage {
            let about = Completion::about(&self.about, &answer.model);
            sse::data(out, &Completion { usage: Some(usage(answer)), ..about });
        }
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.begun, true) {
            let role = Delta { role: Some("assistant"), content: Some(""), ..Delta::default() };
            self.chunk(Choice::delta(role), out);
        }
    }

    fn delta(&mut self, delta: Delta<'_>, out: &mut Vec<u8>) {
        self.begin(out);
        self.chunk(Choice::delta(delta), out);
    }

    fn chunk(&self, choice: Choice<'_>, out: &mut Vec<u8>) {
        let about = Completion::about(&self.about, &self.about.model);
        sse::data(out, &Completion { choices: &[choice], ..about });
    }
}

/// Whether an event tells nothing but what the answer took.
fn is_usage(line: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Chunk {
        choices: Vec<serde::de::IgnoredAny>,
        usage: Option<serde::de::IgnoredAny>,
    }
    // Most events are text, and need not be read.
    line.contains("\"usage\"")
        && serde_json::from_str::<Chunk>(line)
            .is_ok_and(|chunk| chunk.choices.is_empty() && chunk.usage.is_some())
}

fn finish_reason(answer: &Answer) -> &'static str {
    match answer.finish_reason {
        FinishReason::Length => "length",
        FinishReason::ContentFilter => "content_filter",
        _ if !answer.tool_calls.is_empty() => "tool_calls",
        // The wire has no word for the rest.
        FinishReason::Stop | FinishReason::Other => "stop",
    }
}

fn usage(answer: &Answer) -> Usage {
    let cache_write_tokens = answer.tokens_cache_write + answer.tokens_cache_write_long;
    Usage {
        prompt_tokens: answer.tokens_in,
        completion_tokens: answer.tokens_out,
        total_tokens: answer.tokens_in + answer.tokens_out,
        prompt_tokens_details: Details { cached_tokens: answer.tokens_cached, cache_write_tokens },
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
    /// A chunk with nothing in it.
    fn about(about: &'a About, model: &'a str) -> Self {
        Self {
            id: Id(&about.id),
            object: "chat.completion.chunk",
            created: about.created,
            model,
            choices: &[],
            usage: None,
        }
    }
}

/// A request's id as that of its answer.
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
    message: Option<Whole<'a>>,
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
struct Whole<'a> {
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
        // What is no JSON came as a text, and goes as it came.
        let arguments = match &call.input {
            serde_json::Value::String(text) => text.clone(),
            input => input.to_string(),
        };
        let function = Function { name: &call.name, arguments };
        Self { index, id: &call.id, r#type: "function", function }
    }
}

#[derive(Serialize)]
struct Usage {
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
