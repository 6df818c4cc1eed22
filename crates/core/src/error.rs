//! What a store could not do, by what the caller can do about it.

use std::error::Error as StdError;

use crate::batch::BatchRefusal;
use crate::machine::NotApplicable;
use crate::name::SessionId;

/// Shorthand for a store's answer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a store could not do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store cannot be reached or is overloaded. Try again later.
    #[error("the store is unavailable: {message}")]
    Unavailable {
        /// What was tried.
        message: String,
        /// What the driver said.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// There is no room left. Try again when there is.
    #[error("the store's disk is full")]
    DiskFull {
        /// What the driver said.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The session was ended or taken over; its leases are gone.
    #[error("session {0} has ended: its leases were given to others")]
    SessionGone(SessionId),
    /// Whoever asks may not: it has no token, a wrong one, or one that does not reach so far.
    #[error("it is not allowed: {message}")]
    Denied {
        /// What was said.
        message: String,
        /// What the driver said.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// There is no such thing, or not for this tenant.
    #[error("there is no {what} `{name}`")]
    NotFound {
        /// A unit, a batch, a queue…
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// The request makes no sense, whoever sends it.
    #[error("{0}")]
    Invalid(String),
    /// More bytes than a unit may carry.
    #[error("the {what} has {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// Payload, result or checkpoint.
        what: String,
        /// How many it has.
        bytes: usize,
        /// How many it may have.
        limit: usize,
    },
    /// The unit is in a state that does not allow it.
    #[error(transparent)]
    UnitRefuses(#[from] NotApplicable),
    /// The batch is in a status that does not allow it.
    #[error(transparent)]
    BatchRefuses(#[from] BatchRefusal),
    /// The store was written by another version.
    #[error("the store has schema version {found}, this program knows {known}")]
    Schema {
        /// The store's.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The store does not offer this.
    #[error("{0}")]
    Unsupported(String),
    /// The store's own data contradicts itself, or its driver broke. Not to be retried.
    #[error("the store is broken: {message}")]
    Broken {
        /// What was found.
        message: String,
        /// What the driver said.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
}

impl Error {
    /// Whether the same call may work later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::DiskFull { .. } => true,
            Self::SessionGone(_)
            | Self::Denied { .. }
            | Self::NotFound { .. }
            | Self::Invalid(_)
            | Self::TooLarge { .. }
            | Self::UnitRefuses(_)
            | Self::BatchRefuses(_)
            | Self::Schema { .. }
            | Self::Unsupported(_)
            | Self::Broken { .. } => false,
        }
    }

    /// There is no such thing.
    pub fn not_found(what: &'static str, name: impl ToString) -> Self {
        Self::NotFound { what, name: name.to_string() }
    }

    /// The same for another who hears of it: what the caller can do is the same, what the driver said is
    /// part of its words.
    pub fn echo(&self) -> Self {
        match self {
            Self::Invalid(words) => Self::Invalid(words.clone()),
            Self::Unsupported(words) => Self::Unsupported(words.clone()),
            Self::Unavailable { message, .. } => Self::unavailable(message.clone()),
            Self::DiskFull { .. } => Self::DiskFull { source: None },
            Self::Broken { message, .. } => Self::Broken { message: message.clone(), source: None },
            other => Self::Broken { message: other.to_string(), source: None },
        }
    }

    /// The store is out of reach for now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable { message: message.into(), source: None }
    }
}
