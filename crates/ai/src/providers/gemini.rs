//! Google's Gemini API: `generateContent` and `streamGenerateContent`.

mod parse;

use serde_json::{Map, Value, json};

use super::provider_adapter::{Draft, ProviderAdapter, ResponseMode, StreamParser};
use crate::chat::{Chat, Message, Part, Role, Tool, ToolCall, ToolChoice};
use crate::model_api::{AskError, Code, Question};
use crate::profile::{Profile, ProviderName, Wire};
use crate::sse::Framing;

/// Separates a tool call's id from the model's thought signature. Newer models need their signature
/// back with the call, and the id is the only field that clients return.
const THOUGHT_SEPARATOR: &str = "~thought~";

/// Gemini's API.
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

impl ProviderAdapter for Gemini {
    const NAME: ProviderName = ProviderName::Gemini;
    const ADDRESS: &'static str = "https://generativelanguage.googleapis.com";
    const PREFIX: &'static str = "/v1beta";
    const NEEDS_KEY: bool = true;
    const FRAMING: Framing = Framing::Sse;

    fn key_header(&self) -> (&'static str, &'static str) {
        ("x-goog-api-key", "")
    }

    /// The model is part of the path and may come from the client: it must not change the path.
    fn path(
        &self,
        model: &str,
        _question: &Question,
        mode: ResponseMode,
    ) -> Result<String, AskError> {
        let sound = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if !model.chars().all(sound) || model.contains("..") || model.starts_with('/') {
            return Err(AskError::new(
                Code::InvalidRequest,
                "the model's name is not valid for Gemini",
            ));
        }
        let folder = if model.contains('/') { "" } else { "models/" };
        Ok(match mode {
            ResponseMode::Complete => format!("/{folder}{model}:generateContent"),
            ResponseMode::Stream => format!("/{folder}{model}:streamGenerateContent?alt=sse"),
        })
    }

    fn body(&self, _model: &str, question: &Question, _mode: ResponseMode) -> Value {
        let mut body = json!({ "generationConfig": self.settings(question) });
        if let Some(system) = question.system.as_ref().filter(|system| !system.is_empty()) {
            body["systemInstruction"] = json!({ "parts": [{ "text": system }] });
        }
        match &question.chat {
            None => {
                let parts = json!([{ "text": question.prompt }]);
                body["contents"] = json!([{ "role": "user", "parts": parts }]);
            }
            Some(chat) => add_conversation(&mut body, chat),
        }
        body
    }

    fn parse(&self, body: &[u8]) -> Result<Draft, String> {
        parse::answer(body)
    }

    fn stream_parser(&self) -> Box<dyn StreamParser> {
        Box::new(parse::ChunkParser::default())
    }

    fn health_path(&self) -> &'static str {
        "/models?pageSize=1"
    }

    fn health(&self, _model: &str, _body: &Value) -> String {
        "answers, accepts the key".to_owned()
    }
}

fn add_conversation(body: &mut Value, chat: &Chat) {
    body["contents"] = chat.messages.iter().map(|message| content(chat, message)).collect();
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

fn content(chat: &Chat, message: &Message) -> Value {
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
        Part::ToolCall(call) => function_call(call),
        Part::ToolResult { id, text, failed } => {
            let name = chat.tool_name(id).unwrap_or(id);
            let field = if *failed { "error" } else { "result" };
            let response: Map<String, Value> =
                [(field.to_owned(), json!(text))].into_iter().collect();
            json!({ "functionResponse": { "name": name, "response": response } })
        }
    }
}

fn function_call(call: &ToolCall) -> Value {
    let mut part = json!({ "functionCall": { "name": call.name, "args": call.input } });
    if let Some((_, thought)) = call.id.split_once(THOUGHT_SEPARATOR) {
        part["thoughtSignature"] = json!(thought);
    }
    part
}

fn tool(tool: &Tool) -> Value {
    let description = tool.description.as_deref().unwrap_or_default();
    json!({ "name": tool.name, "description": description, "parametersJsonSchema": tool.input })
}
