//! What differs between providers' APIs: URLs, headers, and the translation of questions and
//! answers. Pure: [`super::http_provider`] sends and waits.

use hyper::header::HeaderMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::time::Duration;

use crate::chat::{AnswerPiece, Chat, Message, ToolCall};
use crate::embedding::EmbeddingInput;
use crate::model_api::{Answer, AskError, FinishReason, Headroom, Question};
use crate::passthrough::PassthroughRequest;
use crate::pricing::{MAX_IMAGE_TOKENS, estimate_tokens};
use crate::profile::ProviderName;
use crate::sse::{DecodedEvent, Framing};

/// Whether an answer is streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseMode {
    /// As one response.
    Complete,
    /// As a stream.
    Stream,
}

impl ResponseMode {
    pub(crate) fn is_streamed(self) -> bool {
        self == Self::Stream
    }
}

/// Translates to and from one provider's API.
pub(crate) trait ProviderAdapter: Send + Sync + 'static {
    /// The provider.
    const NAME: ProviderName;
    /// The default base URL.
    const ADDRESS: &'static str;
    /// The path prefix, unless the endpoint has one.
    const PREFIX: &'static str;
    /// The provider's own endpoint requires a key.
    const NEEDS_KEY: bool;
    /// How its streams are split into events.
    const FRAMING: Framing;
    /// The most tokens of an image.
    const IMAGE_TOKENS: u64 = MAX_IMAGE_TOKENS;

    /// The header for the key: its name and the prefix of its value.
    fn key_header(&self) -> (&'static str, &'static str);

    /// Headers of every request.
    fn headers(&self) -> HeaderMap {
        HeaderMap::new()
    }

    /// The path for a question.
    fn path(&self, model: &str, question: &Question, mode: ResponseMode) -> Result<String, AskError>;

    /// The request body.
    fn body(&self, model: &str, question: &Question, mode: ResponseMode) -> Value;

    /// The client's original request, if it uses this API and can be passed through.
    fn raw<'q>(&self, _question: &'q Question) -> Option<&'q PassthroughRequest> {
        None
    }

    /// The fields to change in a passed-through request.
    fn changes(
        &self,
        _model: &str,
        _question: &Question,
        _raw: &PassthroughRequest,
        _mode: ResponseMode,
    ) -> Changes {
        Changes::new()
    }

    /// The path and the request body to count a question's tokens; `None` if the provider does not count.
    fn count(&self, _model: &str, _question: &Question) -> Option<(String, Vec<u8>)> {
        None
    }

    /// The count in the response.
    fn counted(&self, _response: &Value) -> Option<u64> {
        None
    }

    /// Parses a complete answer; the error says why it is invalid.
    fn parse(&self, body: &[u8]) -> Result<Draft, String>;

    /// The path and the request body for texts to embed; `None` if the provider has no embeddings.
    fn embedding(&self, _model: &str, _input: &EmbeddingInput) -> Option<(String, Value)> {
        None
    }

    /// Parses embeddings; the error says why they are invalid.
    fn parse_embeddings(&self, _body: &[u8]) -> Result<Draft, String> {
        Err("it has no embeddings".to_owned())
    }

    /// A parser for a streamed answer.
    fn stream_parser(&self) -> Box<dyn StreamParser>;

    /// Whether an answer to this question can be streamed.
    fn streams(&self, _question: &Question) -> bool {
        true
    }

    /// Changes an answer into what was asked for.
    fn complete(&self, _question: &Question, _draft: &mut Draft) {}

    /// Checks an answer against its question.
    fn check(&self, _question: &Question, _draft: &Draft) -> Result<(), AskError> {
        Ok(())
    }

    /// A free request that shows that the provider is reachable, accepts the key and has the model.
    fn health_path(&self, model: &str) -> String;

    /// Describes the response of the health request; the error says that the model is not there.
    fn health(&self, model: &str, body: &Value) -> Result<String, String>;
}

/// Whether a model's name can be a segment of a URL's path as it is.
pub(crate) fn is_path_segment(model: &str) -> bool {
    let sound = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
    !model.is_empty() && model.chars().all(sound) && !model.contains("..")
}

/// Fields of a request, and their new values.
pub(crate) type Changes = Vec<(&'static str, Option<Value>)>;

/// Parses the events of a stream.
pub(crate) trait StreamParser: Send {
    /// Parses an event: adds to the draft, and adds the pieces that are complete now. The draft is
    /// a complete answer once it has a finish reason.
    fn take(
        &mut self,
        event: &DecodedEvent,
        draft: &mut Draft,
        pieces: &mut Vec<AnswerPiece>,
    ) -> Result<Flow, EventError>;
}

/// Whether more events may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Yes, or unknown.
    More,
    /// No: the rest is not read.
    Done,
}

/// Why an event could not be used.
#[derive(Debug)]
pub(crate) enum EventError {
    /// It is invalid.
    Invalid(String),
    /// It is an error of the provider.
    Provider(Value),
}

impl From<serde_json::Error> for EventError {
    fn from(error: serde_json::Error) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// An answer under construction.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) text: String,
    pub(crate) model: Option<String>,
    pub(crate) tool_calls: Vec<ToolCall>,
    /// The finish reason; `None` while the answer is incomplete.
    pub(crate) finish: Option<FinishReason>,
    pub(crate) tier: Option<String>,
    pub(crate) usage: Usage,
    /// Output that is billed and not part of the answer: thoughts, and further choices.
    pub(crate) hidden: String,
    /// The input of tool calls that are still arriving.
    pub(crate) open_input: String,
    pub(crate) embeddings: Vec<Vec<f32>>,
}

/// A token count. Absent if it is no count: the answer was paid for, and is worth more than that.
pub(crate) fn token_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Value::deserialize(deserializer)?.as_u64())
}

/// A part of a response that the answer does not need. Absent if it cannot be read.
pub(crate) fn if_readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(T::deserialize(Value::deserialize(deserializer)?).ok())
}

/// Token counts, as far as the provider reported them.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Usage {
    /// All tokens of the question.
    pub(crate) input: Option<u64>,
    pub(crate) output: Option<u64>,
    pub(crate) cached: u64,
    pub(crate) cache_write: u64,
    pub(crate) cache_write_long: u64,
}

impl Draft {
    /// Embeddings, of which only the input has tokens.
    pub(crate) fn of_embeddings(
        embeddings: Vec<Vec<f32>>,
        model: Option<String>,
        input: Option<u64>,
    ) -> Self {
        let usage = Usage { input, output: Some(0), ..Usage::default() };
        Self { embeddings, model, usage, finish: Some(FinishReason::Stop), ..Self::default() }
    }

    /// Adds a text, and its piece.
    pub(crate) fn add_text(&mut self, text: String, pieces: &mut Vec<AnswerPiece>) {
        if !text.is_empty() {
            self.text.push_str(&text);
            pieces.push(AnswerPiece::Text(text));
        }
    }

    /// Adds a tool call, and its piece.
    pub(crate) fn add_call(&mut self, call: ToolCall, pieces: &mut Vec<AnswerPiece>) {
        self.open_input.clear();
        self.tool_calls.push(call.clone());
        pieces.push(AnswerPiece::ToolCall(call));
    }

    /// The id of the next tool call, if the provider sent none.
    pub(crate) fn next_call_id(&self) -> String {
        format!("call_{}", self.tool_calls.len())
    }

    /// The answer. Missing token counts are estimated, and so are counts of zero for what is not
    /// empty: some servers report 0/0.
    pub(crate) fn answer(
        self,
        question: &Question,
        model: &str,
        took: Duration,
        headroom: Headroom,
    ) -> Answer {
        let Usage { input, output, cached, cache_write, cache_write_long } = self.usage;
        let input = input.filter(|tokens| *tokens > 0);
        let output = output.filter(|tokens| *tokens > 0 || self.is_empty());
        let call_tokens = || self.tool_calls.iter().map(|call| estimate_tokens(&call.input.to_string()));
        let estimate = || {
            let further = [&self.open_input, &self.hidden].into_iter().filter(|text| !text.is_empty());
            let further = further.map(|text| estimate_tokens(text)).chain(call_tokens());
            estimate_tokens(&self.text) + further.sum::<u64>()
        };
        Answer {
            tokens_in: input.unwrap_or_else(|| question.estimate()),
            tokens_out: output.unwrap_or_else(estimate),
            tokens_cached: cached,
            tokens_cache_write: cache_write,
            tokens_cache_write_long: cache_write_long,
            latency_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            finish_reason: self.finish.unwrap_or(FinishReason::Other),
            simulated: false,
            estimated: input.is_none() || output.is_none(),
            model: self.model.filter(|name| !name.is_empty()).unwrap_or_else(|| model.to_owned()),
            text: self.text,
            tool_calls: self.tool_calls,
            embeddings: self.embeddings,
            tier: self.tier,
            headroom,
            dropped: None,
            raw: None,
        }
    }

    /// Whether no part of the answer arrived.
    pub(crate) fn is_empty(&self) -> bool {
        let texts = [&self.text, &self.open_input, &self.hidden];
        texts.into_iter().all(String::is_empty) && self.tool_calls.is_empty()
    }

    /// The part of an answer that arrived before it was interrupted.
    pub(crate) fn partial_answer(self, question: &Question, model: &str, took: Duration) -> Answer {
        // A provider's count during a stream lags behind the text.
        let reported = self.usage.output.unwrap_or(0);
        let rest = Self { usage: Usage { output: None, ..self.usage }, ..self };
        let answer = rest.answer(question, model, took, Headroom::default());
        Answer { tokens_out: answer.tokens_out.max(reported), estimated: true, ..answer }
    }

    /// The complete answer as pieces, for a provider that did not stream.
    pub(crate) fn pieces(&self) -> Vec<AnswerPiece> {
        let text = (!self.text.is_empty()).then(|| AnswerPiece::Text(self.text.clone()));
        text.into_iter().chain(self.tool_calls.iter().cloned().map(AnswerPiece::ToolCall)).collect()
    }
}

/// A tool call's input from its text. Invalid JSON is kept as a string.
pub(crate) fn tool_input(text: &str) -> Value {
    if text.trim().is_empty() {
        return Value::Object(serde_json::Map::new());
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// Adds the texts that end an answer and, if the model takes them, the sampling fields. `top_p` and
/// `stop` are the API's names.
pub(crate) fn add_sampling(
    fields: &mut Value,
    question: &Question,
    sampling: bool,
    (top_p, stop): (&str, &str),
) {
    let chat = question.chat.as_deref();
    if sampling {
        fields["temperature"] = question.temperature.into();
        if let Some(value) = chat.and_then(|chat| chat.top_p) {
            fields[top_p] = value.into();
        }
    }
    if let Some(chat) = chat.filter(|chat| !chat.stop.is_empty()) {
        fields[stop] = json!(chat.stop);
    }
}

/// The messages of a question, for APIs that take the system prompt as the first message.
pub(crate) fn messages(
    system: Option<&str>,
    question: &Question,
    messages_of: impl Fn(&Chat, &Message) -> Vec<Value>,
) -> Value {
    let system = system.filter(|system| !system.is_empty());
    let system = system.map(|system| json!({ "role": "system", "content": system }));
    let messages = match question.chat.as_deref() {
        None => vec![json!({ "role": "user", "content": question.prompt })],
        Some(chat) => chat.messages.iter().flat_map(|one| messages_of(chat, one)).collect(),
    };
    system.into_iter().chain(messages).collect()
}
