//! Anthropic's messages API, in both versions.
//!
//! The newer version has no sampling fields, and sends the key as a bearer token.

mod parse;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::provider_adapter::{Changes, Draft, ProviderAdapter, ResponseMode, StreamParser};
use super::schema_compat;
use crate::chat::{Chat, Part, Role, Tool, ToolChoice};
use crate::model_api::{AskError, Question};
use crate::passthrough::PassthroughRequest;
use crate::profile::{Auth, CacheFor, Profile, ProviderName, Wire};
use crate::sse::Framing;

/// The version that takes sampling fields and `x-api-key`.
const LEGACY_VERSION: &str = "2023-06-01";

/// Anthropic's messages API.
pub(crate) struct Anthropic {
    wire: Wire,
}

impl Anthropic {
    pub(crate) fn new(profile: &Profile) -> Self {
        Self { wire: profile.wire.clone() }
    }

    fn version(&self) -> &str {
        self.wire.version.as_deref().unwrap_or(LEGACY_VERSION)
    }

    /// The system prompt. A cache mark makes the provider cache it and everything before it.
    fn system(&self, text: &str) -> Value {
        match self.wire.cache {
            None => json!(text),
            Some(cache) => {
                json!([{ "type": "text", "text": text, "cache_control": cache_control(cache) }])
            }
        }
    }

    fn takes_sampling(&self) -> bool {
        self.wire.sampling && self.version() == LEGACY_VERSION
    }

    fn add_sampling(&self, body: &mut Value, question: &Question) {
        if !self.takes_sampling() {
            return;
        }
        body["temperature"] = json!(question.temperature);
        if let Some(top_p) = question.chat.as_ref().and_then(|chat| chat.top_p) {
            body["top_p"] = json!(top_p);
        }
    }
}

impl ProviderAdapter for Anthropic {
    const NAME: ProviderName = ProviderName::Anthropic;
    const ADDRESS: &'static str = "https://api.anthropic.com";
    const PREFIX: &'static str = "/v1";
    const NEEDS_KEY: bool = true;
    const FRAMING: Framing = Framing::Sse;

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

    fn path(
        &self,
        _model: &str,
        _question: &Question,
        _mode: ResponseMode,
    ) -> Result<String, AskError> {
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
            body["system"] = self.system(&system);
        }
        match &question.chat {
            None => body["messages"] = json!([{ "role": "user", "content": question.prompt }]),
            Some(chat) => add_conversation(&mut body, chat),
        }
        self.add_sampling(&mut body, question);
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
        _raw: &PassthroughRequest,
        mode: ResponseMode,
    ) -> Changes {
        let mut changes: Changes = vec![
            ("model", Some(model.into())),
            ("max_tokens", Some(question.max_tokens.into())),
            ("temperature", self.takes_sampling().then(|| question.temperature.into())),
            ("stream", mode.is_streamed().then(|| true.into())),
        ];
        if !self.takes_sampling() {
            changes.extend([("top_p", None), ("top_k", None)]);
        }
        changes
    }

    fn parse(&self, body: &[u8]) -> Result<Draft, String> {
        parse::answer(body, self.wire.cache)
    }

    fn stream_parser(&self) -> Box<dyn StreamParser> {
        Box::new(parse::EventParser::new(self.wire.cache))
    }

    fn health_path(&self) -> &'static str {
        "/models?limit=1"
    }

    fn health(&self, _model: &str, _body: &Value) -> String {
        format!("answers, accepts the key, speaks {}", self.version())
    }
}

fn cache_control(cache: CacheFor) -> Value {
    match cache {
        CacheFor::Minutes => json!({ "type": "ephemeral" }),
        CacheFor::Hour => json!({ "type": "ephemeral", "ttl": "1h" }),
    }
}

fn add_conversation(body: &mut Value, chat: &Chat) {
    let messages = chat.messages.iter().map(|message| {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        let content: Vec<Value> = message.parts.iter().filter_map(block).collect();
        json!({ "role": role, "content": content })
    });
    body["messages"] = messages.collect();
    if !chat.stop.is_empty() {
        body["stop_sequences"] = json!(chat.stop);
    }
    if !chat.tools.is_empty() {
        body["tools"] = chat.tools.iter().map(tool).collect();
        match &chat.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::None => body["tool_choice"] = json!({ "type": "none" }),
            ToolChoice::Any => body["tool_choice"] = json!({ "type": "any" }),
            ToolChoice::Named(name) => {
                body["tool_choice"] = json!({ "type": "tool", "name": name });
            }
        }
    }
}

/// A part as a block. The provider rejects blocks without text.
fn block(part: &Part) -> Option<Value> {
    Some(match part {
        Part::Text(text) if text.is_empty() => return None,
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
