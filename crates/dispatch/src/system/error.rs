//! What may go wrong with a base system, by what its caller can do about it.

use std::io;
use std::time::Duration;

use thiserror::Error;

use super::queue_system::BaseSystem;

/// Why a base system did not do what it was asked for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SystemError {
    /// The job cannot be told to this system; nothing was submitted.
    #[error("{system} cannot run job `{job}`: {what}")]
    InvalidJob {
        /// Which system.
        system: BaseSystem,
        /// The job's name.
        job: String,
        /// What is wrong with it.
        what: String,
    },
    /// The system said no, and would again.
    #[error("{system} refused: {message}")]
    Refused {
        /// Which system.
        system: BaseSystem,
        /// Its own words.
        message: String,
    },
    /// The system cannot be reached, or has no time for us just now.
    #[error("{system} cannot be reached: {message}")]
    Unreachable {
        /// Which system.
        system: BaseSystem,
        /// Its own words.
        message: String,
    },
    /// A command gave no answer in time, or lost it. What it was to do may have been done.
    #[error("{system} gave no answer: {message}")]
    NoAnswer {
        /// Which system.
        system: BaseSystem,
        /// What was asked, and what is known.
        message: String,
    },
    /// A command's answer is not one that we know.
    #[error("{system} answered in a way that we do not understand: {command}: {output}")]
    UnexpectedOutput {
        /// Which system.
        system: BaseSystem,
        /// The command.
        command: String,
        /// What it said.
        output: String,
    },
    /// The system's commands are not on this machine.
    #[error("{system} is not here: there is no command `{command}`")]
    CommandNotFound {
        /// Which system.
        system: BaseSystem,
        /// The command.
        command: String,
    },
    /// This machine did not do it.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// What happened.
        source: io::Error,
    },
}

impl SystemError {
    /// Whether the same may succeed later, and cannot have been done already.
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

    /// Whether a question may be asked again: whoever only asks need not mind a lost answer.
    pub fn is_query_retryable(&self) -> bool {
        self.is_retryable() || matches!(self, Self::NoAnswer { .. })
    }

    pub(super) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }

    pub(super) fn timed_out(system: BaseSystem, command: &str, limit: Duration) -> Self {
        let message = format!("`{command}` was ended after {} s", limit.as_secs_f64());
        Self::NoAnswer { system, message }
    }
}
