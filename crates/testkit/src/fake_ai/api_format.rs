//! The API formats of the providers, as far as a fake needs them: prompts, answers, stream events, errors, model
//! lists.

use hyper::Response;
use hyper::header::CONTENT_TYPE;
use hyper::http::response::Builder;
use serde_json::{Value, json};

use super::response_body::{BodyStep, FakeBody};
use super::{AnswerEnd, FakeAnswer, openai_responses, respond};

/// The API format of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ApiFormat {
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

/// The id of every tool call.
const TOOL_CALL_ID: &str = "call_1";

impl ApiFormat {
    /// The format of a path that takes prompts.
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

    /// Whether the request wants a stream. Ollama streams by default.
    pub(super) fn is_streamed(self, path: &str, request: &Value) -> bool {
        let stream = request["stream"].as_bool();
        match self {
            Self::Anthropic | Self::Openai | Self::Responses => stream.unwrap_or(false),
            Self::Ollama | Self::OllamaGenerate => stream.unwrap_or(true),
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

    /// A complete answer.
    pub(super) fn answer(self, say: &FakeAnswer, request: &Value) -> Value {
        let text = self.text(say, request);
        let model = &request["model"];
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
                let choice = json!({ "index": 0, "message": message, "finish_reason": self.end(say) });
                let tier = request["service_tier"].as_str().unwrap_or("default");
                json!({ "id": "chatcmpl-1", "object": "chat.completion", "created": 1,
                    "model": model, "choices": [choice], "usage": self.usage(say),
                    "service_tier": tier })
            }
            Self::Responses => openai_responses::answer(say, request, &text),
            Self::Ollama | Self::OllamaGenerate => self.ollama(say, request, &text, AnswerPart::All),
            Self::Gemini => self.gemini(say, &text, AnswerPart::All),
        }
    }

    /// The answer as framed stream events.
    pub(super) fn events(self, say: &FakeAnswer, request: &Value) -> Vec<String> {
        let text = self.text(say, request);
        let half = text.floor_char_boundary(text.len() / 2);
        let halves = [&text[..half], &text[half..]];
        let events: Vec<Value> = match self {
            Self::Anthropic => anthropic_events(self, say, request, halves),
            Self::Openai => openai_events(self, say, request, halves),
            Self::Responses => openai_responses::events(say, request, halves),
            Self::Ollama | Self::OllamaGenerate => {
                let mut events: Vec<Value> =
                    halves.iter().map(|text| self.ollama(say, request, text, AnswerPart::Some)).collect();
                events.push(self.ollama(say, request, "", AnswerPart::Last));
                events
            }
            Self::Gemini => vec![
                self.gemini(say, halves[0], AnswerPart::Some),
                self.gemini(say, halves[1], AnswerPart::Last),
            ],
        };
        let done = (self == Self::Openai).then(|| "data: [DONE]\n\n".to_owned());
        events.iter().map(|event| self.event(event)).chain(done).collect()
    }

    /// How many events come before the first one about the end; they contain some text.
    pub(super) fn events_before_end(self) -> usize {
        match self {
            Self::Anthropic | Self::Responses => 4,
            Self::Openai | Self::Gemini => 1,
            Self::Ollama | Self::OllamaGenerate => 2,
        }
    }

    /// Frames one event.
    pub(super) fn event(self, event: &Value) -> String {
        match self {
            Self::Anthropic | Self::Responses => {
                format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
            }
            Self::Openai | Self::Gemini => format!("data: {event}\n\n"),
            Self::Ollama | Self::OllamaGenerate => format!("{event}\n"),
        }
    }

    /// The error body for a status.
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
        let message = format!("the fake says {status}");
        match self {
            Self::Anthropic => {
                json!({ "type": "error", "error": { "type": kind, "message": message } })
            }
            Self::Openai | Self::Responses => {
                json!({ "error": { "message": message, "type": kind, "param": null, "code": null } })
            }
            Self::Ollama | Self::OllamaGenerate => json!({ "error": message }),
            Self::Gemini => {
                json!({ "error": { "code": status, "message": message, "status": google } })
            }
        }
    }

    pub(super) fn text(self, say: &FakeAnswer, request: &Value) -> String {
        say.text.clone().unwrap_or_else(|| self.last_prompt(request))
    }

    /// The text of the last message.
    fn last_prompt(self, request: &Value) -> String {
        let last = |list: &str| request[list].as_array().and_then(|all| all.last()).cloned();
        match self {
            Self::OllamaGenerate => text_of(&request["prompt"]),
            Self::Gemini => text_of(&last("contents").unwrap_or_default()["parts"]),
            Self::Responses if request["input"].is_string() => text_of(&request["input"]),
            Self::Responses => text_of(&last("input").unwrap_or_default()["content"]),
            _ => text_of(&last("messages").unwrap_or_default()["content"]),
        }
    }

    fn end(self, say: &FakeAnswer) -> &'static str {
        let tool = say.tool.is_some();
        match (self, say.end) {
            (Self::Anthropic, AnswerEnd::Stop) if tool => "tool_use",
            (Self::Openai, AnswerEnd::Stop) if tool => "tool_calls",
            (Self::Anthropic, AnswerEnd::Stop) => "end_turn",
            (Self::Anthropic, AnswerEnd::Length) => "max_tokens",
            (Self::Anthropic, AnswerEnd::Filter) => "refusal",
            (Self::Gemini, AnswerEnd::Stop) => "STOP",
            (Self::Gemini, AnswerEnd::Length) => "MAX_TOKENS",
            (Self::Gemini, AnswerEnd::Filter) => "SAFETY",
            (_, AnswerEnd::Stop) => "stop",
            (_, AnswerEnd::Length) => "length",
            (_, AnswerEnd::Filter) => "content_filter",
        }
    }

    fn usage(self, say: &FakeAnswer) -> Value {
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

    fn ollama(self, say: &FakeAnswer, request: &Value, text: &str, part: AnswerPart) -> Value {
        let is_last = part != AnswerPart::Some;
        let mut answer = json!({ "model": request["model"], "created_at": "2026-11-01T00:00:00Z",
            "done": is_last });
        if self == Self::OllamaGenerate {
            answer["response"] = json!(text);
        } else {
            answer["message"] = json!({ "role": "assistant", "content": text });
            if let Some((name, input)) = say.tool.as_ref().filter(|_| is_last) {
                let call = json!({ "function": { "name": name, "arguments": input } });
                answer["message"]["tool_calls"] = json!([call]);
            }
        }
        if is_last {
            answer["done_reason"] = json!(self.end(say));
            answer["total_duration"] = json!(1_000_000);
            if let (Some(all), Some(out)) = (say.tokens_in, say.tokens_out) {
                answer["prompt_eval_count"] = json!(all);
                answer["eval_count"] = json!(out);
            }
        }
        answer
    }

    fn gemini(self, say: &FakeAnswer, text: &str, part: AnswerPart) -> Value {
        let is_last = part != AnswerPart::Some;
        let mut parts = vec![json!({ "text": text })];
        if let Some((name, input)) = say.tool.as_ref().filter(|_| is_last) {
            parts.push(json!({ "functionCall": { "name": name, "args": input } }));
        }
        let mut candidate = json!({ "content": { "role": "model", "parts": parts }, "index": 0 });
        if is_last {
            candidate["finishReason"] = json!(self.end(say));
        }
        json!({ "candidates": [candidate], "usageMetadata": self.usage(say),
            "modelVersion": "gemini-fake" })
    }
}

/// Which part of an answer an object holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerPart {
    All,
    Some,
    Last,
}

fn anthropic_blocks(say: &FakeAnswer, text: &str) -> Value {
    let mut blocks = vec![json!({ "type": "text", "text": text })];
    if let Some((name, input)) = &say.tool {
        blocks.push(json!({ "type": "tool_use", "id": TOOL_CALL_ID, "name": name, "input": input }));
    }
    Value::Array(blocks)
}

fn anthropic_events(format: ApiFormat, say: &FakeAnswer, request: &Value, halves: [&str; 2]) -> Vec<Value> {
    let usage = format.usage(say);
    let mut usage_at_start = usage.clone();
    if usage_at_start.get("output_tokens").is_some() {
        usage_at_start["output_tokens"] = json!(1);
    }
    let message = json!({ "id": "msg_1", "type": "message", "role": "assistant", "content": [],
        "model": request["model"], "stop_reason": null, "usage": usage_at_start });
    let delta =
        |index: u64, delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
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
        let block = json!({ "type": "tool_use", "id": TOOL_CALL_ID, "name": name, "input": {} });
        let input = input.to_string();
        let half = input.floor_char_boundary(input.len() / 2);
        let part = |part: &str| delta(1, json!({ "type": "input_json_delta", "partial_json": part }));
        events.push(json!({ "type": "content_block_start", "index": 1, "content_block": block }));
        events.extend([part(&input[..half]), part(&input[half..])]);
        events.push(json!({ "type": "content_block_stop", "index": 1 }));
    }
    let mut last = json!({ "type": "message_delta", "delta": { "stop_reason": format.end(say) } });
    last["usage"] = match say.tokens_out {
        Some(out) => json!({ "output_tokens": out }),
        None => json!({}),
    };
    events.extend([last, json!({ "type": "message_stop" }), json!({ "type": "from_the_future" })]);
    events
}

fn openai_call(say: &FakeAnswer) -> Option<Value> {
    let (name, input) = say.tool.as_ref()?;
    let function = json!({ "name": name, "arguments": input.to_string() });
    Some(json!({ "id": TOOL_CALL_ID, "type": "function", "function": function }))
}

fn openai_events(format: ApiFormat, say: &FakeAnswer, request: &Value, halves: [&str; 2]) -> Vec<Value> {
    let chunk = |choices: Value| {
        json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1,
            "model": request["model"], "choices": choices })
    };
    let delta =
        |delta: Value, end: Value| chunk(json!([{ "index": 0, "delta": delta, "finish_reason": end }]));
    let mut events = vec![
        delta(json!({ "role": "assistant", "content": halves[0] }), Value::Null),
        delta(json!({ "content": halves[1] }), Value::Null),
    ];
    if let Some((name, input)) = &say.tool {
        let input = input.to_string();
        let half = input.floor_char_boundary(input.len() / 2);
        let function = json!({ "name": name, "arguments": &input[..half] });
        let first = json!({ "index": 0, "id": TOOL_CALL_ID, "type": "function", "function": function });
        let second = json!({ "index": 0, "function": { "arguments": &input[half..] } });
        events.push(delta(json!({ "tool_calls": [first] }), Value::Null));
        events.push(delta(json!({ "tool_calls": [second] }), Value::Null));
    }
    events.push(delta(json!({}), json!(format.end(say))));
    if request["stream_options"]["include_usage"] == true && say.tokens_out.is_some() {
        let mut counted = chunk(json!([]));
        counted["usage"] = format.usage(say);
        events.push(counted);
    }
    events
}

/// The text of a string, a content block, or a list of blocks.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(text_of).collect(),
        part => part["text"].as_str().unwrap_or_default().to_owned(),
    }
}

/// Answers requests for the model list and the server's version.
pub(super) fn catalogue(path: &str) -> Response<FakeBody> {
    let catalogue_json = match path.split('?').next().unwrap_or(path) {
        "/v1/models" => json!({ "object": "list", "has_more": false, "data": [
            { "id": "fake-1", "object": "model", "type": "model", "created": 1, "owned_by": "fake" }] }),
        "/v1/models/fake-1" => json!({ "id": "fake-1", "type": "model" }),
        "/v1beta/models" => json!({ "models": [{ "name": "models/fake-1" }] }),
        "/v1beta/models/fake-1" => {
            json!({ "name": "models/fake-1", "supportedGenerationMethods": ["generateContent"] })
        }
        "/api/tags" => json!({ "models": [{ "name": "fake-1:latest", "model": "fake-1:latest" }] }),
        "/api/version" => json!({ "version": "0.0.0-fake" }),
        _ => {
            let error = json!({ "error": { "message": "not found" } }).to_string();
            return respond(Response::builder().status(404), vec![BodyStep::bytes(error)]);
        }
    };
    let head = Response::builder().header(CONTENT_TYPE, "application/json");
    respond(head, vec![BodyStep::bytes(catalogue_json.to_string())])
}
