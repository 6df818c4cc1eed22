//! Maps a failed call of a command to the row's outcome.

use std::time::Duration;

use longshore_pool::{CancelEffect as CallProgress, ErrorKind, RetryAdvice};

use super::CommandPool;
use crate::pre_post::{ApplyError, PrepareError};
use crate::throttled_log;

/// How long a row waits after its command failed to start.
const START_RETRY_DELAY: Duration = Duration::from_secs(10);
/// How long a row waits when the command's pool is full.
const FULL_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Bytes of stderr kept in a message: enough for the end of a traceback.
const MAX_STDERR: usize = 1500;

/// The effect of a failed call on its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallFailure {
    /// The row is retried.
    Retry { message: String, after: Option<Duration> },
    /// The row fails.
    Fail(String),
    /// The row waits and no attempt is used: the cause is not the row, or the command asked for it.
    Snooze { message: String, after: Duration },
}

impl CommandPool {
    pub(super) fn call_failure(&self, kind: ErrorKind) -> CallFailure {
        let action = action(&kind);
        let message = format!("`{}`: {}", self.command.command_line(), describe_error(kind));
        match action {
            FailureAction::Retry(after) => CallFailure::Retry { message, after },
            FailureAction::Fail => CallFailure::Fail(message),
            FailureAction::Snooze(after) => {
                throttled_log::warn("rows wait", self.command.command_line(), &message);
                CallFailure::Snooze { message, after }
            }
        }
    }

    /// The message about a response that cannot be parsed.
    pub(super) fn invalid_response(&self, why: impl std::fmt::Display) -> String {
        format!("`{}`: {why}", self.command.command_line())
    }
}

enum FailureAction {
    Retry(Option<Duration>),
    Fail,
    Snooze(Duration),
}

fn action(kind: &ErrorKind) -> FailureAction {
    match kind {
        ErrorKind::Handler { .. } => match kind.advice() {
            RetryAdvice::Fail => FailureAction::Fail,
            RetryAdvice::Retry(after) => FailureAction::Retry(after),
            RetryAdvice::Snooze(after) => FailureAction::Snooze(after),
        },
        ErrorKind::UnknownOperation { .. } | ErrorKind::BadArguments { .. } | ErrorKind::TooLarge { .. } => {
            FailureAction::Fail
        }
        ErrorKind::StartFailed { .. } => FailureAction::Snooze(START_RETRY_DELAY),
        ErrorKind::Full { .. }
        | ErrorKind::ShuttingDown
        | ErrorKind::Interrupted
        | ErrorKind::Timeout { effect: CallProgress::NotStarted | CallProgress::Blocked, .. } => {
            FailureAction::Snooze(FULL_RETRY_DELAY)
        }
        _ => FailureAction::Retry(None),
    }
}

/// The error message, with the end of the process's stderr.
pub(super) fn describe_error(kind: ErrorKind) -> String {
    match kind.with_short_stderr(MAX_STDERR) {
        ErrorKind::StartFailed { message, stderr } if stderr.trim().is_empty() => message,
        ErrorKind::StartFailed { message, stderr } => {
            format!("{message}; it said: {}", stderr.trim_end())
        }
        kind => kind.to_string(),
    }
}

impl From<CallFailure> for PrepareError {
    fn from(failure: CallFailure) -> Self {
        match failure {
            CallFailure::Retry { message, after } => Self::Failed { message, retryable: true, after },
            CallFailure::Fail(message) => Self::permanent(message),
            CallFailure::Snooze { message, after } => Self::Snooze { message, after },
        }
    }
}

impl From<CallFailure> for ApplyError {
    fn from(failure: CallFailure) -> Self {
        match failure {
            CallFailure::Retry { message, .. } => Self::Retry(message),
            CallFailure::Fail(message) => Self::Failed(message),
            CallFailure::Snooze { message, after } => Self::Snooze { message, after },
        }
    }
}
