//! OpenAI's chat completions API, and the many compatible servers.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::capabilities::takes_sampling;
use super::provider_adapter::{
    Changes, Draft, EventError, Flow, ProviderAdapter, ResponseMode, StreamParser, Usage, add_sampling,
    if_readable, messages, token_count, tool_input,
};
use super::schema_compat;
use crate::chat::{AnswerPiece, Chat, ChatRole, Message, Part, Tool, ToolCall, ToolChoice};
use crate::embedding::{EmbeddingInput, EncodedVector};
use crate::model_api::{AskError, FinishReason, Question};
use crate::passthrough::PassthroughRequest;
use crate::profile::{ApiOptions, ProviderName};
use crate::sse::{DecodedEvent, Framing};

/// OpenAI's chat completions API.
pub(crate) struct Openai {
    pub(crate) wire: ApiOptions,
}

impl Openai {
    fn instructions(&self, question: &Question) -> Option<String> {
        let system = question.system.clone();
        match &question.schema {
            Some(schema) if self.wire.no_schema => Some(schema_compat::append_to_prompt(system, schema)),
            _ => system,
        }
    }

    fn takes_sampling(&self, model: &str) -> bool {
        self.wire.sampling.unwrap_or_else(|| takes_sampling(Self::NAME, model))
    }

    /// The field that limits the answer's tokens, and the field that is not used.
    fn max_tokens_fields(&self) -> (&'static str, &'static str) {
        match self.wire.old_max_tokens {
            true => ("max_tokens", "max_completion_tokens"),
            false => ("max_completion_tokens", "max_tokens"),
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

    fn path(&self, _: &str, _: &Question, _: ResponseMode) -> Result<String, AskError> {
        Ok("/chat/completions".to_owned())
    }

    fn body(&self, model: &str, question: &Question, mode: ResponseMode) -> Value {
        let system = self.instructions(question);
        let messages = messages(system.as_deref(), question, |_, message| messages_of(message));
        let mut body = json!({ "model": model, "messages": messages });
        body[self.max_tokens_fields().0] = json!(question.max_tokens);
        if let Some(schema) = question.schema.as_ref().filter(|_| !self.wire.no_schema) {
            let strict = schema_compat::is_strict(schema);
            let schema = json!({ "name": "answer", "strict": strict, "schema": **schema });
            body["response_format"] = json!({ "type": "json_schema", "json_schema": schema });
        }
        if let Some(chat) = &question.chat {
            add_tools(&mut body, chat);
            add_settings(&mut body, chat);
        }
        add_sampling(&mut body, question, self.takes_sampling(model), ("top_p", "stop"));
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
        let sampling = self.takes_sampling(model);
        let mut changes = Changes::with_capacity(7);
        changes.extend([
            ("model", Some(model.into())),
            (limit, Some(question.max_tokens.into())),
            (other_limit, None),
            ("temperature", sampling.then(|| question.temperature.into())),
            ("stream", mode.is_streamed().then(|| true.into())),
            ("stream_options", mode.is_streamed().then(|| stream_options(raw))),
        ]);
        if !sampling {
            changes.push(("top_p", None));
        }
        changes
    }

    fn parse(&self, body: &[u8]) -> Result<Draft, String> {
        parse_answer(body)
    }

    fn embedding(&self, model: &str, input: &EmbeddingInput) -> Option<(String, Value)> {
        let mut body = json!({ "model": model, "input": input.texts });
        if let Some(dimensions) = input.dimensions {
            body["dimensions"] = json!(dimensions);
        }
        Some(("/embeddings".to_owned(), body))
    }

    fn parse_embeddings(&self, body: &[u8]) -> Result<Draft, String> {
        let list: EmbeddingList = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let mut data = list.data;
        data.sort_by_key(|one| one.index);
        let vectors = data.into_iter().map(|one| one.embedding.decode()).collect::<Result<_, _>>()?;
        let input = list.usage.and_then(|usage| usage.prompt_tokens);
        Ok(Draft::of_embeddings(vectors, list.model, input))
    }

    fn stream_parser(&self) -> Box<dyn StreamParser> {
        Box::new(ChunkParser::default())
    }

    fn health_path(&self, _model: &str) -> String {
        "/models".to_owned()
    }

    fn health(&self, model: &str, body: &Value) -> Result<String, String> {
        let models = body.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let listed = model.is_empty() || models.iter().any(|one| one["id"] == model);
        let says = format!("answers, accepts the key, has {} models", models.len());
        if listed { Ok(says) } else { Err(format!("{says}, not `{model}` among them")) }
    }
}

fn stream_options(raw: &PassthroughRequest) -> Value {
    let mut options = raw.field("stream_options").filter(Value::is_object).unwrap_or(json!({}));
    options["include_usage"] = json!(true);
    options
}

fn add_tools(body: &mut Value, chat: &Chat) {
    if chat.tools.is_empty() {
        return;
    }
    body["tools"] = chat.tools.iter().map(tool).collect();
    if chat.one_tool_call {
        body["parallel_tool_calls"] = json!(false);
    }
    match &chat.tool_choice {
        ToolChoice::Auto => {}
        ToolChoice::None => body["tool_choice"] = json!("none"),
        ToolChoice::Any => body["tool_choice"] = json!("required"),
        ToolChoice::Named(name) => {
            body["tool_choice"] = json!({ "type": "function", "function": { "name": name } });
        }
    }
}

fn add_settings(body: &mut Value, chat: &Chat) {
    let settings = [
        ("frequency_penalty", chat.frequency_penalty.map(Value::from)),
        ("presence_penalty", chat.presence_penalty.map(Value::from)),
        ("seed", chat.seed.map(Value::from)),
        ("reasoning_effort", chat.effort.map(|effort| effort.as_str().into())),
        ("user", chat.user.as_deref().map(Value::from)),
    ];
    for (name, value) in settings {
        if let Some(value) = value {
            body[name] = value;
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
    if message.role == ChatRole::Assistant {
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
        Part::Image { media_type, data } => data_url(media_type, data),
        Part::ImageUrl(url) => url.clone(),
        Part::Document { media_type, data, name } => {
            let name = name.as_deref().unwrap_or("document");
            let file = json!({ "filename": name, "file_data": data_url(media_type, data) });
            return Some(json!({ "type": "file", "file": file }));
        }
        Part::ToolCall(_) | Part::ToolResult { .. } | Part::CacheMark(_) => return None,
    };
    Some(json!({ "type": "image_url", "image_url": { "url": url } }))
}

fn data_url(media_type: &str, data: &str) -> String {
    format!("data:{media_type};base64,{data}")
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

#[derive(Deserialize)]
struct EmbeddingList {
    data: Vec<EmbeddingData>,
    model: Option<String>,
    #[serde(default, deserialize_with = "if_readable")]
    usage: Option<Counts>,
}

#[derive(Deserialize)]
struct EmbeddingData {
    #[serde(default)]
    index: u64,
    embedding: EncodedVector,
}

/// A completion, or a chunk of one: only the choices differ.
#[derive(Deserialize)]
struct Completion<'a> {
    #[serde(default)]
    model: Option<String>,
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default, deserialize_with = "if_readable")]
    usage: Option<Counts>,
    #[serde(borrow)]
    service_tier: Option<BorrowedStr<'a>>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    index: Option<u64>,
    #[serde(alias = "delta")]
    message: Option<ResponseMessage>,
    #[serde(borrow)]
    finish_reason: Option<BorrowedStr<'a>>,
}

/// A string that is only compared: borrowed unless it contains escapes.
#[derive(Deserialize)]
struct BorrowedStr<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct ResponseMessage {
    content: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<Call>>,
    /// Thoughts, by the names of vLLM and DeepSeek and of OpenRouter. Other servers may use the names
    /// for other types.
    reasoning_content: Option<Value>,
    reasoning: Option<Value>,
}

impl ResponseMessage {
    fn take_thoughts(&mut self) -> String {
        let thoughts = self.reasoning_content.take().or(self.reasoning.take());
        thoughts.and_then(|thoughts| thoughts.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// All of its texts, for a message that is not the answer.
    fn into_hidden(mut self) -> String {
        let mut text = self.take_thoughts();
        let inputs = self.tool_calls.into_iter().flatten().filter_map(|call| call.function?.arguments);
        for part in self.content.into_iter().chain(self.refusal).chain(inputs) {
            text.push_str(&part);
        }
        text
    }
}

/// A tool call, or a part of one: only the first part has a name.
#[derive(Deserialize)]
struct Call {
    index: Option<usize>,
    id: Option<String>,
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: Option<String>,
    arguments: Option<String>,
}

/// As in our counts, the prompt's tokens include the cached ones.
#[derive(Deserialize, Clone, Copy)]
struct Counts {
    #[serde(default, deserialize_with = "token_count")]
    prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    completion_tokens: Option<u64>,
    #[serde(default, deserialize_with = "if_readable")]
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize, Clone, Copy, Default)]
struct Details {
    #[serde(default, deserialize_with = "token_count")]
    cached_tokens: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    cache_write_tokens: Option<u64>,
}

impl From<Counts> for Usage {
    fn from(counts: Counts) -> Self {
        let details = counts.prompt_tokens_details.unwrap_or_default();
        Self {
            input: counts.prompt_tokens,
            output: counts.completion_tokens,
            cached: details.cached_tokens.unwrap_or(0),
            cache_write: details.cache_write_tokens.unwrap_or(0),
            cache_write_long: 0,
        }
    }
}

fn finish(reason: &str) -> FinishReason {
    match reason {
        "stop" | "tool_calls" | "function_call" => FinishReason::Stop,
        "length" => FinishReason::Length,
        "content_filter" => FinishReason::ContentFilter,
        _ => FinishReason::Other,
    }
}

/// The service tier, unless it has the standard price.
fn tier(tier: Option<BorrowedStr<'_>>) -> Option<String> {
    let BorrowedStr(tier) = tier?;
    (!matches!(&*tier, "default" | "auto" | "standard")).then(|| tier.into_owned())
}

/// Parses a complete completion.
fn parse_answer(body: &[u8]) -> Result<Draft, String> {
    // Validated once: otherwise serde would validate each string by itself.
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    let completion: Completion<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut choices = completion.choices.unwrap_or_default().into_iter();
    let choice = choices.next().ok_or("it has no choice")?;
    let mut message = choice.message.ok_or("it has no message")?;
    let mut hidden = message.take_thoughts();
    choices.filter_map(|choice| choice.message).for_each(|message| hidden.push_str(&message.into_hidden()));
    let reason = choice.finish_reason.map_or(FinishReason::Other, |BorrowedStr(reason)| finish(&reason));
    let refused = message.refusal.is_some();
    let calls = message.tool_calls.unwrap_or_default();
    Ok(Draft {
        text: message.content.or(message.refusal).unwrap_or_default(),
        model: completion.model,
        tool_calls: calls.into_iter().enumerate().map(|(at, call)| call.into_tool_call(at)).collect(),
        finish: Some(if refused { FinishReason::ContentFilter } else { reason }),
        tier: tier(completion.service_tier),
        usage: completion.usage.map(Usage::from).unwrap_or_default(),
        hidden,
        ..Draft::default()
    })
}

/// The texts of an answer's choices that ended by themselves, by number from 1.
pub(crate) fn finished_choices(body: &[u8]) -> Vec<(usize, String)> {
    let completion: Option<Completion<'_>> = serde_json::from_slice(body).ok();
    let choices = completion.and_then(|completion| completion.choices).unwrap_or_default();
    let finished = choices.into_iter().enumerate().filter_map(|(at, choice)| {
        let BorrowedStr(reason) = choice.finish_reason?;
        let message = choice.message.filter(|message| message.tool_calls.is_none())?;
        (finish(&reason) == FinishReason::Stop).then_some((at + 1, message.content?))
    });
    finished.collect()
}

impl Call {
    fn into_tool_call(self, at: usize) -> ToolCall {
        let mut partial = PartialToolCall::default();
        partial.add(self);
        partial.call(at)
    }
}

/// A tool call that is arriving in parts.
#[derive(Default)]
struct PartialToolCall {
    id: String,
    name: String,
    arguments: String,
}

impl PartialToolCall {
    fn add(&mut self, part: Call) {
        self.id.push_str(part.id.as_deref().unwrap_or_default());
        if let Some(function) = part.function {
            self.name.push_str(function.name.as_deref().unwrap_or_default());
            self.arguments.push_str(function.arguments.as_deref().unwrap_or_default());
        }
    }

    fn call(self, at: usize) -> ToolCall {
        let id = if self.id.is_empty() { format!("call_{at}") } else { self.id };
        ToolCall { id, name: self.name, input: tool_input(&self.arguments) }
    }
}

/// Parses a completion from its chunks.
#[derive(Default)]
struct ChunkParser {
    calls: Vec<PartialToolCall>,
    refused: bool,
}

impl ChunkParser {
    fn choice(&mut self, choice: Choice<'_>, draft: &mut Draft, pieces: &mut Vec<AnswerPiece>) {
        if let Some(mut message) = choice.message {
            draft.hidden.push_str(&message.take_thoughts());
            self.refused |= message.refusal.is_some();
            draft.add_text(message.content.or(message.refusal).unwrap_or_default(), pieces);
            for part in message.tool_calls.unwrap_or_default() {
                let input = part.function.as_ref().and_then(|function| function.arguments.as_deref());
                draft.open_input.push_str(input.unwrap_or_default());
                self.part(part);
            }
        }
        if let Some(BorrowedStr(reason)) = choice.finish_reason {
            let reason = if self.refused { FinishReason::ContentFilter } else { finish(&reason) };
            draft.finish = Some(reason);
            for (at, call) in std::mem::take(&mut self.calls).into_iter().enumerate() {
                draft.add_call(call.call(at), pieces);
            }
        }
    }

    /// Parts name their call by its index. Servers that omit it send each call in one part.
    fn part(&mut self, part: Call) {
        let at = part.index.unwrap_or(self.calls.len()).min(self.calls.len());
        if at == self.calls.len() {
            self.calls.push(PartialToolCall::default());
        }
        self.calls[at].add(part);
    }
}

impl StreamParser for ChunkParser {
    fn take(
        &mut self,
        event: &DecodedEvent,
        draft: &mut Draft,
        pieces: &mut Vec<AnswerPiece>,
    ) -> Result<Flow, EventError> {
        if event.data.trim() == "[DONE]" {
            return Ok(Flow::Done);
        }
        let chunk: Completion<'_> = serde_json::from_str(&event.data)?;
        if let Some(error) = chunk.error {
            return Err(EventError::Provider(error));
        }
        draft.model = chunk.model.or(draft.model.take());
        draft.tier = tier(chunk.service_tier).or(draft.tier.take());
        if let Some(counts) = chunk.usage {
            draft.usage = counts.into();
        }
        for (at, choice) in chunk.choices.unwrap_or_default().into_iter().enumerate() {
            match at > 0 || choice.index.is_some_and(|index| index > 0) {
                true => choice.message.into_iter().for_each(|one| draft.hidden.push_str(&one.into_hidden())),
                false => self.choice(choice, draft, pieces),
            }
        }
        Ok(Flow::More)
    }
}
