//! What may go wrong with a base system, by what its caller can do about it.

use std::io;
use std::time::Duration;

use thiserror::Error;

use super::name::BaseSystem;

/// Why a base system did not do what it was asked for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SystemError {
    /// The job cannot be told to this system; nothing was submitted.
    #[error("{system} cannot run job `{job}`: {what}")]
    BadJob {
        /// Which system.
        system: BaseSystem,
        /// The job's name.
        job: String,
        /// What is wrong with it.
        what: String,
    },
    /// The system said no, and would again.
    #[error("{system} refused: {words}")]
    Refused {
        /// Which system.
        system: BaseSystem,
        /// Its own words.
        words: String,
    },
    /// The system cannot be reached, or has no time for us just now.
    #[error("{system} cannot be reached: {words}")]
    Away {
        /// Which system.
        system: BaseSystem,
        /// Its own words.
        words: String,
    },
    /// A command gave no answer in time, or lost it. What it was to do may have been done.
    #[error("{system} gave no answer: {words}")]
    Silent {
        /// Which system.
        system: BaseSystem,
        /// What was asked, and what is known.
        words: String,
    },
    /// A command's answer is not one that we know.
    #[error("{system} answered in a way that we do not understand: {command}: {said}")]
    Garbled {
        /// Which system.
        system: BaseSystem,
        /// The command.
        command: String,
        /// What it said.
        said: String,
    },
    /// The system's commands are not on this machine.
    #[error("{system} is not here: there is no command `{command}`")]
    Missing {
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
            Self::Away { .. } => true,
            Self::BadJob { .. }
            | Self::Refused { .. }
            | Self::Silent { .. }
            | Self::Garbled { .. }
            | Self::Missing { .. }
            | Self::Io { .. } => false,
        }
    }

    /// Whether a question may be asked again: whoever only asks need not mind a lost answer.
    pub fn may_ask_again(&self) -> bool {
        self.is_retryable() || matches!(self, Self::Silent { .. })
    }

    pub(super) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }

    pub(super) fn too_slow(system: BaseSystem, command: &str, limit: Duration) -> Self {
        let words = format!("`{command}` was ended after {} s", limit.as_secs_f64());
        Self::Silent { system, words }
    }
}
