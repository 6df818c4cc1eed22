//! Google's Gemini: `generateContent`, and the same as a stream.

mod reading;

use serde_json::{Map, Value, json};

use super::dialect::{Dialect, Draft, How, Reading};
use crate::ask::{AskError, Code, Question};
use crate::chat::{Chat, Message, Part, Role, Tool, ToolCall, ToolChoice};
use crate::http::Framing;
use crate::profile::{Profile, ProviderName, Wire};

/// What stands in a call's id between the id and what the model thought. Newer models want their thought
/// back with the call, and nowhere else is there room for it.
const THOUGHT: &str = "~thought~";

/// Gemini's wire.
pub(crate) struct Gemini {
    wire: Wire,
}

impl Gemini {
    pub(crate) fn new(profile: &Profile) -> Self {
        Self { wire: profile.wire.clone() }
    }

    fn settings(&self, question: &Question) -> Value {
        let mut settings = json!({ "maxOutputTokens": question.max_tokens });
        let chat = question.chat.as_ref();
        if self.wire.sampling {
            settings["temperature"] = json!(question.temperature);
            if let Some(top_p) = chat.and_then(|chat| chat.top_p) {
                settings["topP"] = json!(top_p);
            }
        }
        if let Some(chat) = chat.filter(|chat| !chat.stop.is_empty()) {
            settings["stopSequences"] = json!(chat.stop);
        }
        if let Some(schema) = &question.schema {
            settings["responseMimeType"] = json!("application/json");
            settings["responseJsonSchema"] = (**schema).clone();
        }
        settings
    }
}

impl Dialect for Gemini {
    const NAME: ProviderName = ProviderName::Gemini;
    const ADDRESS: &'static str = "https://generativelanguage.googleapis.com";
    const PREFIX: &'static str = "/v1beta";
    const NEEDS_KEY: bool = true;
    const FRAMING: Framing = Framing::Sse;

    fn key_header(&self) -> (&'static str, &'static str) {
        ("x-goog-api-key", "")
    }

    /// The model is part of the path, and whoever asks may name another: it must not lead elsewhere.
    fn path(&self, model: &str, _question: &Question, how: How) -> Result<String, AskError> {
        let sound = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if !model.chars().all(sound) || model.contains("..") || model.starts_with('/') {
            return Err(AskError::new(
                Code::InvalidRequest,
                "the model's name is not one of Gemini's",
            ));
        }
        let folder = if model.contains('/') { "" } else { "models/" };
        Ok(match how {
            How::Whole => format!("/{folder}{model}:generateContent"),
            How::Streamed => format!("/{folder}{model}:streamGenerateContent?alt=sse"),
        })
    }

    fn body(&self, _model: &str, question: &Question, _how: How) -> Value {
        let mut body = json!({ "generationConfig": self.settings(question) });
        if let Some(system) = question.system.as_ref().filter(|system| !system.is_empty()) {
            body["systemInstruction"] = json!({ "parts": [{ "text": system }] });
        }
        match &question.chat {
            None => {
                let parts = json!([{ "text": question.prompt }]);
                body["contents"] = json!([{ "role": "user", "parts": parts }]);
            }
            Some(chat) => converse(&mut body, chat),
        }
        body
    }

    fn read(&self, body: &[u8]) -> Result<Draft, String> {
        reading::whole(body)
    }

    fn reading(&self) -> Box<dyn Reading> {
        Box::new(reading::Chunks::default())
    }

    fn health_path(&self) -> &'static str {
        "/models?pageSize=1"
    }

    fn health(&self, _model: &str, _said: &Value) -> String {
        "answers, accepts the key".to_owned()
    }
}

fn converse(body: &mut Value, chat: &Chat) {
    body["contents"] = chat.messages.iter().map(|message| turn(chat, message)).collect();
    if chat.tools.is_empty() {
        return;
    }
    let tools: Vec<Value> = chat.tools.iter().map(tool).collect();
    body["tools"] = json!([{ "functionDeclarations": tools }]);
    let choice = match &chat.tool_choice {
        ToolChoice::Auto => return,
        ToolChoice::None => json!({ "mode": "NONE" }),
        ToolChoice::Any => json!({ "mode": "ANY" }),
        ToolChoice::Named(name) => json!({ "mode": "ANY", "allowedFunctionNames": [name] }),
    };
    body["toolConfig"] = json!({ "functionCallingConfig": choice });
}

fn turn(chat: &Chat, message: &Message) -> Value {
    let role = if message.role == Role::User { "user" } else { "model" };
    let parts: Vec<Value> = message.parts.iter().map(|one| part(chat, one)).collect();
    json!({ "role": role, "parts": parts })
}

fn part(chat: &Chat, part: &Part) -> Value {
    match part {
        Part::Text(text) => json!({ "text": text }),
        Part::Image { media_type, data } => {
            json!({ "inlineData": { "mimeType": media_type, "data": data } })
        }
        Part::ImageUrl(url) => json!({ "fileData": { "fileUri": url } }),
        Part::ToolCall(call) => called(call),
        Part::ToolResult { id, text, failed } => {
            let name = chat.called(id).unwrap_or(id);
            let said = if *failed { "error" } else { "result" };
            let response: Map<String, Value> =
                [(said.to_owned(), json!(text))].into_iter().collect();
            json!({ "functionResponse": { "name": name, "response": response } })
        }
    }
}

fn called(call: &ToolCall) -> Value {
    let mut part = json!({ "functionCall": { "name": call.name, "args": call.input } });
    if let Some((_, thought)) = call.id.split_once(THOUGHT) {
        part["thoughtSignature"] = json!(thought);
    }
    part
}

fn tool(tool: &Tool) -> Value {
    let description = tool.description.as_deref().unwrap_or_default();
    json!({ "name": tool.name, "description": description, "parametersJsonSchema": tool.input })
}
