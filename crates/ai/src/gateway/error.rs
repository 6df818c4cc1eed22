//! Gateway errors, before an API format encodes them.

use std::time::Duration;

use longshore::text::truncate_bytes;

use crate::model_api::{AskError, Code, ProviderErrorId, Retryability};

/// Longest message. Parsers quote what they could not read.
const MAX_MESSAGE_BYTES: usize = 1000;

/// An error response.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GatewayError {
    pub(super) kind: GatewayErrorKind,
    pub(super) message: String,
    /// The request field that caused it.
    pub(super) param: Option<String>,
    pub(super) retry_after: Option<Duration>,
    /// The provider's own type and code, if the error is its answer to this request.
    pub(super) provider_error: ProviderErrorId,
    /// The gateway has used its attempts. A client that retried in turn would multiply the attempts
    /// and the time.
    pub(super) retried: bool,
}

/// The kind of an error: what the client can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GatewayErrorKind {
    /// The request is invalid, or asks for something unsupported.
    InvalidRequest,
    /// The token is missing or not valid.
    Unauthenticated,
    /// The token may not do this.
    Forbidden,
    /// The body is too large.
    TooLarge,
    /// There is no such profile.
    NotFound,
    /// There is no such path, or not with this method.
    UnknownPath,
    /// The profile cannot be used now.
    Disabled,
    /// Too many requests; the client may retry later.
    RateLimited,
    /// The budget or the key's credit is used up.
    OverBudget,
    /// The provider rejected the profile's key.
    ProviderAuth,
    /// The provider failed and may have billed the call.
    ProviderFailed,
    /// The provider failed; the client may retry later.
    ProviderBusy,
    /// The deadline passed. The call may have been billed.
    Timeout,
    /// An internal error.
    Internal,
}

impl GatewayErrorKind {
    /// Whether the official clients, which retry by themselves, should retry an error that the
    /// gateway did not retry. `None` leaves it to them: they do not retry such errors anyway.
    fn may_be_retried(self) -> Option<bool> {
        match self {
            Self::RateLimited | Self::ProviderBusy => Some(true),
            Self::OverBudget | Self::ProviderAuth | Self::ProviderFailed | Self::Timeout | Self::Internal => {
                Some(false)
            }
            Self::InvalidRequest
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::TooLarge
            | Self::NotFound
            | Self::UnknownPath
            | Self::Disabled => None,
        }
    }
}

impl GatewayError {
    pub(super) fn new(kind: GatewayErrorKind, message: impl Into<String>) -> Self {
        let message = truncate_bytes(&message.into(), MAX_MESSAGE_BYTES);
        let provider_error = ProviderErrorId::default();
        Self { kind, message, param: None, retry_after: None, provider_error, retried: false }
    }

    /// The error of a question. `may_be_repeated` unless the gateway has done so.
    pub(super) fn of_question(error: AskError, may_be_repeated: bool) -> Self {
        Self { retried: !may_be_repeated, ..Self::from(error) }
    }

    /// Whether the official clients should retry.
    pub(super) fn may_be_retried(&self) -> Option<bool> {
        self.kind.may_be_retried().map(|may| may && !self.retried)
    }

    /// An invalid field.
    pub(super) fn of(param: &str, problem: impl std::fmt::Display) -> Self {
        let param = Some(param.to_owned());
        Self { param, ..Self::new(GatewayErrorKind::InvalidRequest, format!("{problem}")) }
    }
}

impl From<AskError> for GatewayError {
    fn from(error: AskError) -> Self {
        let kind = match error.code {
            Code::InvalidRequest | Code::DuplicateRequest => GatewayErrorKind::InvalidRequest,
            Code::ProfileNotFound => GatewayErrorKind::NotFound,
            Code::ProfileDisabled => GatewayErrorKind::Disabled,
            Code::RateLimited => GatewayErrorKind::RateLimited,
            Code::OverBudget => GatewayErrorKind::OverBudget,
            Code::ProviderAuth => GatewayErrorKind::ProviderAuth,
            Code::ProviderError if matches!(error.retry, Retryability::Later | Retryability::NotSent) => {
                GatewayErrorKind::ProviderBusy
            }
            Code::ProviderError => GatewayErrorKind::ProviderFailed,
            Code::Timeout => GatewayErrorKind::Timeout,
            Code::Internal => GatewayErrorKind::Internal,
        };
        let param = (kind == GatewayErrorKind::NotFound).then(|| "model".to_owned());
        // Of a rejected key and of spent credit, the provider speaks of its own customer, not of the
        // gateway's client.
        let is_own = matches!(kind, GatewayErrorKind::ProviderAuth | GatewayErrorKind::OverBudget);
        let provider_error = error.provider_error.filter(|_| !is_own).map(|id| *id).unwrap_or_default();
        let retry_after = error.retry_after;
        Self { kind, message: error.message, param, retry_after, provider_error, retried: false }
    }
}
