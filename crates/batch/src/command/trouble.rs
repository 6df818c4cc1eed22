//! What a call of a command that came to nothing means for its row.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use longshore_pool::{Advice, ErrorKind, Fate as Begun};
use tokio::time::Instant;

use super::CommandPool;
use crate::step::{ApplyError, PrepareError};

/// How long a row waits for a command that cannot be started any more.
const NOT_HERE: Duration = Duration::from_secs(10);
/// How long it waits where there is no room.
const NO_ROOM: Duration = Duration::from_secs(1);
/// What is kept of a process's last words: enough for the end of a traceback.
const STDERR: usize = 1500;

/// What a call that came to nothing means for its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It did not work this time.
    Again { message: String, after: Option<Duration> },
    /// It cannot work.
    Hopeless(String),
    /// It is not the row's fault, or the command says so: no attempt is used.
    NotNow { message: String, after: Duration },
}

impl CommandPool {
    pub(super) fn trouble(&self, kind: ErrorKind) -> Trouble {
        let fate = fate(&kind);
        let message = format!("`{}`: {}", self.command.shown(), last_words(kind));
        match fate {
            Fate::Again(after) => Trouble::Again { message, after },
            Fate::Hopeless => Trouble::Hopeless(message),
            Fate::NotNow(after) => {
                self.warnings.warn(&message);
                Trouble::NotNow { message, after }
            }
        }
    }

    /// It answered, but not what it should.
    pub(super) fn nonsense(&self, why: impl std::fmt::Display) -> String {
        format!("`{}`: {why}", self.command.shown())
    }
}

enum Fate {
    Again(Option<Duration>),
    Hopeless,
    NotNow(Duration),
}

fn fate(kind: &ErrorKind) -> Fate {
    match kind {
        ErrorKind::Handler { .. } => match kind.advice() {
            Advice::Fail => Fate::Hopeless,
            Advice::Retry(after) => Fate::Again(after),
            Advice::Snooze(after) => Fate::NotNow(after),
        },
        ErrorKind::UnknownOperation { .. }
        | ErrorKind::BadArguments { .. }
        | ErrorKind::TooLarge { .. } => Fate::Hopeless,
        ErrorKind::StartFailed { .. } => Fate::NotNow(NOT_HERE),
        ErrorKind::Full { .. }
        | ErrorKind::ShuttingDown
        | ErrorKind::Timeout { fate: Begun::NotStarted, .. } => Fate::NotNow(NO_ROOM),
        _ => Fate::Again(None),
    }
}

/// An error in words, with the end of what the process said before it ended.
pub(super) fn last_words(kind: ErrorKind) -> String {
    match kind.with_short_stderr(STDERR) {
        ErrorKind::StartFailed { message, stderr } if stderr.trim().is_empty() => message,
        ErrorKind::StartFailed { message, stderr } => {
            format!("{message}; it said: {}", stderr.trim_end())
        }
        kind => kind.to_string(),
    }
}

/// Says what is wrong with a command now and then: every row meets it.
#[derive(Debug, Default)]
pub(super) struct Warnings(Mutex<Option<Instant>>);

impl Warnings {
    pub(super) fn warn(&self, message: &str) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| last.elapsed() >= NOT_HERE) {
            *last = Some(Instant::now());
            tracing::warn!("rows wait: {message}");
        }
    }
}

impl From<Trouble> for PrepareError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Again { message, after } => Self::Failed { message, retryable: true, after },
            Trouble::Hopeless(message) => Self::hopeless(message),
            Trouble::NotNow { message, after } => Self::NotNow { message, after },
        }
    }
}

impl From<Trouble> for ApplyError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Again { message, .. } | Trouble::Hopeless(message) => Self::Failed(message),
            Trouble::NotNow { message, after } => Self::NotNow { message, after },
        }
    }
}
