//! The seam: what is asked, what is answered, and what can go wrong.
//!
//! Owns the words of the contract (codes, finish reasons). Knows no provider.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

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
    /// When the answer is of no use any more: waits, tries and the call itself included.
    pub until: Instant,
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The text.
    pub text: String,
    /// Which model it was.
    pub model: String,
    /// Tokens of the question.
    pub tokens_in: u64,
    /// Tokens of the answer.
    pub tokens_out: u64,
    /// How long it took, in milliseconds.
    pub latency_ms: u64,
    /// Why the answer ends where it ends.
    pub finish_reason: FinishReason,
    /// No model was asked: the answer was made up by [`crate::Echo`] or [`crate::Scripted`].
    #[serde(default)]
    pub simulated: bool,
}

/// Why an answer ends, whatever the provider calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model was done.
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

/// A question that was not answered.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct AskError {
    /// What the caller can do.
    pub code: Code,
    /// What happened, safe to log.
    pub message: String,
    /// The provider asked to wait this long.
    pub retry_after: Option<Duration>,
    /// The HTTP status, if there was one.
    pub provider_status: Option<u16>,
}

impl AskError {
    /// An error with nothing but its code and words.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after: None, provider_status: None }
    }
}

/// Something that answers questions. Cancel-safe: dropping the call abandons the question.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// Answers before `question.until`, or says [`Code::Timeout`].
    async fn ask(&self, question: &Question) -> Result<Answer, AskError>;

    /// Whether answers are made up.
    fn is_simulated(&self) -> bool {
        false
    }
}
