//! Anthropic's messages API, in both versions.
//!
//! The newer version has no sampling fields, and sends the key as a bearer token.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json};

use super::capabilities::takes_sampling;
use super::provider_adapter::{
    Changes, Draft, EventError, Flow, ProviderAdapter, ResponseMode, StreamParser, Usage, add_sampling,
    if_readable, is_path_segment, token_count, tool_input,
};
use super::schema_compat;
use crate::chat::{AnswerPiece, Chat, ChatRole, Effort, Part, Tool, ToolCall, ToolChoice};
use crate::model_api::{AskError, FinishReason, Question};
use crate::passthrough::PassthroughRequest;
use crate::profile::{ApiOptions, Auth, CacheFor, ProviderName};
use crate::sse::{DecodedEvent, Framing};

/// The version that takes sampling fields and `x-api-key`.
const LEGACY_VERSION: &str = "2023-06-01";

/// Anthropic's messages API.
pub(crate) struct Anthropic {
    pub(crate) wire: ApiOptions,
}

impl Anthropic {
    fn version(&self) -> &str {
        self.wire.version.as_deref().unwrap_or(LEGACY_VERSION)
    }

    /// The system prompt. A cache mark makes the provider cache it and everything before it.
    fn system(&self, text: &str, mark: Option<CacheFor>) -> Value {
        match mark.or(self.wire.cache) {
            None => json!(text),
            Some(cache) => {
                json!([{ "type": "text", "text": text, "cache_control": cache_control(cache) }])
            }
        }
    }

    fn takes_sampling(&self, model: &str) -> bool {
        let takes = || takes_sampling(Self::NAME, model);
        self.version() == LEGACY_VERSION && self.wire.sampling.unwrap_or_else(takes)
    }
}

impl Anthropic {
    /// Adds the settings that only some models take. Returns whether the model thinks: then it takes no other
    /// temperature than its own.
    fn add_thinking(&self, body: &mut Value, model: &str, question: &Question) -> bool {
        let Some(chat) = &question.chat else { return false };
        if let Some(top_k) = chat.top_k.filter(|_| self.takes_sampling(model)) {
            body["top_k"] = json!(top_k);
        }
        let Some(effort) = chat.effort else { return false };
        // Older models are told how many tokens they may think, at least 1,024 and less than the answer has.
        if takes_sampling(Self::NAME, model) {
            let budget = effort.token_budget().max(MIN_THOUGHTS).min(question.max_tokens.saturating_sub(1));
            let thinks = effort > Effort::Minimal && budget >= MIN_THOUGHTS;
            if thinks {
                body["thinking"] = json!({ "type": "enabled", "budget_tokens": budget });
            }
            return thinks;
        }
        if effort == Effort::None {
            body["thinking"] = json!({ "type": "disabled" });
            return false;
        }
        let effort = match effort {
            Effort::Minimal => Effort::Low,
            Effort::Xhigh => Effort::Max,
            other => other,
        };
        body["thinking"] = json!({ "type": "adaptive" });
        body["output_config"]["effort"] = json!(effort.as_str());
        true
    }
}

/// The fewest tokens that a model can be told to think.
const MIN_THOUGHTS: u32 = 1_024;

/// Models reject `temperature` beside `top_p`. 1 is the default, and need not be sent.
fn omits_temperature(question: &Question, has_top_p: bool) -> bool {
    has_top_p && (question.temperature - 1.0).abs() < f64::EPSILON
}

impl ProviderAdapter for Anthropic {
    const NAME: ProviderName = ProviderName::Anthropic;
    const ADDRESS: &'static str = "https://api.anthropic.com";
    const PREFIX: &'static str = "/v1";
    const NEEDS_KEY: bool = true;
    const FRAMING: Framing = Framing::Sse;
    /// The documented most is 4,784, of images in full resolution.
    const IMAGE_TOKENS: u64 = 5_000;

    fn key_header(&self) -> (&'static str, &'static str) {
        match self.wire.auth {
            Auth::Usual if self.version() == LEGACY_VERSION => ("x-api-key", ""),
            Auth::Header => ("x-api-key", ""),
            Auth::Usual | Auth::Bearer => ("authorization", "Bearer "),
        }
    }

    fn headers(&self) -> HeaderMap {
        let version = HeaderValue::from_str(self.version()).ok();
        let name = HeaderName::from_static("anthropic-version");
        version.map(|version| (name, version)).into_iter().collect()
    }

    fn path(&self, _: &str, _: &Question, _: ResponseMode) -> Result<String, AskError> {
        Ok("/messages".to_owned())
    }

    fn body(&self, model: &str, question: &Question, mode: ResponseMode) -> Value {
        let mut body = json!({ "model": model, "max_tokens": question.max_tokens });
        let mut system = question.system.clone();
        if let Some(schema) = &question.schema {
            match schema_compat::close_objects(schema) {
                Some(schema) => {
                    let format = json!({ "type": "json_schema", "schema": schema });
                    body["output_config"] = json!({ "format": format });
                }
                None => system = Some(schema_compat::append_to_prompt(system, schema)),
            }
        }
        if let Some(system) = system.filter(|system| !system.is_empty()) {
            let mark = question.chat.as_ref().and_then(|chat| chat.system_cache);
            body["system"] = self.system(&system, mark);
        }
        match &question.chat {
            None => body["messages"] = json!([{ "role": "user", "content": question.prompt }]),
            Some(chat) => add_conversation(&mut body, chat),
        }
        let names = ("top_p", "stop_sequences");
        add_sampling(&mut body, question, self.takes_sampling(model), names);
        let thinks = self.add_thinking(&mut body, model, question);
        if (thinks || omits_temperature(question, body.get("top_p").is_some()))
            && let Some(fields) = body.as_object_mut()
        {
            fields.remove("temperature");
        }
        if mode.is_streamed() {
            body["stream"] = json!(true);
        }
        body
    }

    fn raw<'q>(&self, question: &'q Question) -> Option<&'q PassthroughRequest> {
        question.raw_for(Self::NAME)
    }

    /// `max_tokens` and `temperature` may come from the profile; sampling fields are sent only if
    /// the model takes them. The request's own cache marks stay.
    fn changes(
        &self,
        model: &str,
        question: &Question,
        raw: &PassthroughRequest,
        mode: ResponseMode,
    ) -> Changes {
        let sampling = self.takes_sampling(model);
        let sends_temperature = sampling && !omits_temperature(question, raw.field("top_p").is_some());
        let mut changes: Changes = vec![
            ("model", Some(model.into())),
            ("max_tokens", Some(question.max_tokens.into())),
            ("temperature", sends_temperature.then(|| question.temperature.into())),
            ("stream", mode.is_streamed().then(|| true.into())),
        ];
        if !sampling {
            changes.extend([("top_p", None), ("top_k", None)]);
        }
        changes
    }

    /// The question without what only an answer has.
    fn count(&self, model: &str, question: &Question) -> Option<(String, Vec<u8>)> {
        const OF_ANSWERS: [&str; 9] = [
            "max_tokens",
            "temperature",
            "top_p",
            "top_k",
            "stop_sequences",
            "stream",
            "metadata",
            "service_tier",
            "inference_geo",
        ];
        let body = match self.raw(question) {
            Some(raw) => {
                let removed = OF_ANSWERS.into_iter().map(|name| (name, None));
                raw.with_changes(&removed.chain([("model", Some(model.into()))]).collect::<Changes>())
            }
            None => {
                let mut body = self.body(model, question, ResponseMode::Complete);
                if let Some(fields) = body.as_object_mut() {
                    fields.retain(|name, _| !OF_ANSWERS.contains(&name.as_str()));
                }
                serde_json::to_vec(&body)
            }
        };
        Some(("/messages/count_tokens".to_owned(), body.ok()?))
    }

    fn counted(&self, response: &Value) -> Option<u64> {
        response["input_tokens"].as_u64()
    }

    fn parse(&self, body: &[u8]) -> Result<Draft, String> {
        parse_answer(body, self.wire.cache)
    }

    fn stream_parser(&self) -> Box<dyn StreamParser> {
        Box::new(EventParser { cache: self.wire.cache, ..EventParser::default() })
    }

    fn health_path(&self, model: &str) -> String {
        match is_path_segment(model) {
            true => format!("/models/{model}"),
            false => "/models?limit=1".to_owned(),
        }
    }

    fn health(&self, _model: &str, _body: &Value) -> Result<String, String> {
        Ok(format!("answers, accepts the key, speaks {}", self.version()))
    }
}

fn cache_control(cache: CacheFor) -> Value {
    match cache {
        CacheFor::Minutes => json!({ "type": "ephemeral" }),
        CacheFor::Hour => json!({ "type": "ephemeral", "ttl": "1h" }),
    }
}

fn add_conversation(body: &mut Value, chat: &Chat) {
    if let Some(user) = &chat.user {
        body["metadata"] = json!({ "user_id": user });
    }
    let messages = chat.messages.iter().map(|message| {
        let role = match message.role {
            ChatRole::User => "user",
            ChatRole::Assistant => "assistant",
        };
        let content = blocks(&message.parts);
        json!({ "role": role, "content": content })
    });
    body["messages"] = messages.collect();
    if !chat.tools.is_empty() {
        body["tools"] = chat.tools.iter().map(tool).collect();
        let mut choice = match &chat.tool_choice {
            ToolChoice::Auto if !chat.one_tool_call => return,
            ToolChoice::Auto => json!({ "type": "auto" }),
            ToolChoice::None => json!({ "type": "none" }),
            ToolChoice::Any => json!({ "type": "any" }),
            ToolChoice::Named(name) => json!({ "type": "tool", "name": name }),
        };
        if chat.one_tool_call && chat.tool_choice != ToolChoice::None {
            choice["disable_parallel_tool_use"] = json!(true);
        }
        body["tool_choice"] = choice;
    }
}

/// Parts as blocks. A cache mark belongs to the block before it.
fn blocks(parts: &[Part]) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            Part::CacheMark(cache) => {
                if let Some(last) = blocks.last_mut() {
                    last["cache_control"] = cache_control(*cache);
                }
            }
            part => blocks.extend(block(part)),
        }
    }
    blocks
}

/// A part as a block. The provider rejects blocks without text.
fn block(part: &Part) -> Option<Value> {
    Some(match part {
        Part::Text(text) if text.is_empty() => return None,
        Part::CacheMark(_) => return None,
        Part::Document { media_type, data, name } => {
            let source = json!({ "type": "base64", "media_type": media_type, "data": data });
            let mut block = json!({ "type": "document", "source": source });
            if let Some(name) = name {
                block["title"] = json!(name);
            }
            block
        }
        Part::Text(text) => json!({ "type": "text", "text": text }),
        Part::Image { media_type, data } => {
            let source = json!({ "type": "base64", "media_type": media_type, "data": data });
            json!({ "type": "image", "source": source })
        }
        Part::ImageUrl(url) => {
            json!({ "type": "image", "source": { "type": "url", "url": url } })
        }
        Part::ToolCall(call) => {
            json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": call.input })
        }
        Part::ToolResult { id, text, failed } => {
            let mut block = json!({ "type": "tool_result", "tool_use_id": id, "content": text });
            if *failed {
                block["is_error"] = json!(true);
            }
            block
        }
    })
}

fn tool(tool: &Tool) -> Value {
    let mut made = json!({ "name": tool.name, "input_schema": tool.input });
    if let Some(description) = &tool.description {
        made["description"] = json!(description);
    }
    made
}

/// A message; in a stream, its start.
#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    model: String,
    content: Vec<Block>,
    stop_reason: Option<String>,
    #[serde(default, deserialize_with = "if_readable")]
    usage: Option<Counts>,
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
    #[serde(default, deserialize_with = "token_count")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "if_readable")]
    cache_creation: Option<Creation>,
    service_tier: Option<String>,
}

#[derive(Deserialize, Clone, Copy)]
struct Creation {
    #[serde(default, deserialize_with = "token_count")]
    ephemeral_1h_input_tokens: Option<u64>,
}

impl Counts {
    fn update(&mut self, later: Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.cache_creation_input_tokens =
            later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.cache_read_input_tokens = later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.cache_creation = later.cache_creation.or(self.cache_creation);
        self.service_tier = later.service_tier.or_else(|| self.service_tier.take());
    }

    /// Anthropic's `input_tokens` excludes cached tokens; ours includes them.
    fn usage(&self, cache: Option<CacheFor>) -> Usage {
        let written = self.cache_creation_input_tokens.unwrap_or(0);
        let cached = self.cache_read_input_tokens.unwrap_or(0);
        let long = match (self.cache_creation, cache) {
            (Some(creation), _) => creation.ephemeral_1h_input_tokens.unwrap_or(0).min(written),
            (None, Some(CacheFor::Hour)) => written,
            (None, _) => 0,
        };
        Usage {
            input: self.input_tokens.map(|input| input.saturating_add(written).saturating_add(cached)),
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
fn parse_answer(body: &[u8], cache: Option<CacheFor>) -> Result<Draft, String> {
    let message: Message = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let usage = message.usage.unwrap_or_default();
    let mut draft = Draft {
        model: Some(message.model),
        finish: Some(message.stop_reason.as_deref().map_or(FinishReason::Other, finish)),
        tier: usage.tier(),
        usage: usage.usage(cache),
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
        #[serde(default, deserialize_with = "if_readable")]
        usage: Option<Counts>,
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
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct MessageEnd {
    stop_reason: Option<String>,
}

/// Parses a message from its events.
#[derive(Default)]
struct EventParser {
    cache: Option<CacheFor>,
    counts: Counts,
    /// The tool call that is arriving, and its input so far.
    open_call: Option<(ToolCall, String)>,
    stop_reason: Option<String>,
}

impl EventParser {
    /// Until the stream ends, the count of the answer is that of its start.
    fn count(&mut self, later: Option<Counts>, draft: &mut Draft) {
        self.counts.update(later.unwrap_or_default());
        draft.usage = Usage { output: None, ..self.counts.usage(self.cache) };
        draft.tier = self.counts.tier();
    }
}

impl StreamParser for EventParser {
    fn take(
        &mut self,
        event: &DecodedEvent,
        draft: &mut Draft,
        pieces: &mut Vec<AnswerPiece>,
    ) -> Result<Flow, EventError> {
        match serde_json::from_str(&event.data)? {
            StreamEvent::MessageStart { message } => {
                draft.model = Some(message.model);
                self.count(message.usage, draft);
            }
            StreamEvent::ContentBlockStart { content_block: Block::Text { text } }
            | StreamEvent::ContentBlockDelta { delta: Delta::Text { text } } => {
                draft.add_text(text, pieces);
            }
            StreamEvent::ContentBlockStart { content_block: Block::ToolUse { id, name, input } } => {
                self.open_call = Some((ToolCall { id, name, input }, String::new()));
            }
            StreamEvent::ContentBlockDelta { delta: Delta::Input { partial_json } } => {
                draft.open_input.push_str(&partial_json);
                if let Some((_, input)) = &mut self.open_call {
                    input.push_str(&partial_json);
                }
            }
            StreamEvent::ContentBlockDelta { delta: Delta::Thinking { thinking } } => {
                draft.hidden.push_str(&thinking);
            }
            StreamEvent::ContentBlockStop => {
                if let Some((mut call, input)) = self.open_call.take() {
                    if !input.is_empty() {
                        call.input = tool_input(&input);
                    }
                    draft.add_call(call, pieces);
                }
            }
            StreamEvent::MessageDelta { delta, usage } => {
                self.stop_reason = delta.stop_reason.or(self.stop_reason.take());
                self.count(usage, draft);
            }
            StreamEvent::MessageStop => {
                let reason = self.stop_reason.as_deref();
                draft.finish = Some(reason.map_or(FinishReason::Other, finish));
                draft.usage.output = self.counts.output_tokens;
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
}
