//! Ollama's own wire: `/api/chat`, and `/api/generate` for plain questions where a profile wants that.
//!
//! A question that is longer than the model's context is cut by the server, which says nothing of it. So
//! the server is told not to, the context is told to the server, and what it counted is compared with
//! what was asked.

mod reading;

use serde_json::{Value, json};

use super::dialect::{Dialect, Draft, How, Reading};
use crate::ask::{AskError, Code, Question};
use crate::chat::{Chat, Message, Part, Role, Tool};
use crate::http::Framing;
use crate::profile::{Profile, ProviderName, Wire};

/// The context of a server that was not told of another: the smallest there is.
const SMALLEST_CONTEXT: u64 = 4096;

/// Ollama's wire.
pub(crate) struct Ollama {
    wire: Wire,
}

impl Ollama {
    pub(crate) fn new(profile: &Profile) -> Self {
        Self { wire: profile.wire.clone() }
    }

    /// Conversations cannot be generated.
    fn generates(&self, question: &Question) -> bool {
        self.wire.generate && question.chat.is_none()
    }

    fn options(&self, question: &Question) -> Value {
        let mut options = json!({ "num_predict": question.max_tokens });
        if let Some(context) = self.wire.num_ctx {
            options["num_ctx"] = json!(context);
        }
        let chat = question.chat.as_ref();
        if self.wire.sampling {
            options["temperature"] = json!(question.temperature);
            if let Some(top_p) = chat.and_then(|chat| chat.top_p) {
                options["top_p"] = json!(top_p);
            }
        }
        if let Some(chat) = chat.filter(|chat| !chat.stop.is_empty()) {
            options["stop"] = json!(chat.stop);
        }
        options
    }

    /// Whether the server read much less than was asked. Our estimate is rough, so only what no text can
    /// explain counts: a question far above the context of which no more than the context was read.
    fn was_cut(&self, question: &Question, read: u64) -> bool {
        let asked = question.estimate();
        match self.wire.num_ctx.map(u64::from) {
            Some(context) => {
                let far_above = asked > context + context / 2 && read <= context;
                // What is left of a prompt that was cut: about half of the context.
                far_above || (asked > context && read <= context / 2 + 64)
            }
            None => asked > SMALLEST_CONTEXT && read < asked / 3,
        }
    }
}

impl Dialect for Ollama {
    const NAME: ProviderName = ProviderName::Ollama;
    const ADDRESS: &'static str = "http://127.0.0.1:11434";
    const PREFIX: &'static str = "/api";
    const NEEDS_KEY: bool = false;
    const FRAMING: Framing = Framing::Lines;

    fn key_header(&self) -> (&'static str, &'static str) {
        ("authorization", "Bearer ")
    }

    fn path(&self, _model: &str, question: &Question, _how: How) -> Result<String, AskError> {
        Ok(if self.generates(question) { "/generate" } else { "/chat" }.to_owned())
    }

    fn body(&self, model: &str, question: &Question, how: How) -> Value {
        let mut body = json!({
            "model": model,
            "stream": how.is_streamed(),
            "truncate": false,
            "shift": false,
            "options": self.options(question),
        });
        if let Some(schema) = &question.schema {
            body["format"] = (**schema).clone();
        }
        let system = question.system.as_ref().filter(|system| !system.is_empty());
        if self.generates(question) {
            body["prompt"] = json!(question.prompt);
            if let Some(system) = system {
                body["system"] = json!(system);
            }
            return body;
        }
        let system = system.map(|system| json!({ "role": "system", "content": system }));
        let said = match &question.chat {
            None => vec![json!({ "role": "user", "content": question.prompt })],
            Some(chat) => conversation(chat),
        };
        body["messages"] = system.into_iter().chain(said).collect();
        if let Some(chat) = question.chat.as_ref().filter(|chat| !chat.tools.is_empty()) {
            body["tools"] = chat.tools.iter().map(tool).collect();
        }
        body
    }

    fn read(&self, body: &[u8]) -> Result<Draft, String> {
        reading::whole(body)
    }

    fn reading(&self) -> Box<dyn Reading> {
        Box::new(reading::Parts::default())
    }

    /// How many tokens a picture has depends on the model: questions with pictures are not judged.
    fn check(&self, question: &Question, draft: &Draft) -> Result<(), AskError> {
        let Some(read) = draft.usage.input else { return Ok(()) };
        let pictures = question.chat.as_ref().is_some_and(|chat| {
            let mut parts = chat.messages.iter().flat_map(|message| &message.parts);
            parts.any(|part| matches!(part, Part::Image { .. } | Part::ImageUrl(_)))
        });
        if pictures || !self.was_cut(question, read) {
            return Ok(());
        }
        let message = format!(
            "the server cut the question: it read {read} tokens of about {}; \
             shorten it, or give the profile a larger `num_ctx`",
            question.estimate()
        );
        Err(AskError { provider_status: Some(200), ..AskError::new(Code::InvalidRequest, message) })
    }

    fn health_path(&self) -> &'static str {
        "/tags"
    }

    fn health(&self, model: &str, said: &Value) -> String {
        let models =
            said.get("models").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let latest = format!("{model}:latest");
        let known = models.iter().any(|one| one["name"] == model || one["name"] == latest);
        match known || model.is_empty() {
            true => format!("answers, has {} models", models.len()),
            false => format!("answers, but has not pulled `{model}`"),
        }
    }
}

fn conversation(chat: &Chat) -> Vec<Value> {
    chat.messages.iter().flat_map(|message| turn(chat, message)).collect()
}

/// A turn as messages; what tools said are messages of their own.
fn turn(chat: &Chat, message: &Message) -> Vec<Value> {
    let mut said = Vec::new();
    let (mut text, mut images, mut calls) = (String::new(), Vec::new(), Vec::new());
    for part in &message.parts {
        match part {
            Part::Text(words) => text.push_str(words),
            Part::Image { data, .. } => images.push(json!(data)),
            // The server fetches nothing; the model is at least told where it is.
            Part::ImageUrl(url) => text.push_str(url),
            Part::ToolCall(call) => {
                calls.push(json!({ "function": { "name": call.name, "arguments": call.input } }));
            }
            Part::ToolResult { id, text, .. } => {
                let name = chat.called(id).unwrap_or(id);
                said.push(json!({ "role": "tool", "tool_name": name, "content": text }));
            }
        }
    }
    if text.is_empty() && images.is_empty() && calls.is_empty() {
        return said;
    }
    let role = if message.role == Role::User { "user" } else { "assistant" };
    let mut turn = json!({ "role": role, "content": text });
    if !images.is_empty() {
        turn["images"] = Value::Array(images);
    }
    if !calls.is_empty() {
        turn["tool_calls"] = Value::Array(calls);
    }
    said.push(turn);
    said
}

fn tool(tool: &Tool) -> Value {
    let description = tool.description.as_deref().unwrap_or_default();
    let function =
        json!({ "name": tool.name, "description": description, "parameters": tool.input });
    json!({ "type": "function", "function": function })
}
