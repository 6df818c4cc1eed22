//! Errors of stores, by what the caller can do about them.

use std::error::Error as StdError;

use crate::batch::InvalidBatchAction;
use crate::name::{BatchId, QueueName, SessionId};
use crate::outcome::Failure;
use crate::unit_state::InvalidTransition;

/// A store's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a store could not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store cannot be reached or is overloaded. Retry later.
    #[error("the store is unavailable: {message}")]
    Unavailable {
        /// What was attempted.
        message: String,
        /// The driver's error.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The operation exceeded its time limit, or waited too long for a lock. Retry later, with less
    /// work per call.
    #[error("the store is slow: {message}")]
    TimedOut {
        /// What took too long.
        message: String,
        /// The driver's error.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The disk is full. Retry when there is space.
    #[error("the store's disk is full")]
    DiskFull {
        /// The driver's error.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The session was ended or adopted; its leases are gone.
    #[error("session {0} has ended: its leases were released")]
    SessionGone(SessionId),
    /// The caller has no token, an invalid one, or one without the required role.
    #[error("permission denied: {message}")]
    PermissionDenied {
        /// The reason.
        message: String,
        /// The driver's error.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The object does not exist, or not within this tenant.
    #[error("there is no {what} `{name}`")]
    NotFound {
        /// The type of object: a unit, a batch, a queue…
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// The request is invalid. Retrying does not help.
    #[error("{0}")]
    Invalid(String),
    /// Another session reads this reply queue.
    #[error("reply queue `{0}` is open: read it, or close it first")]
    ReplyQueueOpen(QueueName),
    /// The value exceeds a size limit.
    #[error("the {what} has {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// The value: payload, result or checkpoint.
        what: String,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The unit's state does not permit the operation.
    #[error(transparent)]
    UnitState(#[from] InvalidTransition),
    /// The batch's status does not permit the operation.
    #[error(transparent)]
    BatchStatus(#[from] InvalidBatchAction),
    /// The store was written by another version.
    #[error("the store has schema version {found}, this program knows {supported}")]
    Schema {
        /// The store's version.
        found: u32,
        /// The version that this program supports.
        supported: u32,
    },
    /// This machine's clock and the store's are too far apart.
    #[error("{0}")]
    ClockSkew(String),
    /// The store does not support this.
    #[error("{0}")]
    Unsupported(String),
    /// An effect of a checkpoint failed, or changed another number of rows than expected. Nothing was
    /// written.
    #[error("{0}")]
    EffectFailed(Failure),
    /// The database rejected the data: a value out of range, a violated constraint. Retrying does not
    /// help.
    #[error("the store rejected the data: {message}")]
    Rejected {
        /// What was rejected.
        message: String,
        /// The driver's error.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The store's data is inconsistent, or its driver failed. An operator must repair it.
    #[error("the store is broken: {message}")]
    Broken {
        /// What was found.
        message: String,
        /// The driver's error.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
}

impl Error {
    /// Whether the same call may succeed later, without a change by an operator.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::TimedOut { .. } | Self::DiskFull { .. } => true,
            Self::SessionGone(_)
            | Self::EffectFailed(_)
            | Self::Rejected { .. }
            | Self::PermissionDenied { .. }
            | Self::NotFound { .. }
            | Self::Invalid(_)
            | Self::ReplyQueueOpen(_)
            | Self::TooLarge { .. }
            | Self::UnitState(_)
            | Self::BatchStatus(_)
            | Self::Schema { .. }
            | Self::ClockSkew(_)
            | Self::Unsupported(_)
            | Self::Broken { .. } => false,
        }
    }

    /// Whether the store rejected the request itself: it will never succeed, whatever an operator
    /// repairs. A writer of results that cannot be made again (outcomes, calls that were paid for)
    /// gives one up only then. All other errors, unknown ones included, are retried.
    pub fn is_final(&self) -> bool {
        match self {
            Self::NotFound { .. }
            | Self::EffectFailed(_)
            | Self::Invalid(_)
            | Self::ReplyQueueOpen(_)
            | Self::TooLarge { .. }
            | Self::UnitState(_)
            | Self::BatchStatus(_)
            | Self::Unsupported(_)
            | Self::Rejected { .. } => true,
            Self::Unavailable { .. }
            | Self::TimedOut { .. }
            | Self::ClockSkew(_)
            | Self::DiskFull { .. }
            | Self::SessionGone(_)
            | Self::PermissionDenied { .. }
            | Self::Schema { .. }
            | Self::Broken { .. } => false,
        }
    }

    /// Whether a statement that failed with this SQLSTATE fails again because of its data: class 22
    /// (data exception), 54 (program limit), NOT NULL and CHECK. Other codes are unknown, or tell of
    /// the server, its configuration, its schema, or of concurrent transactions (unique and foreign
    /// keys).
    pub fn is_data_sqlstate(code: &str) -> bool {
        matches!(code, "23502" | "23514") || code.starts_with("22") || code.starts_with("54")
    }

    /// A batch has another definition than the caller has read.
    pub fn definition_changed(batch: &BatchId) -> Self {
        Self::Invalid(format!("the definition of batch `{batch}` was changed meanwhile"))
    }

    /// An object that does not exist.
    pub fn not_found(what: &'static str, name: impl ToString) -> Self {
        Self::NotFound { what, name: name.to_string() }
    }

    /// A copy for a further caller of the same operation. What the caller can do stays the same;
    /// the driver's error is only kept as text.
    #[must_use]
    pub fn copy_for_caller(&self) -> Self {
        let source = None;
        match self {
            Self::Unavailable { message, .. } => Self::Unavailable { message: message.clone(), source },
            Self::TimedOut { message, .. } => Self::TimedOut { message: message.clone(), source },
            Self::DiskFull { .. } => Self::DiskFull { source },
            Self::SessionGone(session) => Self::SessionGone(*session),
            Self::EffectFailed(failure) => Self::EffectFailed(failure.clone()),
            Self::PermissionDenied { message, .. } => {
                Self::PermissionDenied { message: message.clone(), source }
            }
            Self::NotFound { what, name } => Self::NotFound { what, name: name.clone() },
            Self::Invalid(message) => Self::Invalid(message.clone()),
            Self::ReplyQueueOpen(queue) => Self::ReplyQueueOpen(queue.clone()),
            Self::TooLarge { what, bytes, limit } => {
                Self::TooLarge { what: what.clone(), bytes: *bytes, limit: *limit }
            }
            Self::UnitState(state) => Self::UnitState(*state),
            Self::BatchStatus(status) => Self::BatchStatus(status.clone()),
            Self::Schema { found, supported } => Self::Schema { found: *found, supported: *supported },
            Self::ClockSkew(message) => Self::ClockSkew(message.clone()),
            Self::Unsupported(message) => Self::Unsupported(message.clone()),
            Self::Rejected { message, .. } => Self::Rejected { message: message.clone(), source },
            Self::Broken { message, .. } => Self::Broken { message: message.clone(), source },
        }
    }

    /// The operation took too long.
    pub fn timed_out(message: impl Into<String>) -> Self {
        Self::TimedOut { message: message.into(), source: None }
    }

    /// The store cannot be reached for now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable { message: message.into(), source: None }
    }
}
