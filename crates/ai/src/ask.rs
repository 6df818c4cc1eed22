//! The seam: what is asked, what is answered, and what can go wrong.
//!
//! Owns the words of the contract (codes, finish reasons). Knows no provider.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::chat::{Chat, Piece, ToolCall};
use crate::cost::estimate_tokens;
use crate::raw::Raw;

/// One question to a model.
#[derive(Debug, Clone)]
pub struct Question {
    /// Recognises the question: the same across crash re-runs, new when it is asked anew.
    pub request_id: String,
    /// What is asked.
    pub prompt: String,
    /// What the model is told about its role.
    pub system: Option<String>,
    /// Most tokens of the answer.
    pub max_tokens: u32,
    /// 0 is the most predictable.
    pub temperature: f64,
    /// The JSON Schema that the answer should follow; providers that can, enforce it.
    pub schema: Option<Arc<Value>>,
    /// Another model than the profile's.
    pub model: Option<String>,
    /// A whole conversation, in the place of `prompt`.
    pub chat: Option<Arc<Chat>>,
    /// The question as it came over a provider's own wire, for a provider that speaks it.
    pub raw: Option<Arc<Raw>>,
    /// When the answer is of no use any more: waits, tries and the call itself included.
    pub until: Instant,
}

impl Question {
    /// A plain question, with everything else as the contract has it by default.
    pub fn new(request_id: impl Into<String>, prompt: impl Into<String>, until: Instant) -> Self {
        Self {
            request_id: request_id.into(),
            prompt: prompt.into(),
            system: None,
            max_tokens: 1024,
            temperature: 0.0,
            schema: None,
            model: None,
            chat: None,
            raw: None,
            until,
        }
    }

    /// What is asked, in words: the prompt, or the last words of the conversation.
    pub(crate) fn words(&self) -> &str {
        match &self.chat {
            Some(chat) if self.prompt.is_empty() => chat.last_words(),
            _ => &self.prompt,
        }
    }

    /// About how many tokens it has.
    pub fn estimate(&self) -> u64 {
        let system = self.system.as_deref().map_or(0, estimate_tokens);
        let asked =
            self.chat.as_ref().map_or_else(|| estimate_tokens(&self.prompt), |c| c.estimate());
        system + asked
    }
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// The text.
    pub text: String,
    /// Which model it was.
    pub model: String,
    /// Tokens of the question: all of them, those from a cache or written to one included.
    pub tokens_in: u64,
    /// Tokens of the answer.
    pub tokens_out: u64,
    /// Those of the question that were read from a cache.
    #[serde(default)]
    pub tokens_cached: u64,
    /// Those of the question that were written to a cache for some minutes.
    #[serde(default)]
    pub tokens_cache_write: u64,
    /// Those of the question that were written to a cache for an hour.
    #[serde(default)]
    pub tokens_cache_write_long: u64,
    /// How long it took, in milliseconds.
    pub latency_ms: u64,
    /// Why the answer ends where it ends.
    pub finish_reason: FinishReason,
    /// No model was asked: the answer was made up by [`crate::Echo`] or [`crate::Scripted`].
    #[serde(default)]
    pub simulated: bool,
    /// The provider did not say how many tokens: they are our own estimate.
    #[serde(default)]
    pub estimated: bool,
    /// Tools that the model wants called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The tier that the provider served it in, where that has a price of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// What the provider said of its limits.
    #[serde(skip)]
    pub headroom: Headroom,
    /// The answer as it came over the wire, where the question was asked raw. In a box: few answers
    /// have it, and many are kept.
    #[serde(skip)]
    pub raw: Option<Box<Bytes>>,
}

/// Why an answer ends, whatever the provider calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model was done.
    #[default]
    Stop,
    /// It ran into `max_tokens`.
    Length,
    /// The provider withheld it.
    ContentFilter,
    /// Anything else.
    #[serde(other)]
    Other,
}

/// What went wrong, in the words of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum Code {
    /// The provider (or we) cannot make sense of the question.
    InvalidRequest,
    /// There is no such profile.
    ProfileNotFound,
    /// The profile may not be used now.
    ProfileDisabled,
    /// Too many questions; later may work.
    RateLimited,
    /// The money is spent.
    OverBudget,
    /// The provider does not accept our key.
    ProviderAuth,
    /// The provider failed; later may work.
    ProviderError,
    /// No answer in time. It may have been billed.
    Timeout,
    /// Our own fault; also what an unknown code is read as.
    #[serde(other)]
    Internal,
}

impl Code {
    /// The code's name in the contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::ProfileNotFound => "PROFILE_NOT_FOUND",
            Self::ProfileDisabled => "PROFILE_DISABLED",
            Self::RateLimited => "RATE_LIMITED",
            Self::OverBudget => "OVER_BUDGET",
            Self::ProviderAuth => "PROVIDER_AUTH",
            Self::ProviderError => "PROVIDER_ERROR",
            Self::Timeout => "TIMEOUT",
            Self::Internal => "INTERNAL",
        }
    }

    /// Whether the same question may be answered later. Not after a timeout: it may have been
    /// billed.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::RateLimited | Self::ProviderError)
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// How long after a refusal a suspended tenant may have been resumed.
const SUSPENDED: Duration = Duration::from_secs(60);

/// A question that was not answered.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct AskError {
    /// What the caller can do.
    pub code: Code,
    /// What happened, safe to log.
    pub message: String,
    /// How long to wait, as the provider asks, or whoever refused it here.
    pub retry_after: Option<Duration>,
    /// The HTTP status, if there was one.
    pub provider_status: Option<u16>,
    /// Whether the same question may be sent again.
    pub again: Again,
    /// What the provider said of its limits.
    pub headroom: Option<Box<Headroom>>,
    /// What it may cost all the same.
    pub bill: Bill,
}

/// What a question that was not answered may cost all the same.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Bill {
    /// Nothing: it never left, or the provider refused it.
    #[default]
    Nothing,
    /// It left, and nobody knows what became of it: as much as it might have cost.
    Unknown,
    /// This much of the answer came. Its tokens are an estimate.
    Came(Box<Answer>),
}

/// Whether a question that was not answered may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Again {
    /// No: it cannot work, or it may have been billed.
    #[default]
    Never,
    /// After a while: the provider was busy or failed, and says that it did nothing.
    Later,
    /// At once: the question never left.
    NotSent,
    /// Not with this key: there is no money for it. Whoever asks with it waits for somebody to pay.
    Money,
    /// Not before an operator resumes the tenant.
    Resumed,
}

/// What a provider said of its limits in the headers of an answer. Nothing where it said nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Headroom {
    /// Requests.
    pub requests: Option<Left>,
    /// Tokens; where those of questions and answers are told apart, the scarcer.
    pub tokens: Option<Left>,
}

/// How much is left, and when it is full again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Left {
    /// The limit.
    pub limit: Option<u64>,
    /// What is left of it.
    pub left: u64,
    /// In how long all of it is back.
    pub reset: Option<Duration>,
}

impl AskError {
    /// An error with nothing but its code and words.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            retry_after: None,
            provider_status: None,
            again: Again::Never,
            headroom: None,
            bill: Bill::Nothing,
        }
    }

    /// The tenant may ask nobody. Unlike a profile that is suspended this passes by itself for whoever
    /// waits in a queue, so it is told when to look again.
    pub(crate) fn suspended(message: impl Into<String>) -> Self {
        let (again, retry_after) = (Again::Resumed, Some(SUSPENDED));
        Self { again, retry_after, ..Self::new(Code::ProfileDisabled, message) }
    }

    /// The same, of a question that left: nobody knows what it costs.
    #[must_use]
    pub(crate) fn maybe_billed(self) -> Self {
        Self { bill: Bill::Unknown, ..self }
    }
}

/// Something that answers questions. Cancel-safe: dropping the call abandons the question.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// Asks once, and answers before `question.until` or says [`Code::Timeout`].
    async fn ask(&self, question: &Question) -> Result<Answer, AskError>;

    /// The same, and hands on the answer's pieces as they come. Whoever listens too slowly slows the
    /// answer down; if nobody listens any more, the rest is not wanted.
    async fn stream(
        &self,
        question: &Question,
        pieces: &mpsc::Sender<Piece>,
    ) -> Result<Answer, AskError> {
        let answer = self.ask(question).await?;
        // Whoever does not listen still has the answer.
        let _ = pieces.send(Piece::Text(answer.text.clone())).await;
        Ok(answer)
    }

    /// Whether it can be reached and accepts the key, without paying for it. What it says of itself.
    async fn health(&self, _until: Instant) -> Result<String, AskError> {
        Ok("answers without network".to_owned())
    }

    /// About how many tokens a question has.
    fn estimate(&self, question: &Question) -> u64 {
        question.estimate()
    }

    /// Whether answers are made up.
    fn is_simulated(&self) -> bool {
        false
    }
}
