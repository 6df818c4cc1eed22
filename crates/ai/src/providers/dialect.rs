//! What tells one provider's wire from another's: addresses, headers, and the translation of questions
//! and answers. Pure: who sends and waits is [`super::remote`].

use hyper::header::HeaderMap;
use serde_json::Value;
use std::time::Duration;

use crate::ask::{Answer, AskError, FinishReason, Headroom, Question};
use crate::chat::{Piece, ToolCall};
use crate::cost::estimate_tokens;
use crate::http::{Event, Framing};
use crate::profile::ProviderName;
use crate::raw::Raw;

/// Whether an answer is to come in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// In one.
    Whole,
    /// As it is made.
    Streamed,
}

impl How {
    pub(crate) fn is_streamed(self) -> bool {
        self == Self::Streamed
    }
}

/// One provider's wire.
pub(crate) trait Dialect: Send + Sync + 'static {
    /// Whose wire it is.
    const NAME: ProviderName;
    /// Where the provider is, where the profile does not say.
    const ADDRESS: &'static str;
    /// What its paths begin with, where the address does not.
    const PREFIX: &'static str;
    /// The provider at its own address answers nobody without a key.
    const NEEDS_KEY: bool;
    /// How its streams are cut into events.
    const FRAMING: Framing;

    /// The header that carries the key: its name, and what stands before the key.
    fn key_header(&self) -> (&'static str, &'static str);

    /// Headers that each request has.
    fn headers(&self) -> HeaderMap {
        HeaderMap::new()
    }

    /// Where a question goes.
    fn path(&self, model: &str, question: &Question, how: How) -> Result<String, AskError>;

    /// What is sent.
    fn body(&self, model: &str, question: &Question, how: How) -> Value;

    /// The question as it came, where it came over this wire and can be sent on like that.
    fn raw<'q>(&self, _question: &'q Question) -> Option<&'q Raw> {
        None
    }

    /// What is to be another in a question that is sent on as it came.
    fn changes(&self, _model: &str, _question: &Question, _raw: &Raw, _how: How) -> Changes {
        Changes::new()
    }

    /// Reads an answer that came in one; or why it is none.
    fn read(&self, body: &[u8]) -> Result<Draft, String>;

    /// Reads an answer that comes in pieces.
    fn reading(&self) -> Box<dyn Reading>;

    /// A last look at an answer, beside its question.
    fn check(&self, _question: &Question, _draft: &Draft) -> Result<(), AskError> {
        Ok(())
    }

    /// Where one sees, for nothing, that the provider is there and accepts the key.
    fn health_path(&self) -> &'static str;

    /// What that says.
    fn health(&self, model: &str, said: &Value) -> String;
}

/// Members of a request, and what is to be in their place.
pub(crate) type Changes = Vec<(&'static str, Option<Value>)>;

/// Reads a stream's events.
pub(crate) trait Reading: Send {
    /// Takes an event, and adds the pieces that are complete now.
    fn take(&mut self, event: &Event, pieces: &mut Vec<Piece>) -> Result<Flow, Fault>;

    /// What has come so far. It is an answer if it has a finish.
    fn draft(self: Box<Self>) -> Draft;
}

/// Whether more events are to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Yes, or nobody knows.
    More,
    /// No: whatever comes is not read.
    Done,
}

/// What is wrong with an event.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It cannot be read.
    Garbled(String),
    /// It is the provider's word that something failed.
    Told(Value),
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        Self::Garbled(error.to_string())
    }
}

/// An answer as far as the provider told it.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) text: String,
    pub(crate) model: Option<String>,
    pub(crate) tool_calls: Vec<ToolCall>,
    /// Why it ends; nothing as long as it has not.
    pub(crate) finish: Option<FinishReason>,
    pub(crate) tier: Option<String>,
    pub(crate) usage: Usage,
}

/// Tokens, as far as the provider told them.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Usage {
    /// All of the question's.
    pub(crate) input: Option<u64>,
    pub(crate) output: Option<u64>,
    pub(crate) cached: u64,
    pub(crate) cache_write: u64,
    pub(crate) cache_write_long: u64,
}

impl Draft {
    /// The answer. Tokens that the provider did not tell are estimated.
    pub(crate) fn answer(
        self,
        question: &Question,
        model: &str,
        took: Duration,
        headroom: Headroom,
    ) -> Answer {
        let Usage { input, output, cached, cache_write, cache_write_long } = self.usage;
        let said = || self.tool_calls.iter().map(|call| estimate_tokens(&call.input.to_string()));
        Answer {
            tokens_in: input.unwrap_or_else(|| question.estimate()),
            tokens_out: output.unwrap_or_else(|| estimate_tokens(&self.text) + said().sum::<u64>()),
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
            tier: self.tier,
            headroom,
            raw: None,
        }
    }

    /// Nothing was said.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.tool_calls.is_empty()
    }

    /// As much of an answer as came before something cut it.
    pub(crate) fn torso(self, question: &Question, model: &str, took: Duration) -> Answer {
        // What a provider counts while it speaks is behind what it says.
        let told = self.usage.output.unwrap_or(0);
        let rest = Self { usage: Usage { output: None, ..self.usage }, ..self };
        let answer = rest.answer(question, model, took, Headroom::default());
        Answer { tokens_out: answer.tokens_out.max(told), estimated: true, ..answer }
    }

    /// The whole answer as pieces, for a provider that does not stream after all.
    pub(crate) fn pieces(&self) -> Vec<Piece> {
        let text = (!self.text.is_empty()).then(|| Piece::Text(self.text.clone()));
        text.into_iter().chain(self.tool_calls.iter().cloned().map(Piece::ToolCall)).collect()
    }
}

/// What a tool is to be given, where it comes as text. What is not JSON is handed on as it is.
pub(crate) fn tool_input(text: &str) -> Value {
    if text.trim().is_empty() {
        return Value::Object(serde_json::Map::new());
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}
