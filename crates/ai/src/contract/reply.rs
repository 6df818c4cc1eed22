//! What is answered.

use std::time::Duration;

use super::Malformed;
use super::metadata::Metadata;
use super::reply_wire::Wire;
use super::version::Version;
use crate::ask::{Again, Answer, AskError, Code, FinishReason};

/// What every reply to one request begins with.
#[derive(Debug, Clone, PartialEq)]
pub struct Heading {
    /// The version that it is written in: the request's.
    pub version: Version,
    /// The request's id; `None` if it could not be read.
    pub request_id: Option<String>,
    /// The request's metadata.
    pub metadata: Metadata,
}

/// A reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// To which request.
    pub heading: Heading,
    /// Which reply it is, from 1, where there are several: partial ones, and the last.
    pub seq: Option<u64>,
    /// What it says.
    pub said: Said,
}

/// What a reply says.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// Here is the answer, all of it.
    Success(Success),
    /// There is none.
    Error(Failure),
    /// Here is a piece of it. More follows.
    Partial(String),
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Success {
    /// The text.
    pub response: String,
    /// The model that answered.
    pub model_used: String,
    /// Tokens of the question, cached ones included.
    pub tokens_in: u64,
    /// Tokens of the answer.
    pub tokens_out: u64,
    /// Those of the question that were read from a cache.
    pub tokens_cached: u64,
    /// How long it took.
    pub latency_ms: u64,
    /// Why it ends where it ends.
    pub finish_reason: FinishReason,
    /// How often the provider was asked.
    pub attempts: u32,
    /// The tokens are our own estimate.
    pub estimated: bool,
    /// No model was asked.
    pub simulated: bool,
    /// What it cost, in millionths of a millionth of a dollar, if whoever answered keeps books.
    pub cost_picos: Option<i64>,
    /// Why it does not follow the request's schema, although it was asked for once more. It was paid for,
    /// so it is handed over all the same.
    pub schema_error: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What the caller can do.
    pub code: Code,
    /// What happened, safe to log.
    pub message: String,
    /// How often the provider was asked.
    pub attempts: u32,
    /// The provider's HTTP status, if there was one.
    pub provider_status: Option<u16>,
    /// After how long it may be tried again, if somebody said so.
    pub retry_after: Option<Duration>,
}

impl Reply {
    /// An answer.
    pub fn success(heading: Heading, answer: &Answer, attempts: u32) -> Self {
        let said = Said::Success(Success {
            response: answer.text.clone(),
            model_used: answer.model.clone(),
            tokens_in: answer.tokens_in,
            tokens_out: answer.tokens_out,
            tokens_cached: answer.tokens_cached,
            latency_ms: answer.latency_ms,
            finish_reason: answer.finish_reason,
            attempts,
            estimated: answer.estimated,
            simulated: answer.simulated,
            cost_picos: None,
            schema_error: None,
        });
        Self { heading, seq: None, said }
    }

    /// An error, after so many attempts to have an answer.
    pub fn error(heading: Heading, error: &AskError, attempts: u32) -> Self {
        let said = Said::Error(Failure {
            code: error.code,
            message: error.message.clone(),
            attempts,
            provider_status: error.provider_status,
            retry_after: error.retry_after,
        });
        Self { heading, seq: None, said }
    }

    /// The same, with what the answer cost.
    #[must_use]
    pub fn at_cost(mut self, picos: i64) -> Self {
        if let Said::Success(success) = &mut self.said {
            success.cost_picos = Some(picos);
        }
        self
    }

    /// The same, with why the answer does not follow the request's schema, if it does not.
    #[must_use]
    pub fn judged(mut self, schema_error: Option<String>) -> Self {
        if let Said::Success(success) = &mut self.said {
            success.schema_error = schema_error;
        }
        self
    }

    /// A piece of an answer, the `seq`-th from 1.
    pub fn partial(heading: Heading, seq: u64, piece: impl Into<String>) -> Self {
        Self { heading, seq: Some(seq), said: Said::Partial(piece.into()) }
    }

    /// The last reply after `partials` partial ones.
    #[must_use]
    pub fn after(self, partials: u64) -> Self {
        Self { seq: Some(partials.saturating_add(1)), ..self }
    }

    /// Reads a reply. Fields that are not in the contract are ignored; a code that is not known is
    /// read as [`Code::Internal`], a finish reason as [`FinishReason::Other`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let wire: Wire = serde_json::from_slice(bytes).map_err(|error| unreadable(&error))?;
        wire.read()
    }

    /// As it is sent.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&Wire::of(self))
    }
}

/// Where a reply goes wrong. The reader's own words could repeat what stands there.
fn unreadable(error: &serde_json::Error) -> Malformed {
    let (line, column) = (error.line(), error.column());
    let what = if error.is_data() { "keep to the contract" } else { "hold JSON" };
    Malformed(format!("the reply does not {what} (line {line}, column {column})"))
}

impl From<Success> for Answer {
    fn from(success: Success) -> Self {
        Self {
            text: success.response,
            model: success.model_used,
            tokens_in: success.tokens_in,
            tokens_out: success.tokens_out,
            tokens_cached: success.tokens_cached,
            latency_ms: success.latency_ms,
            finish_reason: success.finish_reason,
            estimated: success.estimated,
            simulated: success.simulated,
            ..Self::default()
        }
    }
}

impl From<Failure> for AskError {
    fn from(failure: Failure) -> Self {
        // A tenant's own budget says neither when it is full again nor what a provider said.
        let theirs = failure.provider_status.is_some() || failure.retry_after.is_some();
        let again = match failure.code {
            Code::OverBudget if theirs => Again::Money,
            // A profile that is suspended does not say when to come again; a tenant does.
            Code::ProfileDisabled if failure.retry_after.is_some() => Again::Resumed,
            code if code.is_retryable() => Again::Later,
            _ => Again::Never,
        };
        Self {
            retry_after: failure.retry_after,
            provider_status: failure.provider_status,
            again,
            ..Self::new(failure.code, failure.message)
        }
    }
}
