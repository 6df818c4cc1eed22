//! The model API: questions, answers, errors, and the [`Provider`] trait.
//!
//! Owns the contract's codes and finish reasons. Knows no provider.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::chat::{AnswerPiece, Chat, ToolCall};
use crate::embedding::EmbeddingInput;
use crate::passthrough::PassthroughRequest;
use crate::pricing::{MAX_IMAGE_TOKENS, estimate_tokens};
use crate::providers::error_mapping::is_certain_lack_of_credit;

/// One question to a model.
#[derive(Debug, Clone)]
pub struct Question {
    /// Identifies the question: the same when it is re-run after a crash, new when it is asked
    /// again.
    pub request_id: String,
    /// The prompt.
    pub prompt: String,
    /// The system prompt.
    pub system: Option<String>,
    /// Maximum tokens of the answer.
    pub max_tokens: u32,
    /// 0 is the most predictable.
    pub temperature: f64,
    /// The JSON Schema that the answer should follow; some providers enforce it.
    pub schema: Option<Arc<Value>>,
    /// Another model than the profile's.
    pub model: Option<String>,
    /// A whole conversation, instead of `prompt`.
    pub chat: Option<Arc<Chat>>,
    /// Texts to embed, instead of `prompt`.
    pub embeddings: Option<Arc<EmbeddingInput>>,
    /// The client's original request, for a provider with the same API.
    pub raw: Option<Arc<PassthroughRequest>>,
    /// The deadline, for waits, retries and the call itself.
    pub until: Instant,
    /// Whether it was sent, and may have been billed.
    pub sent: SentFlag,
    /// How long a connection may take, if less than usual: another profile could answer.
    pub connect_timeout: Option<Duration>,
}

impl Question {
    /// A question with the contract's default values.
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
            embeddings: None,
            raw: None,
            until,
            sent: SentFlag::default(),
            connect_timeout: None,
        }
    }

    /// A hash of what is asked: the same for the same request of different callers and attempts.
    pub(crate) fn content_hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.system, &self.prompt, &self.model, self.max_tokens).hash(&mut hasher);
        self.temperature.to_bits().hash(&mut hasher);
        match &self.raw {
            Some(raw) => raw.body.hash(&mut hasher),
            // Parts without a hash of their own, by their text.
            None => format!("{:?}", (&self.schema, &self.chat, &self.embeddings)).hash(&mut hasher),
        }
        hasher.finish()
    }

    /// The prompt, or the last user text of the conversation.
    pub(crate) fn prompt_text(&self) -> &str {
        match &self.chat {
            Some(chat) if self.prompt.is_empty() => chat.last_user_text(),
            _ => &self.prompt,
        }
    }

    /// Estimated tokens, chat templates included: about four for a message and three for the answer's start.
    pub(crate) fn estimate_with_template(&self) -> u64 {
        let messages = self.chat.as_ref().map_or(1, |chat| chat.messages.len());
        self.estimate() + 3 + 4 * (messages as u64 + u64::from(self.system.is_some()))
    }

    /// Estimated tokens.
    pub fn estimate(&self) -> u64 {
        let system = self.system.as_deref().map_or(0, estimate_tokens);
        let asked = match (&self.chat, &self.embeddings) {
            (_, Some(embeddings)) => embeddings.estimate(),
            (Some(chat), None) => chat.estimate(),
            (None, None) => estimate_tokens(&self.prompt),
        };
        system + asked
    }
}

/// Whether a question was sent to its provider: only then can it have been billed. Reset when the
/// provider rejects it. A clone of a question has a flag of its own.
#[derive(Debug, Default)]
pub struct SentFlag(Arc<SendProgress>);

#[derive(Debug, Default)]
struct SendProgress {
    sent: AtomicBool,
    /// The provider has begun to answer, with a success status.
    accepted: AtomicBool,
    /// Signals `accepted`.
    changed: Notify,
}

impl SentFlag {
    /// The same flag.
    #[must_use]
    pub fn share(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    pub(crate) fn set(&self, sent: bool) {
        self.0.sent.store(sent, Ordering::Relaxed);
    }

    /// Whether some of the question was written to a connection.
    pub fn is_set(&self) -> bool {
        self.0.sent.load(Ordering::Relaxed)
    }

    /// Begins an attempt. A provider that does not know better has sent the question then.
    pub(crate) fn begin_attempt(&self) {
        self.set(true);
        self.0.accepted.store(false, Ordering::Relaxed);
    }

    /// The provider has begun to answer: it works, however long the answer takes.
    pub(crate) fn set_accepted(&self) {
        self.0.accepted.store(true, Ordering::Relaxed);
        self.0.changed.notify_waiters();
    }

    /// Completes when the provider has begun to answer.
    pub(crate) async fn accepted(&self) {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            if self.0.accepted.load(Ordering::Relaxed) {
                return;
            }
            changed.await;
        }
    }
}

impl Clone for SentFlag {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// A model's answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// The text.
    pub text: String,
    /// The model that answered.
    pub model: String,
    /// Tokens of the question, including those read from or written to a cache.
    pub tokens_in: u64,
    /// Tokens of the answer.
    pub tokens_out: u64,
    /// Tokens of the question that were read from a cache.
    #[serde(default)]
    pub tokens_cached: u64,
    /// Tokens of the question that were written to a cache for some minutes.
    #[serde(default)]
    pub tokens_cache_write: u64,
    /// Tokens of the question that were written to a cache for an hour.
    #[serde(default)]
    pub tokens_cache_write_long: u64,
    /// The latency, in milliseconds.
    pub latency_ms: u64,
    /// Why the answer ends.
    pub finish_reason: FinishReason,
    /// No model was asked: [`crate::Echo`] or [`crate::Scripted`] made the answer.
    #[serde(default)]
    pub simulated: bool,
    /// The provider reported no token counts: they are estimated.
    #[serde(default)]
    pub estimated: bool,
    /// Tools that the model wants called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Vectors, one for each text to embed.
    #[serde(skip)]
    pub embeddings: Vec<Vec<f32>>,
    /// The provider's service tier, if it has its own price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// The rate limits that the provider reported.
    #[serde(skip)]
    pub headroom: Headroom,
    /// What of the request the provider was not told, as text for users.
    #[serde(skip)]
    pub dropped: Option<Box<str>>,
    /// The provider's response body, if the request was passed through. Boxed: few answers have it,
    /// and many are held.
    #[serde(skip)]
    pub raw: Option<Box<Bytes>>,
}

/// Why an answer ends, in provider-independent terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model was done.
    #[default]
    Stop,
    /// `max_tokens` was reached.
    Length,
    /// The provider withheld it.
    ContentFilter,
    /// Any other reason.
    #[serde(other)]
    Other,
}

/// Error codes of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum Code {
    /// The question is invalid.
    InvalidRequest,
    /// The same request was asked before: its answer is not asked for again.
    DuplicateRequest,
    /// There is no such profile.
    ProfileNotFound,
    /// The profile cannot be used now.
    ProfileDisabled,
    /// Too many questions; a later retry may succeed.
    RateLimited,
    /// The budget or the key's credit is used up.
    OverBudget,
    /// The provider rejected the key.
    ProviderAuth,
    /// The provider failed; a later retry may succeed.
    ProviderError,
    /// The deadline passed. The call may have been billed.
    Timeout,
    /// An internal error; also any unknown code.
    #[serde(other)]
    Internal,
}

impl Code {
    /// The code's name in the contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::DuplicateRequest => "DUPLICATE_REQUEST",
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

    /// Whether a later retry may succeed. Not after a timeout: it may have been billed.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::RateLimited | Self::ProviderError)
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// When a rejected request of a suspended tenant should be retried.
const SUSPENDED_RETRY_AFTER: Duration = Duration::from_secs(60);

/// An error instead of an answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct AskError {
    /// What the caller can do.
    pub code: Code,
    /// What happened; safe to log.
    pub message: String,
    /// How long to wait before a retry, by the provider's or our own limits.
    pub retry_after: Option<Duration>,
    /// The provider's HTTP status, if there was one.
    pub provider_status: Option<u16>,
    /// The provider's own type and code of the error, if it sent any.
    pub provider_error: Option<Box<ProviderErrorId>>,
    /// Whether the same question may be sent again.
    pub retry: Retryability,
    /// The rate limits that the provider reported.
    pub headroom: Option<Box<Headroom>>,
    /// Whether it may have been billed.
    pub billing: BillingStatus,
}

/// How a provider identifies an error.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderErrorId {
    /// Its type, such as `invalid_request_error`.
    pub kind: Option<String>,
    /// Its code, such as `context_length_exceeded`.
    pub code: Option<String>,
}

/// Whether a failed question may have been billed.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum BillingStatus {
    /// No: it was not sent, or the provider rejected it.
    #[default]
    Nothing,
    /// Unknown: it was sent. Count the highest possible cost.
    Unknown,
    /// This part of the answer arrived. Its tokens are estimated.
    Partial(Box<Answer>),
}

/// Whether a failed question may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retryability {
    /// No: it cannot succeed, or it may have been billed.
    #[default]
    Never,
    /// Later: the provider was busy or failed, and did not process it.
    Later,
    /// At once: it was not sent.
    NotSent,
    /// When the key has credit again.
    AfterTopUp,
    /// When an operator resumes the tenant.
    AfterResume,
}

/// Rate limits that a provider reported in its headers; `None` if it reported none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Headroom {
    /// Requests.
    pub requests: Option<RemainingLimit>,
    /// Tokens; if input and output tokens are limited separately, the scarcer.
    pub tokens: Option<RemainingLimit>,
}

/// What remains of a limit, and when it is reset.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RemainingLimit {
    /// The limit.
    pub limit: Option<u64>,
    /// What remains.
    pub left: u64,
    /// How long until the limit is reset.
    pub reset: Option<Duration>,
}

impl AskError {
    /// An error with only a code and a message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            retry_after: None,
            provider_status: None,
            provider_error: None,
            retry: Retryability::Never,
            headroom: None,
            billing: BillingStatus::Nothing,
        }
    }

    /// The question was not sent, and may be sent later. Not a timeout: that may have been billed.
    pub(crate) fn not_sent(message: impl Into<String>) -> Self {
        Self { retry: Retryability::NotSent, ..Self::new(Code::ProviderError, message) }
    }

    /// The tenant is suspended. Unlike a suspended profile, this has a retry time: queued requests
    /// are retried until the tenant is resumed.
    pub(crate) fn suspended(message: impl Into<String>) -> Self {
        let (retry, retry_after) = (Retryability::AfterResume, Some(SUSPENDED_RETRY_AFTER));
        Self { retry, retry_after, ..Self::new(Code::ProfileDisabled, message) }
    }

    /// Whether the provider rejected this question for a lack of credit by a message alone. The
    /// question itself may be the reason, so it is not asked for ever.
    pub fn may_be_about_the_question(&self) -> bool {
        self.retry == Retryability::AfterTopUp && !is_certain_lack_of_credit(self)
    }

    /// Marks the question as sent, with an unknown cost.
    #[must_use]
    pub(crate) fn maybe_billed(self) -> Self {
        Self { billing: BillingStatus::Unknown, ..self }
    }
}

/// Answers questions. Cancel-safe: dropping the future abandons the question.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// Asks once. Returns by `question.until`, at the latest with [`Code::Timeout`].
    async fn ask(&self, question: &Question) -> Result<Answer, AskError>;

    /// Asks, and sends the answer's pieces as they arrive. A slow receiver slows the answer down;
    /// if the receiver is dropped, the rest is not read, and the part that arrived is returned.
    async fn stream(
        &self,
        question: &Question,
        pieces: &mpsc::Sender<AnswerPiece>,
    ) -> Result<Answer, AskError> {
        let answer = self.ask(question).await?;
        // Without a receiver, the answer is still returned.
        let _ = pieces.send(AnswerPiece::Text(answer.text.clone())).await;
        Ok(answer)
    }

    /// Checks that the provider is reachable, accepts the key and has the model, free of charge.
    /// Returns its description; [`Code::InvalidRequest`] means that the model is not there.
    async fn health(&self, _until: Instant) -> Result<String, AskError> {
        Ok("answers without network".to_owned())
    }

    /// The tokens of a question, if the provider counts them, free of charge.
    async fn count_tokens(&self, _question: &Question) -> Result<Option<u64>, AskError> {
        Ok(None)
    }

    /// What of a question it is not told, as text for users.
    fn dropped(&self, _question: &Question) -> Option<Box<str>> {
        None
    }

    /// Estimated tokens of a question.
    fn estimate(&self, question: &Question) -> u64 {
        question.estimate()
    }

    /// The most tokens that a question can have, which a budget reserves.
    fn token_bound(&self, question: &Question) -> u64 {
        question.token_bound(MAX_IMAGE_TOKENS)
    }

    /// Whether answers are simulated.
    fn is_simulated(&self) -> bool {
        false
    }
}
