//! Google's Gemini API: `generateContent` and `streamGenerateContent`.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::provider_adapter::{
    Draft, EventError, Flow, ProviderAdapter, ResponseMode, StreamParser, Usage, add_sampling, if_readable,
    is_path_segment, token_count,
};
use crate::chat::{AnswerPiece, Chat, ChatRole, Effort, Message, Part, Tool, ToolCall, ToolChoice};
use crate::embedding::EmbeddingInput;
use crate::model_api::{AskError, Code, FinishReason, Question};
use crate::profile::{ApiOptions, ProviderName};
use crate::sse::{DecodedEvent, Framing};

/// Separates a tool call's id from the model's thought signature. Newer models need their signature
/// back with the call, and the id is the only field that clients return.
const THOUGHT_SEPARATOR: &str = "~thought~";

/// Gemini's API.
pub(crate) struct Gemini {
    pub(crate) wire: ApiOptions,
}

impl Gemini {
    fn settings(&self, model: &str, question: &Question) -> Value {
        let mut settings = json!({ "maxOutputTokens": question.max_tokens });
        let names = ("topP", "stopSequences");
        add_sampling(&mut settings, question, self.wire.sampling.unwrap_or(true), names);
        if let Some(schema) = &question.schema {
            settings["responseMimeType"] = json!("application/json");
            settings["responseJsonSchema"] = (**schema).clone();
        }
        let Some(chat) = &question.chat else { return settings };
        let more = [
            ("topK", chat.top_k.map(Value::from)),
            ("frequencyPenalty", chat.frequency_penalty.map(Value::from)),
            ("presencePenalty", chat.presence_penalty.map(Value::from)),
            ("seed", chat.seed.map(Value::from)),
            ("thinkingConfig", chat.effort.map(|effort| thinking(model, effort))),
        ];
        for (name, value) in more {
            if let Some(value) = value {
                settings[name] = value;
            }
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
    fn path(&self, model: &str, _: &Question, mode: ResponseMode) -> Result<String, AskError> {
        let name = resource(model)
            .ok_or_else(|| AskError::new(Code::InvalidRequest, "the model's name is not valid for Gemini"))?;
        Ok(match mode {
            ResponseMode::Complete => format!("/{name}:generateContent"),
            ResponseMode::Stream => format!("/{name}:streamGenerateContent?alt=sse"),
        })
    }

    fn embedding(&self, model: &str, input: &EmbeddingInput) -> Option<(String, Value)> {
        let name = resource(model)?;
        let request = |text: &String| {
            let mut request = json!({ "model": name, "content": { "parts": [{ "text": text }] } });
            if let Some(dimensions) = input.dimensions {
                request["outputDimensionality"] = json!(dimensions);
            }
            request
        };
        let requests: Vec<Value> = input.texts.iter().map(request).collect();
        Some((format!("/{name}:batchEmbedContents"), json!({ "requests": requests })))
    }

    fn parse_embeddings(&self, body: &[u8]) -> Result<Draft, String> {
        let list: EmbeddingList = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let vectors = list.embeddings.into_iter().map(|one| one.values).collect();
        let input = list.usage_metadata.and_then(|counts| counts.prompt_token_count);
        Ok(Draft::of_embeddings(vectors, None, input))
    }

    fn body(&self, model: &str, question: &Question, _mode: ResponseMode) -> Value {
        let mut body = json!({ "generationConfig": self.settings(model, question) });
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

    fn count(&self, model: &str, question: &Question) -> Option<(String, Vec<u8>)> {
        let name = resource(model)?;
        let mut request = self.body(model, question, ResponseMode::Complete);
        request["model"] = json!(name);
        let body = serde_json::to_vec(&json!({ "generateContentRequest": request })).ok()?;
        Some((format!("/{name}:countTokens"), body))
    }

    fn counted(&self, response: &Value) -> Option<u64> {
        response["totalTokens"].as_u64()
    }

    fn parse(&self, body: &[u8]) -> Result<Draft, String> {
        parse_answer(body)
    }

    fn stream_parser(&self) -> Box<dyn StreamParser> {
        Box::new(ChunkParser)
    }

    fn health_path(&self, model: &str) -> String {
        match is_path_segment(model) {
            true => format!("/models/{model}"),
            false => "/models?pageSize=1".to_owned(),
        }
    }

    fn health(&self, model: &str, body: &Value) -> Result<String, String> {
        match body.get("supportedGenerationMethods").and_then(Value::as_array) {
            Some(methods) if !methods.iter().any(|method| method == "generateContent") => {
                Err(format!("answers, but `{model}` generates no text"))
            }
            _ => Ok("answers, accepts the key".to_owned()),
        }
    }
}

/// Models before version 3 are told how many tokens they may think, later ones how long.
fn thinking(model: &str, effort: Effort) -> Value {
    let name = model.rsplit('/').next().unwrap_or(model);
    if ["gemini-1", "gemini-2"].iter().any(|old| name.starts_with(old)) {
        return json!({ "thinkingBudget": effort.token_budget() });
    }
    let level = match effort {
        Effort::None | Effort::Minimal => "minimal",
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High | Effort::Xhigh | Effort::Max => "high",
    };
    json!({ "thinkingLevel": level })
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
    let role = if message.role == ChatRole::User { "user" } else { "model" };
    let parts: Vec<Value> = message.parts.iter().filter_map(|one| part(chat, one)).collect();
    json!({ "role": role, "parts": parts })
}

fn part(chat: &Chat, part: &Part) -> Option<Value> {
    Some(match part {
        Part::CacheMark(_) => return None,
        Part::Text(text) => json!({ "text": text }),
        Part::Image { media_type, data } | Part::Document { media_type, data, .. } => {
            json!({ "inlineData": { "mimeType": media_type, "data": data } })
        }
        Part::ImageUrl(url) => json!({ "fileData": { "fileUri": url } }),
        Part::ToolCall(call) => function_call(call),
        Part::ToolResult { id, text, failed } => {
            let name = chat.tool_name(id).unwrap_or(id);
            let field = if *failed { "error" } else { "result" };
            let response: Map<String, Value> = [(field.to_owned(), json!(text))].into_iter().collect();
            json!({ "functionResponse": { "name": name, "response": response } })
        }
    })
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

/// A model's name in a path; `None` if it would change the path.
fn resource(model: &str) -> Option<String> {
    let sound = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if !model.chars().all(sound) || model.contains("..") || model.starts_with('/') {
        return None;
    }
    Some(if model.contains('/') { model.to_owned() } else { format!("models/{model}") })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EmbeddingList {
    embeddings: Vec<Embedding>,
    #[serde(default, deserialize_with = "if_readable")]
    usage_metadata: Option<Counts>,
}

#[derive(Deserialize)]
struct Embedding {
    values: Vec<f32>,
}

/// An answer, or a chunk of one: both have the same form.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GenerateResponse {
    #[serde(default)]
    candidates: Vec<Candidate>,
    prompt_feedback: Option<Feedback>,
    #[serde(default, deserialize_with = "if_readable")]
    usage_metadata: Option<Counts>,
    model_version: Option<String>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    content: Option<Content>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Content {
    #[serde(default)]
    parts: Vec<ResponsePart>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResponsePart {
    text: Option<String>,
    #[serde(default)]
    thought: bool,
    function_call: Option<Call>,
    thought_signature: Option<String>,
}

#[derive(Deserialize)]
struct Call {
    id: Option<String>,
    name: String,
    #[serde(default)]
    args: Value,
}

/// The prompt was blocked.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback {
    block_reason: Option<String>,
}

/// The prompt's tokens include the cached ones; thoughts are billed as output.
#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "camelCase")]
struct Counts {
    #[serde(default, deserialize_with = "token_count")]
    prompt_token_count: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    tool_use_prompt_token_count: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    candidates_token_count: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    thoughts_token_count: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    cached_content_token_count: Option<u64>,
}

impl From<Counts> for Usage {
    fn from(counts: Counts) -> Self {
        let input = counts.prompt_token_count;
        let answer = counts.candidates_token_count;
        let thought = counts.thoughts_token_count;
        // A blocked prompt has no answer and no count.
        let output = (input.is_some() || answer.is_some())
            .then(|| answer.unwrap_or(0).saturating_add(thought.unwrap_or(0)));
        Self {
            input: input.map(|all| all.saturating_add(counts.tool_use_prompt_token_count.unwrap_or(0))),
            output,
            cached: counts.cached_content_token_count.unwrap_or(0),
            ..Self::default()
        }
    }
}

fn finish(reason: &str) -> FinishReason {
    match reason {
        "STOP" => FinishReason::Stop,
        "MAX_TOKENS" => FinishReason::Length,
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "IMAGE_SAFETY" => {
            FinishReason::ContentFilter
        }
        _ => FinishReason::Other,
    }
}

/// Parses a complete answer.
fn parse_answer(body: &[u8]) -> Result<Draft, String> {
    let response: GenerateResponse = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let mut draft = Draft::default();
    add(response, &mut draft, &mut Vec::new());
    match draft.finish {
        Some(_) => Ok(draft),
        None => Err("it has no finished candidate".into()),
    }
}

/// Adds an answer, or a chunk of one. Each chunk has the counts so far.
fn add(response: GenerateResponse, draft: &mut Draft, pieces: &mut Vec<AnswerPiece>) {
    draft.model = response.model_version.or(draft.model.take());
    if let Some(counts) = response.usage_metadata {
        draft.usage = counts.into();
    }
    if response.prompt_feedback.is_some_and(|feedback| feedback.block_reason.is_some()) {
        draft.finish = Some(FinishReason::ContentFilter);
    }
    let mut candidates = response.candidates.into_iter();
    let Some(candidate) = candidates.next() else { return };
    let further = candidates.filter_map(|candidate| candidate.content).flat_map(|content| content.parts);
    further.filter_map(|part| part.text).for_each(|text| draft.hidden.push_str(&text));
    for part in candidate.content.map(|content| content.parts).unwrap_or_default() {
        if let Some(Call { id, name, args }) = part.function_call {
            let mut id = id.unwrap_or_else(|| draft.next_call_id());
            if let Some(thought) = part.thought_signature {
                id.push_str(THOUGHT_SEPARATOR);
                id.push_str(&thought);
            }
            draft.add_call(ToolCall { id, name, input: args }, pieces);
        } else if part.thought {
            draft.hidden.push_str(&part.text.unwrap_or_default());
        } else {
            draft.add_text(part.text.unwrap_or_default(), pieces);
        }
    }
    if let Some(reason) = candidate.finish_reason {
        draft.finish = Some(finish(&reason));
    }
}

struct ChunkParser;

impl StreamParser for ChunkParser {
    /// No event is marked as the last: the stream is read to its end.
    fn take(
        &mut self,
        event: &DecodedEvent,
        draft: &mut Draft,
        pieces: &mut Vec<AnswerPiece>,
    ) -> Result<Flow, EventError> {
        let response: GenerateResponse = serde_json::from_str(&event.data)?;
        if let Some(error) = response.error {
            return Err(EventError::Provider(error));
        }
        add(response, draft, pieces);
        Ok(Flow::More)
    }
}
