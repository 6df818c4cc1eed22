//! The wires, as far as a fake needs them: what is asked, answers, events, errors, catalogues.

use hyper::Response;
use hyper::header::CONTENT_TYPE;
use hyper::http::response::Builder;
use serde_json::{Value, json};

use super::body::{FakeBody, Step};
use super::{End, Say, made, responses};

/// A provider's wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Anthropic,
    Openai,
    /// OpenAI's `/v1/responses`
    Responses,
    /// `/api/chat`
    Ollama,
    /// `/api/generate`
    OllamaGenerate,
    Gemini,
}

/// What the fake calls every tool call.
const CALL: &str = "call_1";

impl Wire {
    /// The wire of a path on which questions are asked.
    pub(super) fn of(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or(path);
        Some(match path {
            "/v1/messages" => Self::Anthropic,
            "/v1/chat/completions" => Self::Openai,
            "/v1/responses" => Self::Responses,
            "/api/chat" => Self::Ollama,
            "/api/generate" => Self::OllamaGenerate,
            _ if path.ends_with(":generateContent") => Self::Gemini,
            _ if path.ends_with(":streamGenerateContent") => Self::Gemini,
            _ => return None,
        })
    }

    /// Whether the answer is to come in pieces. Ollama's does unless it is told otherwise.
    pub(super) fn is_streamed(self, path: &str, asked: &Value) -> bool {
        let said = asked["stream"].as_bool();
        match self {
            Self::Anthropic | Self::Openai | Self::Responses => said.unwrap_or(false),
            Self::Ollama | Self::OllamaGenerate => said.unwrap_or(true),
            Self::Gemini => path.contains(":streamGenerateContent"),
        }
    }

    pub(super) fn head(self, streamed: bool) -> Builder {
        let kind = match (streamed, self) {
            (false, _) => "application/json",
            (true, Self::Ollama | Self::OllamaGenerate) => "application/x-ndjson",
            (true, _) => "text/event-stream",
        };
        Response::builder().header(CONTENT_TYPE, kind)
    }

    /// An answer in one.
    pub(super) fn answer(self, say: &Say, asked: &Value) -> Value {
        let text = self.text(say, asked);
        let model = &asked["model"];
        match self {
            Self::Anthropic => json!({
                "id": "msg_1", "type": "message", "role": "assistant", "model": model,
                "content": anthropic_blocks(say, &text), "stop_reason": self.end(say),
                "stop_sequence": null, "usage": self.usage(say),
            }),
            Self::Openai => {
                let mut message = json!({ "role": "assistant", "content": text });
                if let Some(call) = openai_call(say) {
                    message["tool_calls"] = json!([call]);
                }
                let choice =
                    json!({ "index": 0, "message": message, "finish_reason": self.end(say) });
                json!({ "id": "chatcmpl-1", "object": "chat.completion", "created": 1,
                    "model": model, "choices": [choice], "usage": self.usage(say),
                    "service_tier": "default" })
            }
            Self::Responses => responses::answer(say, asked, &text),
            Self::Ollama | Self::OllamaGenerate => self.ollama(say, asked, &text, Part::All),
            Self::Gemini => self.gemini(say, &text, Part::All),
        }
    }

    /// The same as events, each complete with what stands around it.
    pub(super) fn events(self, say: &Say, asked: &Value) -> Vec<String> {
        let text = self.text(say, asked);
        let half = text.floor_char_boundary(text.len() / 2);
        let halves = [&text[..half], &text[half..]];
        let events: Vec<Value> = match self {
            Self::Anthropic => anthropic_events(self, say, asked, halves),
            Self::Openai => openai_events(self, say, asked, halves),
            Self::Responses => responses::events(say, asked, halves),
            Self::Ollama | Self::OllamaGenerate => {
                let mut events: Vec<Value> =
                    halves.iter().map(|text| self.ollama(say, asked, text, Part::Some)).collect();
                events.push(self.ollama(say, asked, "", Part::Last));
                events
            }
            Self::Gemini => vec![
                self.gemini(say, halves[0], Part::Some),
                self.gemini(say, halves[1], Part::Last),
            ],
        };
        let done = (self == Self::Openai).then(|| "data: [DONE]\n\n".to_owned());
        events.iter().map(|event| self.event(event)).chain(done).collect()
    }

    /// How many events come before the first that is about the end, with some text among them.
    pub(super) fn events_before_the_end(self) -> usize {
        match self {
            Self::Anthropic | Self::Responses => 4,
            Self::Openai | Self::Gemini => 1,
            Self::Ollama | Self::OllamaGenerate => 2,
        }
    }

    /// One event as it travels.
    pub(super) fn event(self, event: &Value) -> String {
        match self {
            Self::Anthropic | Self::Responses => {
                format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
            }
            Self::Openai | Self::Gemini => format!("data: {event}\n\n"),
            Self::Ollama | Self::OllamaGenerate => format!("{event}\n"),
        }
    }

    /// The wire's words for a status.
    pub(super) fn error(self, status: u16) -> Value {
        let (kind, google) = match status {
            400 => ("invalid_request_error", "INVALID_ARGUMENT"),
            401 => ("authentication_error", "UNAUTHENTICATED"),
            403 => ("permission_error", "PERMISSION_DENIED"),
            404 => ("not_found_error", "NOT_FOUND"),
            429 => ("rate_limit_error", "RESOURCE_EXHAUSTED"),
            529 => ("overloaded_error", "UNAVAILABLE"),
            _ => ("api_error", "INTERNAL"),
        };
        let words = format!("the fake says {status}");
        match self {
            Self::Anthropic => {
                json!({ "type": "error", "error": { "type": kind, "message": words } })
            }
            Self::Openai | Self::Responses => {
                json!({ "error": { "message": words, "type": kind, "param": null, "code": null } })
            }
            Self::Ollama | Self::OllamaGenerate => json!({ "error": words }),
            Self::Gemini => {
                json!({ "error": { "code": status, "message": words, "status": google } })
            }
        }
    }

    fn text(self, say: &Say, asked: &Value) -> String {
        say.text.clone().unwrap_or_else(|| self.asked(asked))
    }

    /// What was asked last.
    fn asked(self, asked: &Value) -> String {
        let last = |list: &str| asked[list].as_array().and_then(|all| all.last()).cloned();
        match self {
            Self::OllamaGenerate => words(&asked["prompt"]),
            Self::Gemini => words(&last("contents").unwrap_or_default()["parts"]),
            Self::Responses if asked["input"].is_string() => words(&asked["input"]),
            Self::Responses => words(&last("input").unwrap_or_default()["content"]),
            _ => words(&last("messages").unwrap_or_default()["content"]),
        }
    }

    fn end(self, say: &Say) -> &'static str {
        let tool = say.tool.is_some();
        match (self, say.end) {
            (Self::Anthropic, End::Stop) if tool => "tool_use",
            (Self::Openai, End::Stop) if tool => "tool_calls",
            (Self::Anthropic, End::Stop) => "end_turn",
            (Self::Anthropic, End::Length) => "max_tokens",
            (Self::Anthropic, End::Filter) => "refusal",
            (Self::Gemini, End::Stop) => "STOP",
            (Self::Gemini, End::Length) => "MAX_TOKENS",
            (Self::Gemini, End::Filter) => "SAFETY",
            (_, End::Stop) => "stop",
            (_, End::Length) => "length",
            (_, End::Filter) => "content_filter",
        }
    }

    fn usage(self, say: &Say) -> Value {
        let (Some(all), Some(out)) = (say.tokens_in, say.tokens_out) else { return json!({}) };
        match self {
            Self::Anthropic => json!({
                "input_tokens": all - say.cached - say.cache_write, "output_tokens": out,
                "cache_read_input_tokens": say.cached, "service_tier": "standard",
                "cache_creation_input_tokens": say.cache_write,
            }),
            Self::Gemini => json!({ "promptTokenCount": all, "candidatesTokenCount": out,
                "cachedContentTokenCount": say.cached, "totalTokenCount": all + out }),
            _ => json!({ "prompt_tokens": all, "completion_tokens": out, "total_tokens": all + out,
                "prompt_tokens_details": { "cached_tokens": say.cached,
                    "cache_write_tokens": say.cache_write } }),
        }
    }

    fn ollama(self, say: &Say, asked: &Value, text: &str, part: Part) -> Value {
        let ends = part != Part::Some;
        let mut told = json!({ "model": asked["model"], "created_at": "2026-11-01T00:00:00Z",
            "done": ends });
        if self == Self::OllamaGenerate {
            told["response"] = json!(text);
        } else {
            told["message"] = json!({ "role": "assistant", "content": text });
            if let Some((name, input)) = say.tool.as_ref().filter(|_| ends) {
                let call = json!({ "function": { "name": name, "arguments": input } });
                told["message"]["tool_calls"] = json!([call]);
            }
        }
        if ends {
            told["done_reason"] = json!(self.end(say));
            told["total_duration"] = json!(1_000_000);
            if let (Some(all), Some(out)) = (say.tokens_in, say.tokens_out) {
                told["prompt_eval_count"] = json!(all);
                told["eval_count"] = json!(out);
            }
        }
        told
    }

    fn gemini(self, say: &Say, text: &str, part: Part) -> Value {
        let ends = part != Part::Some;
        let mut parts = vec![json!({ "text": text })];
        if let Some((name, input)) = say.tool.as_ref().filter(|_| ends) {
            parts.push(json!({ "functionCall": { "name": name, "args": input } }));
        }
        let mut candidate = json!({ "content": { "role": "model", "parts": parts }, "index": 0 });
        if ends {
            candidate["finishReason"] = json!(self.end(say));
        }
        json!({ "candidates": [candidate], "usageMetadata": self.usage(say),
            "modelVersion": "gemini-fake" })
    }
}

/// Which part of an answer an event is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    Some,
    Last,
}

fn anthropic_blocks(say: &Say, text: &str) -> Value {
    let mut blocks = vec![json!({ "type": "text", "text": text })];
    if let Some((name, input)) = &say.tool {
        blocks.push(json!({ "type": "tool_use", "id": CALL, "name": name, "input": input }));
    }
    Value::Array(blocks)
}

fn anthropic_events(wire: Wire, say: &Say, asked: &Value, halves: [&str; 2]) -> Vec<Value> {
    let usage = wire.usage(say);
    let mut early = usage.clone();
    if early.get("output_tokens").is_some() {
        early["output_tokens"] = json!(1);
    }
    let message = json!({ "id": "msg_1", "type": "message", "role": "assistant", "content": [],
        "model": asked["model"], "stop_reason": null, "usage": early });
    let delta = |index: u64, delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
    let text = |text: &str| delta(0, json!({ "type": "text_delta", "text": text }));
    let mut events = vec![
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "content_block_start", "index": 0,
            "content_block": { "type": "text", "text": "" } }),
        json!({ "type": "ping" }),
        text(halves[0]),
        text(halves[1]),
        json!({ "type": "content_block_stop", "index": 0 }),
    ];
    if let Some((name, input)) = &say.tool {
        let block = json!({ "type": "tool_use", "id": CALL, "name": name, "input": {} });
        let input = input.to_string();
        let half = input.floor_char_boundary(input.len() / 2);
        let part =
            |part: &str| delta(1, json!({ "type": "input_json_delta", "partial_json": part }));
        events.push(json!({ "type": "content_block_start", "index": 1, "content_block": block }));
        events.extend([part(&input[..half]), part(&input[half..])]);
        events.push(json!({ "type": "content_block_stop", "index": 1 }));
    }
    let mut last = json!({ "type": "message_delta", "delta": { "stop_reason": wire.end(say) } });
    last["usage"] = match say.tokens_out {
        Some(out) => json!({ "output_tokens": out }),
        None => json!({}),
    };
    events.extend([last, json!({ "type": "message_stop" }), json!({ "type": "from_the_future" })]);
    events
}

fn openai_call(say: &Say) -> Option<Value> {
    let (name, input) = say.tool.as_ref()?;
    let function = json!({ "name": name, "arguments": input.to_string() });
    Some(json!({ "id": CALL, "type": "function", "function": function }))
}

fn openai_events(wire: Wire, say: &Say, asked: &Value, halves: [&str; 2]) -> Vec<Value> {
    let chunk = |choices: Value| {
        json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1,
            "model": asked["model"], "choices": choices })
    };
    let delta = |delta: Value, end: Value| {
        chunk(json!([{ "index": 0, "delta": delta, "finish_reason": end }]))
    };
    let mut events = vec![
        delta(json!({ "role": "assistant", "content": halves[0] }), Value::Null),
        delta(json!({ "content": halves[1] }), Value::Null),
    ];
    if let Some((name, input)) = &say.tool {
        let input = input.to_string();
        let half = input.floor_char_boundary(input.len() / 2);
        let function = json!({ "name": name, "arguments": &input[..half] });
        let first = json!({ "index": 0, "id": CALL, "type": "function", "function": function });
        let second = json!({ "index": 0, "function": { "arguments": &input[half..] } });
        events.push(delta(json!({ "tool_calls": [first] }), Value::Null));
        events.push(delta(json!({ "tool_calls": [second] }), Value::Null));
    }
    events.push(delta(json!({}), json!(wire.end(say))));
    if asked["stream_options"]["include_usage"] == true && say.tokens_out.is_some() {
        let mut counted = chunk(json!([]));
        counted["usage"] = wire.usage(say);
        events.push(counted);
    }
    events
}

/// The text in a text, a block, or a list of blocks.
fn words(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(words).collect(),
        part => part["text"].as_str().unwrap_or_default().to_owned(),
    }
}

/// What can be asked for nothing: which models there are, and the server's version.
pub(super) fn catalogue(path: &str) -> Response<FakeBody> {
    let listed = match path.split('?').next().unwrap_or(path) {
        "/v1/models" => json!({ "object": "list", "has_more": false, "data": [
            { "id": "fake-1", "object": "model", "type": "model", "created": 1, "owned_by": "fake" }] }),
        "/v1beta/models" => json!({ "models": [{ "name": "models/fake-1" }] }),
        "/api/tags" => json!({ "models": [{ "name": "fake-1:latest", "model": "fake-1:latest" }] }),
        "/api/version" => json!({ "version": "0.0.0-fake" }),
        _ => {
            let words = json!({ "error": { "message": "there is nothing here" } }).to_string();
            return made(Response::builder().status(404), vec![Step::bytes(words)]);
        }
    };
    let head = Response::builder().header(CONTENT_TYPE, "application/json");
    made(head, vec![Step::bytes(listed.to_string())])
}
