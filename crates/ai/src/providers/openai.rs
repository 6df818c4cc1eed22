//! OpenAI's chat completions, and the many servers that speak the same.

mod reading;

use serde_json::{Value, json};

use super::dialect::{Changes, Dialect, Draft, How, Reading};
use super::shape;
use crate::ask::{AskError, Question};
use crate::chat::{Chat, Message, Part, Role, Tool, ToolCall, ToolChoice};
use crate::http::Framing;
use crate::profile::{Profile, ProviderName, Wire};
use crate::raw::Raw;

/// OpenAI's wire.
pub(crate) struct Openai {
    wire: Wire,
}

impl Openai {
    pub(crate) fn new(profile: &Profile) -> Self {
        Self { wire: profile.wire.clone() }
    }

    fn instructions(&self, question: &Question) -> Option<String> {
        let system = question.system.clone();
        let system = match &question.schema {
            Some(schema) if self.wire.no_schema => Some(shape::told(system, schema)),
            _ => system,
        };
        system.filter(|system| !system.is_empty())
    }

    fn messages(&self, question: &Question) -> Vec<Value> {
        let system = self.instructions(question);
        let system = system.map(|system| json!({ "role": "system", "content": system }));
        let said = match &question.chat {
            None => vec![json!({ "role": "user", "content": question.prompt })],
            Some(chat) => chat.messages.iter().flat_map(turn).collect(),
        };
        system.into_iter().chain(said).collect()
    }

    /// What the most tokens of an answer are called, and what they are not called.
    fn most(&self) -> (&'static str, &'static str) {
        match self.wire.old_max_tokens {
            true => ("max_tokens", "max_completion_tokens"),
            false => ("max_completion_tokens", "max_tokens"),
        }
    }

    fn sampling(&self, body: &mut Value, question: &Question) {
        if !self.wire.sampling {
            return;
        }
        body["temperature"] = json!(question.temperature);
        if let Some(top_p) = question.chat.as_ref().and_then(|chat| chat.top_p) {
            body["top_p"] = json!(top_p);
        }
    }
}

impl Dialect for Openai {
    const NAME: ProviderName = ProviderName::Openai;
    const ADDRESS: &'static str = "https://api.openai.com";
    const PREFIX: &'static str = "/v1";
    const NEEDS_KEY: bool = true;
    const FRAMING: Framing = Framing::Sse;

    fn key_header(&self) -> (&'static str, &'static str) {
        ("authorization", "Bearer ")
    }

    fn path(&self, _model: &str, _question: &Question, _how: How) -> Result<String, AskError> {
        Ok("/chat/completions".to_owned())
    }

    fn body(&self, model: &str, question: &Question, how: How) -> Value {
        let mut body = json!({ "model": model, "messages": self.messages(question) });
        body[self.most().0] = json!(question.max_tokens);
        if let Some(schema) = question.schema.as_ref().filter(|_| !self.wire.no_schema) {
            let strict = shape::is_strict(schema);
            let schema = json!({ "name": "answer", "strict": strict, "schema": **schema });
            body["response_format"] = json!({ "type": "json_schema", "json_schema": schema });
        }
        if let Some(chat) = &question.chat {
            settings(&mut body, chat);
        }
        self.sampling(&mut body, question);
        if how.is_streamed() {
            body["stream"] = json!(true);
            body["stream_options"] = json!({ "include_usage": true });
        }
        body
    }

    /// A server that takes no schema is told of it in words, which takes a translation.
    fn raw<'q>(&self, question: &'q Question) -> Option<&'q Raw> {
        let told = self.wire.no_schema && question.schema.is_some();
        question.raw_for(Self::NAME).filter(|_| !told)
    }

    /// The most tokens and the temperature may be the profile's; sampling goes only where the model takes
    /// it; a stream has to say at its end what it took.
    fn changes(&self, model: &str, question: &Question, raw: &Raw, how: How) -> Changes {
        let (most, not_most) = self.most();
        let mut changes = Changes::with_capacity(7);
        changes.extend([
            ("model", Some(model.into())),
            (most, Some(question.max_tokens.into())),
            (not_most, None),
            ("temperature", self.wire.sampling.then(|| question.temperature.into())),
            ("stream", how.is_streamed().then(|| true.into())),
            ("stream_options", how.is_streamed().then(|| stream_options(raw))),
        ]);
        if !self.wire.sampling {
            changes.push(("top_p", None));
        }
        changes
    }

    fn read(&self, body: &[u8]) -> Result<Draft, String> {
        reading::whole(body)
    }

    fn reading(&self) -> Box<dyn Reading> {
        Box::new(reading::Chunks::default())
    }

    fn health_path(&self) -> &'static str {
        "/models"
    }

    fn health(&self, model: &str, said: &Value) -> String {
        let models =
            said.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let known = model.is_empty() || models.iter().any(|one| one["id"] == model);
        let but = if known { String::new() } else { format!(", not `{model}` among them") };
        format!("answers, accepts the key, has {} models{but}", models.len())
    }
}

fn stream_options(raw: &Raw) -> Value {
    let mut options = raw.member("stream_options").filter(Value::is_object).unwrap_or(json!({}));
    options["include_usage"] = json!(true);
    options
}

fn settings(body: &mut Value, chat: &Chat) {
    if !chat.stop.is_empty() {
        body["stop"] = json!(chat.stop);
    }
    if chat.tools.is_empty() {
        return;
    }
    body["tools"] = chat.tools.iter().map(tool).collect();
    match &chat.tool_choice {
        ToolChoice::Auto => {}
        ToolChoice::None => body["tool_choice"] = json!("none"),
        ToolChoice::Any => body["tool_choice"] = json!("required"),
        ToolChoice::Named(name) => {
            body["tool_choice"] = json!({ "type": "function", "function": { "name": name } });
        }
    }
}

fn tool(tool: &Tool) -> Value {
    let mut function = json!({ "name": tool.name, "parameters": tool.input });
    if let Some(description) = &tool.description {
        function["description"] = json!(description);
    }
    json!({ "type": "function", "function": function })
}

/// A turn as messages. What tools said are messages of their own, and come first: the provider wants
/// them right behind the calls.
fn turn(message: &Message) -> Vec<Value> {
    if message.role == Role::Assistant {
        return vec![assistant(message)];
    }
    let results = message.parts.iter().filter_map(|part| match part {
        Part::ToolResult { id, text, .. } => {
            Some(json!({ "role": "tool", "tool_call_id": id, "content": text }))
        }
        _ => None,
    });
    let content: Vec<Value> = message.parts.iter().filter_map(content).collect();
    let user = match (content.as_slice(), message.parts.as_slice()) {
        ([], _) => None,
        (_, [Part::Text(text)]) => Some(json!({ "role": "user", "content": text })),
        _ => Some(json!({ "role": "user", "content": content })),
    };
    results.chain(user).collect()
}

fn content(part: &Part) -> Option<Value> {
    let url = match part {
        Part::Text(text) => return Some(json!({ "type": "text", "text": text })),
        Part::Image { media_type, data } => format!("data:{media_type};base64,{data}"),
        Part::ImageUrl(url) => url.clone(),
        Part::ToolCall(_) | Part::ToolResult { .. } => return None,
    };
    Some(json!({ "type": "image_url", "image_url": { "url": url } }))
}

fn assistant(message: &Message) -> Value {
    let mut text = String::new();
    let mut calls = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text(words) => text.push_str(words),
            Part::ToolCall(wanted) => calls.push(call(wanted)),
            _ => {}
        }
    }
    if calls.is_empty() {
        return json!({ "role": "assistant", "content": text });
    }
    let content = if text.is_empty() { Value::Null } else { json!(text) };
    json!({ "role": "assistant", "content": content, "tool_calls": calls })
}

fn call(call: &ToolCall) -> Value {
    let function = json!({ "name": call.name, "arguments": call.input.to_string() });
    json!({ "id": call.id, "type": "function", "function": function })
}
