//! Replies.

use std::time::Duration;

use super::ContractError;
use super::metadata::Metadata;
use super::serialize::ReplyJson;
use super::version::Version;
use crate::model_api::{Answer, AskError, Code, FinishReason, ProviderErrorId, Retryability};

/// The fields common to all replies of one request.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplyHeader {
    /// The contract version: the request's.
    pub version: Version,
    /// The request's id; `None` if it could not be parsed.
    pub request_id: Option<String>,
    /// The request's metadata.
    pub metadata: Metadata,
}

/// A reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The common fields.
    pub header: ReplyHeader,
    /// Its number, from 1, if there are several: partial replies, and the last.
    pub seq: Option<u64>,
    /// The used share of the tenant's monthly budget, from the budget's `warn_at` on. Not in partial replies.
    pub budget_used: Option<f64>,
    /// Its content.
    pub body: ReplyBody,
}

/// The content of a reply.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplyBody {
    /// The whole answer.
    Success(Success),
    /// An error.
    Error(ReplyFailure),
    /// A piece of the answer. More follows.
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
    /// Tokens of the question that were read from a cache.
    pub tokens_cached: u64,
    /// The latency.
    pub latency_ms: u64,
    /// Why the answer ends.
    pub finish_reason: FinishReason,
    /// How often the provider was asked.
    pub attempts: u32,
    /// The token counts are estimated.
    pub estimated: bool,
    /// No model was asked.
    pub simulated: bool,
    /// Its cost in 1e-12 dollars, if the worker that answered records costs.
    pub cost_picos: Option<i64>,
    /// Why it does not follow the request's schema, after one attempt to correct it. It was paid
    /// for, so it is returned all the same.
    pub schema_error: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyFailure {
    /// What the client can do.
    pub code: Code,
    /// What happened; safe to log.
    pub message: String,
    /// How often the provider was asked.
    pub attempts: u32,
    /// The provider's HTTP status, if there was one.
    pub provider_status: Option<u16>,
    /// The provider's own type and code of the error, if it sent any.
    pub provider_error: Option<Box<ProviderErrorId>>,
    /// When a retry may succeed, if known.
    pub retry_after: Option<Duration>,
}

impl Reply {
    /// A reply with an answer.
    pub fn success(header: ReplyHeader, answer: &Answer, attempts: u32) -> Self {
        let body = ReplyBody::Success(Success {
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
        Self { header, seq: None, budget_used: None, body }
    }

    /// A reply with an error, after so many attempts.
    pub fn error(header: ReplyHeader, error: &AskError, attempts: u32) -> Self {
        let body = ReplyBody::Error(ReplyFailure {
            code: error.code,
            message: error.message.clone(),
            attempts,
            provider_status: error.provider_status,
            provider_error: error.provider_error.clone(),
            retry_after: error.retry_after,
        });
        Self { header, seq: None, budget_used: None, body }
    }

    /// Sets the answer's cost.
    #[must_use]
    pub fn with_cost(mut self, picos: i64) -> Self {
        if let ReplyBody::Success(success) = &mut self.body {
            success.cost_picos = Some(picos);
        }
        self
    }

    /// Sets the used share of the tenant's budget, in thousandths, if the client is to be warned of it.
    #[must_use]
    pub fn with_budget_used(self, used: Option<f64>) -> Self {
        Self { budget_used: used.map(|used| (used * 1_000.0).round() / 1_000.0), ..self }
    }

    /// Sets why the answer does not follow the request's schema, if so.
    #[must_use]
    pub fn with_schema_error(mut self, schema_error: Option<String>) -> Self {
        if let ReplyBody::Success(success) = &mut self.body {
            success.schema_error = schema_error;
        }
        self
    }

    /// A piece of an answer, number `seq` from 1.
    pub fn partial(header: ReplyHeader, seq: u64, piece: impl Into<String>) -> Self {
        Self { header, seq: Some(seq), budget_used: None, body: ReplyBody::Partial(piece.into()) }
    }

    /// Numbers the last reply, after `partials` partial ones.
    #[must_use]
    pub fn numbered_after(self, partials: u64) -> Self {
        Self { seq: Some(partials.saturating_add(1)), ..self }
    }

    /// Parses a reply. Fields that are not in the contract are ignored; an unknown code becomes
    /// [`Code::Internal`], an unknown finish reason [`FinishReason::Other`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ContractError> {
        let json: ReplyJson = serde_json::from_slice(bytes).map_err(|error| parse_error(&error))?;
        json.into_reply()
    }

    /// The reply as JSON.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&ReplyJson::of(self))
    }
}

/// Where a reply is invalid. The parser's own message could repeat its content.
fn parse_error(error: &serde_json::Error) -> ContractError {
    let (line, column) = (error.line(), error.column());
    let what = if error.is_data() { "violates the contract" } else { "is not JSON" };
    ContractError(format!("the reply {what} (line {line}, column {column})"))
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

impl From<ReplyFailure> for AskError {
    fn from(failure: ReplyFailure) -> Self {
        // A tenant's own budget has neither a time when it is available again nor a provider's
        // status.
        let theirs = failure.provider_status.is_some() || failure.retry_after.is_some();
        let again = match failure.code {
            Code::OverBudget if theirs => Retryability::AfterTopUp,
            // A suspended tenant has a retry time; a suspended profile has none.
            Code::ProfileDisabled if failure.retry_after.is_some() => Retryability::AfterResume,
            code if code.is_retryable() => Retryability::Later,
            _ => Retryability::Never,
        };
        Self {
            retry_after: failure.retry_after,
            provider_status: failure.provider_status,
            provider_error: failure.provider_error,
            retry: again,
            ..Self::new(failure.code, failure.message)
        }
    }
}
