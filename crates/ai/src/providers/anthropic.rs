//! Anthropic's messages, in both versions of the API.
//!
//! The newer version knows no sampling fields, and its key travels as a bearer token.

mod reading;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::dialect::{Changes, Dialect, Draft, How, Reading};
use super::shape;
use crate::ask::{AskError, Question};
use crate::chat::{Chat, Part, Role, Tool, ToolChoice};
use crate::http::Framing;
use crate::profile::{Auth, CacheFor, Profile, ProviderName, Wire};
use crate::raw::Raw;

/// The version that takes sampling fields and `x-api-key`.
const OLD: &str = "2023-06-01";

/// Anthropic's wire.
pub(crate) struct Anthropic {
    wire: Wire,
}

impl Anthropic {
    pub(crate) fn new(profile: &Profile) -> Self {
        Self { wire: profile.wire.clone() }
    }

    fn version(&self) -> &str {
        self.wire.version.as_deref().unwrap_or(OLD)
    }

    /// The instructions; a mark makes all before it, and them, worth keeping.
    fn system(&self, text: &str) -> Value {
        match self.wire.cache {
            None => json!(text),
            Some(keep) => json!([{ "type": "text", "text": text, "cache_control": mark(keep) }]),
        }
    }

    fn samples(&self) -> bool {
        self.wire.sampling && self.version() == OLD
    }

    fn sampling(&self, body: &mut Value, question: &Question) {
        if !self.samples() {
            return;
        }
        body["temperature"] = json!(question.temperature);
        if let Some(top_p) = question.chat.as_ref().and_then(|chat| chat.top_p) {
            body["top_p"] = json!(top_p);
        }
    }
}

impl Dialect for Anthropic {
    const NAME: ProviderName = ProviderName::Anthropic;
    const ADDRESS: &'static str = "https://api.anthropic.com";
    const PREFIX: &'static str = "/v1";
    const NEEDS_KEY: bool = true;
    const FRAMING: Framing = Framing::Sse;

    fn key_header(&self) -> (&'static str, &'static str) {
        match self.wire.auth {
            Auth::Usual if self.version() == OLD => ("x-api-key", ""),
            Auth::Header => ("x-api-key", ""),
            Auth::Usual | Auth::Bearer => ("authorization", "Bearer "),
        }
    }

    fn headers(&self) -> HeaderMap {
        let version = HeaderValue::from_str(self.version()).ok();
        let name = HeaderName::from_static("anthropic-version");
        version.map(|version| (name, version)).into_iter().collect()
    }

    fn path(&self, _model: &str, _question: &Question, _how: How) -> Result<String, AskError> {
        Ok("/messages".to_owned())
    }

    fn body(&self, model: &str, question: &Question, how: How) -> Value {
        let mut body = json!({ "model": model, "max_tokens": question.max_tokens });
        let mut system = question.system.clone();
        if let Some(schema) = &question.schema {
            match shape::closed(schema) {
                Some(schema) => {
                    let format = json!({ "type": "json_schema", "schema": schema });
                    body["output_config"] = json!({ "format": format });
                }
                None => system = Some(shape::told(system, schema)),
            }
        }
        if let Some(system) = system.filter(|system| !system.is_empty()) {
            body["system"] = self.system(&system);
        }
        match &question.chat {
            None => body["messages"] = json!([{ "role": "user", "content": question.prompt }]),
            Some(chat) => converse(&mut body, chat),
        }
        self.sampling(&mut body, question);
        if how.is_streamed() {
            body["stream"] = json!(true);
        }
        body
    }

    fn raw<'q>(&self, question: &'q Question) -> Option<&'q Raw> {
        question.raw_for(Self::NAME)
    }

    /// The most tokens and the temperature may be the profile's; sampling goes only where the model takes
    /// it. What is to be cached, the question says itself.
    fn changes(&self, model: &str, question: &Question, _raw: &Raw, how: How) -> Changes {
        let mut changes: Changes = vec![
            ("model", Some(model.into())),
            ("max_tokens", Some(question.max_tokens.into())),
            ("temperature", self.samples().then(|| question.temperature.into())),
            ("stream", how.is_streamed().then(|| true.into())),
        ];
        if !self.samples() {
            changes.extend([("top_p", None), ("top_k", None)]);
        }
        changes
    }

    fn read(&self, body: &[u8]) -> Result<Draft, String> {
        reading::whole(body, self.wire.cache)
    }

    fn reading(&self) -> Box<dyn Reading> {
        Box::new(reading::Events::new(self.wire.cache))
    }

    fn health_path(&self) -> &'static str {
        "/models?limit=1"
    }

    fn health(&self, _model: &str, _said: &Value) -> String {
        format!("answers, accepts the key, speaks {}", self.version())
    }
}

fn mark(keep: CacheFor) -> Value {
    match keep {
        CacheFor::Minutes => json!({ "type": "ephemeral" }),
        CacheFor::Hour => json!({ "type": "ephemeral", "ttl": "1h" }),
    }
}

fn converse(body: &mut Value, chat: &Chat) {
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

/// A part as a block. Blocks without text are refused by the provider.
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
