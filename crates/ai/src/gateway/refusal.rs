//! Why a request is not answered, before a wire puts it in its own words.

use std::time::Duration;

use crate::ask::{Again, AskError, Code};

/// A request that is not answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    pub(super) why: Why,
    pub(super) message: String,
    /// Which member of the request it is about.
    pub(super) param: Option<String>,
    pub(super) retry_after: Option<Duration>,
}

/// Why a request is not answered: what the caller can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The request makes no sense, or asks for what cannot be had.
    Malformed,
    /// Nobody knows who asks.
    Stranger,
    /// It is too long.
    TooLong,
    /// There is no such profile.
    Unknown,
    /// The profile may not be used now.
    Disabled,
    /// Too many questions; later may work.
    RateLimited,
    /// The money is spent.
    OverBudget,
    /// The provider does not accept our key.
    ProviderAuth,
    /// The provider failed, and it may have been billed.
    ProviderFailed,
    /// The provider failed; later may work.
    ProviderBusy,
    /// No answer in time. It may have been billed.
    Timeout,
    /// Our own fault.
    Internal,
}

impl Why {
    /// Whether the official clients, which try again by themselves, may do that here. `None` leaves
    /// it to them: they do not try such again anyway.
    pub(super) fn may_be_retried(self) -> Option<bool> {
        match self {
            Self::RateLimited | Self::ProviderBusy => Some(true),
            Self::OverBudget
            | Self::ProviderAuth
            | Self::ProviderFailed
            | Self::Timeout
            | Self::Internal => Some(false),
            Self::Malformed | Self::Stranger | Self::TooLong | Self::Unknown | Self::Disabled => {
                None
            }
        }
    }
}

impl Refusal {
    pub(super) fn new(why: Why, message: impl Into<String>) -> Self {
        Self { why, message: message.into(), param: None, retry_after: None }
    }

    /// A member of the request that is not as it should be.
    pub(super) fn of(param: &str, problem: impl std::fmt::Display) -> Self {
        let param = Some(param.to_owned());
        Self { param, ..Self::new(Why::Malformed, format!("{problem}")) }
    }
}

impl From<AskError> for Refusal {
    fn from(error: AskError) -> Self {
        let why = match error.code {
            Code::InvalidRequest => Why::Malformed,
            Code::ProfileNotFound => Why::Unknown,
            Code::ProfileDisabled => Why::Disabled,
            Code::RateLimited => Why::RateLimited,
            Code::OverBudget => Why::OverBudget,
            Code::ProviderAuth => Why::ProviderAuth,
            Code::ProviderError if matches!(error.again, Again::Later | Again::NotSent) => {
                Why::ProviderBusy
            }
            Code::ProviderError => Why::ProviderFailed,
            Code::Timeout => Why::Timeout,
            Code::Internal => Why::Internal,
        };
        let param = (why == Why::Unknown).then(|| "model".to_owned());
        Self { why, message: error.message, param, retry_after: error.retry_after }
    }
}
