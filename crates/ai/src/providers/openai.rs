//! OpenAI's chat completions API, and the many compatible servers.

mod parse;

use serde_json::{Value, json};

use super::provider_adapter::{Changes, Draft, ProviderAdapter, ResponseMode, StreamParser};
use super::schema_compat;
use crate::chat::{Chat, Message, Part, Role, Tool, ToolCall, ToolChoice};
use crate::model_api::{AskError, Question};
use crate::passthrough::PassthroughRequest;
use crate::profile::{Profile, ProviderName, Wire};
use crate::sse::Framing;

/// OpenAI's chat completions API.
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
            Some(schema) if self.wire.no_schema => {
                Some(schema_compat::append_to_prompt(system, schema))
            }
            _ => system,
        };
        system.filter(|system| !system.is_empty())
    }

    fn messages(&self, question: &Question) -> Vec<Value> {
        let system = self.instructions(question);
        let system = system.map(|system| json!({ "role": "system", "content": system }));
        let messages = match &question.chat {
            None => vec![json!({ "role": "user", "content": question.prompt })],
            Some(chat) => chat.messages.iter().flat_map(messages_of).collect(),
        };
        system.into_iter().chain(messages).collect()
    }

    /// The field that limits the answer's tokens, and the field that is not used.
    fn max_tokens_fields(&self) -> (&'static str, &'static str) {
        match self.wire.old_max_tokens {
            true => ("max_tokens", "max_completion_tokens"),
            false => ("max_completion_tokens", "max_tokens"),
        }
    }

    fn add_sampling(&self, body: &mut Value, question: &Question) {
        if !self.wire.sampling {
            return;
        }
        body["temperature"] = json!(question.temperature);
        if let Some(top_p) = question.chat.as_ref().and_then(|chat| chat.top_p) {
            body["top_p"] = json!(top_p);
        }
    }
}

impl ProviderAdapter for Openai {
    const NAME: ProviderName = ProviderName::Openai;
    const ADDRESS: &'static str = "https://api.openai.com";
    const PREFIX: &'static str = "/v1";
    const NEEDS_KEY: bool = true;
    const FRAMING: Framing = Framing::Sse;

    fn key_header(&self) -> (&'static str, &'static str) {
        ("authorization", "Bearer ")
    }

    fn path(
        &self,
        _model: &str,
        _question: &Question,
        _mode: ResponseMode,
    ) -> Result<String, AskError> {
        Ok("/chat/completions".to_owned())
    }

    fn body(&self, model: &str, question: &Question, mode: ResponseMode) -> Value {
        let mut body = json!({ "model": model, "messages": self.messages(question) });
        body[self.max_tokens_fields().0] = json!(question.max_tokens);
        if let Some(schema) = question.schema.as_ref().filter(|_| !self.wire.no_schema) {
            let strict = schema_compat::is_strict(schema);
            let schema = json!({ "name": "answer", "strict": strict, "schema": **schema });
            body["response_format"] = json!({ "type": "json_schema", "json_schema": schema });
        }
        if let Some(chat) = &question.chat {
            add_chat_options(&mut body, chat);
        }
        self.add_sampling(&mut body, question);
        if mode.is_streamed() {
            body["stream"] = json!(true);
            body["stream_options"] = json!({ "include_usage": true });
        }
        body
    }

    /// A server without schema support gets the schema in the prompt, which needs a translation.
    fn raw<'q>(&self, question: &'q Question) -> Option<&'q PassthroughRequest> {
        let in_prompt = self.wire.no_schema && question.schema.is_some();
        question.raw_for(Self::NAME).filter(|_| !in_prompt)
    }

    /// `max_tokens` and `temperature` may come from the profile; sampling fields are sent only if
    /// the model takes them; a stream has to report its usage at the end.
    fn changes(
        &self,
        model: &str,
        question: &Question,
        raw: &PassthroughRequest,
        mode: ResponseMode,
    ) -> Changes {
        let (limit, other_limit) = self.max_tokens_fields();
        let mut changes = Changes::with_capacity(7);
        changes.extend([
            ("model", Some(model.into())),
            (limit, Some(question.max_tokens.into())),
            (other_limit, None),
            ("temperature", self.wire.sampling.then(|| question.temperature.into())),
            ("stream", mode.is_streamed().then(|| true.into())),
            ("stream_options", mode.is_streamed().then(|| stream_options(raw))),
        ]);
        if !self.wire.sampling {
            changes.push(("top_p", None));
        }
        changes
    }

    fn parse(&self, body: &[u8]) -> Result<Draft, String> {
        parse::answer(body)
    }

    fn stream_parser(&self) -> Box<dyn StreamParser> {
        Box::new(parse::ChunkParser::default())
    }

    fn health_path(&self) -> &'static str {
        "/models"
    }

    fn health(&self, model: &str, body: &Value) -> String {
        let models =
            body.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let listed = model.is_empty() || models.iter().any(|one| one["id"] == model);
        let but = if listed { String::new() } else { format!(", not `{model}` among them") };
        format!("answers, accepts the key, has {} models{but}", models.len())
    }
}

fn stream_options(raw: &PassthroughRequest) -> Value {
    let mut options = raw.field("stream_options").filter(Value::is_object).unwrap_or(json!({}));
    options["include_usage"] = json!(true);
    options
}

fn add_chat_options(body: &mut Value, chat: &Chat) {
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

/// A message as OpenAI's messages. Tool results are messages of their own and come first: the
/// provider wants them right after the calls.
fn messages_of(message: &Message) -> Vec<Value> {
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
            Part::ToolCall(tool_call) => calls.push(call(tool_call)),
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
