//! Errors of base systems, by what the caller can do about them.

use std::io;
use std::time::Duration;

use thiserror::Error;

use super::queue_system::BaseSystem;

/// Why an operation of a base system failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SystemError {
    /// The system cannot express this job; nothing was submitted.
    #[error("{system} cannot run job `{job}`: {what}")]
    InvalidJob {
        /// The system.
        system: BaseSystem,
        /// The job's name.
        job: String,
        /// What is wrong with the job.
        what: String,
    },
    /// The system rejected the operation, and would again.
    #[error("{system} refused: {message}")]
    Refused {
        /// The system.
        system: BaseSystem,
        /// The system's message.
        message: String,
    },
    /// The system is unreachable or overloaded.
    #[error("{system} cannot be reached: {message}")]
    Unreachable {
        /// The system.
        system: BaseSystem,
        /// The system's message.
        message: String,
    },
    /// A command timed out, or its answer was lost. It may have been executed.
    #[error("{system} gave no answer: {message}")]
    NoAnswer {
        /// The system.
        system: BaseSystem,
        /// What happened.
        message: String,
    },
    /// The output of a command cannot be parsed.
    #[error("unexpected output of {system}'s `{command}`: {output}")]
    UnexpectedOutput {
        /// The system.
        system: BaseSystem,
        /// The command.
        command: String,
        /// The output.
        output: String,
    },
    /// A command of the system is not installed.
    #[error("{system} is not installed: there is no command `{command}`")]
    CommandNotFound {
        /// The system.
        system: BaseSystem,
        /// The command.
        command: String,
    },
    /// An operation on this machine failed.
    #[error("{what}")]
    Io {
        /// The operation.
        what: String,
        /// The cause.
        source: io::Error,
    },
}

impl SystemError {
    /// Whether a retry may succeed, and cannot execute the operation twice.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::InvalidJob { .. }
            | Self::Refused { .. }
            | Self::NoAnswer { .. }
            | Self::UnexpectedOutput { .. }
            | Self::CommandNotFound { .. }
            | Self::Io { .. } => false,
        }
    }

    /// Whether a query may be repeated: for a query, a lost answer does no harm.
    pub fn is_query_retryable(&self) -> bool {
        self.is_retryable() || matches!(self, Self::NoAnswer { .. })
    }

    pub(super) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }

    pub(super) fn timed_out(system: BaseSystem, command: &str, limit: Duration) -> Self {
        let message = format!("`{command}` timed out after {} s", limit.as_secs_f64());
        Self::NoAnswer { system, message }
    }
}
