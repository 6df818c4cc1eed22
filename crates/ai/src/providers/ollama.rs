//! Ollama's own API: `/api/chat`, and `/api/generate` for single prompts if the profile wants it.
//!
//! The server silently truncates a question that is longer than the model's context. So every
//! request sets `truncate` to false and may set the context size, and the server's token count is
//! compared with the estimate.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::provider_adapter::{
    Draft, EventError, Flow, ProviderAdapter, ResponseMode, StreamParser, add_sampling, messages,
    token_count, tool_input,
};
use crate::chat::{AnswerPiece, Chat, ChatRole, Effort, Message, Part, Tool, ToolCall, ToolChoice};
use crate::embedding::EmbeddingInput;
use crate::model_api::{AskError, Code, FinishReason, Question};
use crate::profile::{ApiOptions, ProviderName};
use crate::sse::{DecodedEvent, Framing};

/// The smallest default context of a server.
const MIN_CONTEXT: u64 = 4096;

/// Ollama's API.
pub(crate) struct Ollama {
    pub(crate) wire: ApiOptions,
}

impl Ollama {
    /// Conversations need `/api/chat`.
    fn uses_generate(&self, question: &Question) -> bool {
        self.wire.generate && question.chat.is_none()
    }

    fn options(&self, question: &Question) -> Value {
        let mut options = json!({ "num_predict": question.max_tokens });
        if let Some(context) = self.wire.num_ctx {
            options["num_ctx"] = json!(context);
        }
        add_sampling(&mut options, question, self.wire.sampling.unwrap_or(true), ("top_p", "stop"));
        let Some(chat) = &question.chat else { return options };
        let more = [
            ("top_k", chat.top_k.map(Value::from)),
            ("frequency_penalty", chat.frequency_penalty.map(Value::from)),
            ("presence_penalty", chat.presence_penalty.map(Value::from)),
            ("seed", chat.seed.map(Value::from)),
        ];
        for (name, value) in more {
            if let Some(value) = value {
                options[name] = value;
            }
        }
        options
    }

    /// Whether the server read much less than was sent. The estimate is rough, so only what no text
    /// can explain counts: a question far above the context of which no more than the context was
    /// read.
    fn was_truncated(&self, question: &Question, read: u64) -> bool {
        let asked = question.estimate();
        match self.wire.num_ctx.map(u64::from) {
            Some(context) => {
                let far_above = asked > context + context / 2 && read <= context;
                // A truncated prompt keeps about half of the context.
                far_above || (asked > context && read <= context / 2 + 64)
            }
            None => asked > MIN_CONTEXT && read < asked / 3,
        }
    }
}

impl ProviderAdapter for Ollama {
    const NAME: ProviderName = ProviderName::Ollama;
    const ADDRESS: &'static str = "http://127.0.0.1:11434";
    const PREFIX: &'static str = "/api";
    const NEEDS_KEY: bool = false;
    const FRAMING: Framing = Framing::Lines;

    fn key_header(&self) -> (&'static str, &'static str) {
        ("authorization", "Bearer ")
    }

    fn path(&self, _: &str, question: &Question, _: ResponseMode) -> Result<String, AskError> {
        Ok(if self.uses_generate(question) { "/generate" } else { "/chat" }.to_owned())
    }

    fn body(&self, model: &str, question: &Question, mode: ResponseMode) -> Value {
        let mut body = json!({
            "model": model,
            "stream": mode.is_streamed(),
            "truncate": false,
            "shift": false,
            "options": self.options(question),
        });
        if let Some(schema) = &question.schema {
            body["format"] = (**schema).clone();
        }
        if let Some(effort) = question.chat.as_ref().and_then(|chat| chat.effort) {
            body["think"] = think(model, effort);
        }
        let system = question.system.as_deref().filter(|system| !system.is_empty());
        if self.uses_generate(question) {
            body["prompt"] = json!(question.prompt);
            if let Some(system) = system {
                body["system"] = json!(system);
            }
            return body;
        }
        // The server cannot require a call: a required one is asked for as an answer with the schema of its input.
        let required = required_tool(question);
        let instruction = required.map(|tool| {
            let description = tool.description.as_deref().unwrap_or_default();
            let call = format!("Answer with the input of the tool `{}` as JSON. {description}", tool.name);
            system.map_or(call.clone(), |system| format!("{system}\n\n{call}"))
        });
        body["messages"] = messages(instruction.as_deref().or(system), question, messages_of);
        let offered = |chat: &&Arc<Chat>| !chat.tools.is_empty() && chat.tool_choice != ToolChoice::None;
        if let Some(tool) = required {
            body["format"] = tool.input.clone();
        } else if let Some(chat) = question.chat.as_ref().filter(offered) {
            body["tools"] = chat.tools.iter().map(tool).collect();
        }
        body
    }

    fn parse(&self, body: &[u8]) -> Result<Draft, String> {
        parse_answer(body)
    }

    fn embedding(&self, model: &str, input: &EmbeddingInput) -> Option<(String, Value)> {
        let mut body = json!({ "model": model, "input": input.texts, "truncate": false });
        if let Some(dimensions) = input.dimensions {
            body["dimensions"] = json!(dimensions);
        }
        Some(("/embed".to_owned(), body))
    }

    fn parse_embeddings(&self, body: &[u8]) -> Result<Draft, String> {
        let list: EmbeddingList = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        Ok(Draft::of_embeddings(list.embeddings, list.model, list.prompt_eval_count))
    }

    fn stream_parser(&self) -> Box<dyn StreamParser> {
        Box::new(LineParser)
    }

    fn streams(&self, question: &Question) -> bool {
        required_tool(question).is_none()
    }

    fn complete(&self, question: &Question, draft: &mut Draft) {
        let Some(tool) = required_tool(question).filter(|_| draft.tool_calls.is_empty()) else { return };
        let input = tool_input(&std::mem::take(&mut draft.text));
        draft.tool_calls.push(ToolCall { id: draft.next_call_id(), name: tool.name.clone(), input });
    }

    /// The tokens of an image depend on the model: questions with images are not checked.
    fn check(&self, question: &Question, draft: &Draft) -> Result<(), AskError> {
        let Some(read) = draft.usage.input else { return Ok(()) };
        let pictures = question.chat.as_ref().is_some_and(|chat| {
            let mut parts = chat.messages.iter().flat_map(|message| &message.parts);
            parts.any(|part| matches!(part, Part::Image { .. } | Part::ImageUrl(_)))
        });
        if pictures || !self.was_truncated(question, read) {
            return Ok(());
        }
        let message = format!(
            "the server truncated the question: it read {read} tokens of about {}; \
             shorten it, or give the profile a larger `num_ctx`",
            question.estimate()
        );
        Err(AskError { provider_status: Some(200), ..AskError::new(Code::InvalidRequest, message) })
    }

    fn health_path(&self, _model: &str) -> String {
        "/tags".to_owned()
    }

    fn health(&self, model: &str, body: &Value) -> Result<String, String> {
        let models = body.get("models").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let latest = format!("{model}:latest");
        let pulled = models.iter().any(|one| one["name"] == model || one["name"] == latest);
        match pulled || model.is_empty() {
            true => Ok(format!("answers, has {} models", models.len())),
            false => Err(format!("answers, but has not pulled `{model}`")),
        }
    }
}

/// The tool that must be called.
fn required_tool(question: &Question) -> Option<&Tool> {
    question.chat.as_ref().and_then(|chat| chat.required_tool())
}

/// Whether the model thinks; those of `gpt-oss` are told how long.
fn think(model: &str, effort: Effort) -> Value {
    if effort == Effort::None || !model.contains("gpt-oss") {
        return json!(effort != Effort::None);
    }
    json!(match effort {
        Effort::None | Effort::Minimal | Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High | Effort::Xhigh | Effort::Max => "high",
    })
}

/// A message as Ollama's messages; tool results are messages of their own.
fn messages_of(chat: &Chat, message: &Message) -> Vec<Value> {
    let mut messages = Vec::new();
    let (mut text, mut images, mut calls) = (String::new(), Vec::new(), Vec::new());
    for part in &message.parts {
        match part {
            Part::Text(words) => text.push_str(words),
            Part::Image { data, .. } => images.push(json!(data)),
            // The server fetches nothing.
            Part::ImageUrl(_) | Part::Document { .. } | Part::CacheMark(_) => {}
            Part::ToolCall(call) => {
                calls.push(json!({ "function": { "name": call.name, "arguments": call.input } }));
            }
            Part::ToolResult { id, text, .. } => {
                let name = chat.tool_name(id).unwrap_or(id);
                messages.push(json!({ "role": "tool", "tool_name": name, "content": text }));
            }
        }
    }
    if text.is_empty() && images.is_empty() && calls.is_empty() {
        return messages;
    }
    let role = if message.role == ChatRole::User { "user" } else { "assistant" };
    let mut turn = json!({ "role": role, "content": text });
    if !images.is_empty() {
        turn["images"] = Value::Array(images);
    }
    if !calls.is_empty() {
        turn["tool_calls"] = Value::Array(calls);
    }
    messages.push(turn);
    messages
}

fn tool(tool: &Tool) -> Value {
    let description = tool.description.as_deref().unwrap_or_default();
    let function = json!({ "name": tool.name, "description": description, "parameters": tool.input });
    json!({ "type": "function", "function": function })
}

/// An answer, or a part of one. Counts are in the last part, and omitted if zero.
#[derive(Deserialize)]
struct ChatResponse {
    #[serde(default)]
    model: Option<String>,
    response: Option<String>,
    thinking: Option<String>,
    message: Option<ResponseMessage>,
    #[serde(default)]
    done: bool,
    done_reason: Option<String>,
    #[serde(default, deserialize_with = "token_count")]
    prompt_eval_count: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    eval_count: Option<u64>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct EmbeddingList {
    embeddings: Vec<Vec<f32>>,
    model: Option<String>,
    #[serde(default, deserialize_with = "token_count")]
    prompt_eval_count: Option<u64>,
}

#[derive(Deserialize)]
struct ResponseMessage {
    content: Option<String>,
    thinking: Option<String>,
    tool_calls: Option<Vec<Call>>,
}

#[derive(Deserialize)]
struct Call {
    id: Option<String>,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    arguments: Value,
}

fn finish(reason: Option<&str>) -> FinishReason {
    match reason {
        Some("stop") | None => FinishReason::Stop,
        Some("length") => FinishReason::Length,
        Some(_) => FinishReason::Other,
    }
}

/// Parses a complete answer.
fn parse_answer(body: &[u8]) -> Result<Draft, String> {
    let response: ChatResponse = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if response.error.is_some() {
        return Err("it is an error".into());
    }
    if response.response.is_none() && response.message.is_none() {
        return Err("it has no message".into());
    }
    if !response.done {
        return Err("it is not done".into());
    }
    let mut draft = Draft::default();
    add(response, &mut draft, &mut Vec::new());
    Ok(draft)
}

/// Adds an answer, or a line of one.
fn add(response: ChatResponse, draft: &mut Draft, pieces: &mut Vec<AnswerPiece>) {
    let (content, thoughts, calls) = response
        .message
        .map(|message| (message.content, message.thinking, message.tool_calls))
        .unwrap_or_default();
    draft.hidden.push_str(&response.thinking.or(thoughts).unwrap_or_default());
    draft.add_text(response.response.or(content).unwrap_or_default(), pieces);
    for Call { id, function: Function { name, arguments } } in calls.unwrap_or_default() {
        let id = id.filter(|id| !id.is_empty()).unwrap_or_else(|| draft.next_call_id());
        draft.add_call(ToolCall { id, name, input: arguments }, pieces);
    }
    draft.model = response.model.or(draft.model.take());
    if response.done {
        draft.finish = Some(finish(response.done_reason.as_deref()));
        draft.usage.input = response.prompt_eval_count;
        draft.usage.output = response.eval_count;
    }
}

/// Parses an answer from its lines, which have the form of a complete one.
struct LineParser;

impl StreamParser for LineParser {
    fn take(
        &mut self,
        event: &DecodedEvent,
        draft: &mut Draft,
        pieces: &mut Vec<AnswerPiece>,
    ) -> Result<Flow, EventError> {
        let response: ChatResponse = serde_json::from_str(&event.data)?;
        if let Some(error) = response.error {
            return Err(EventError::Provider(json!({ "error": error })));
        }
        let done = response.done;
        add(response, draft, pieces);
        Ok(if done { Flow::Done } else { Flow::More })
    }
}
