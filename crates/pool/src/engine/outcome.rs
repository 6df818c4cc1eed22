//! Maps a failed call to the outcome of its unit.

use std::time::Duration;

use longshore::{Failure, Outcome};

use crate::error::{CallError, CancelEffect, ErrorKind};
use crate::retry_advice::RetryAdvice;

/// How long a unit is snoozed if the pool's queue is full.
const FULL_SNOOZE: Duration = Duration::from_secs(1);
/// How long a unit is snoozed if no worker can be started. That is not the unit's fault, and a
/// worker on another machine may be able to run it.
const NO_WORKER_SNOOZE: Duration = Duration::from_secs(10);

/// Bytes of a worker's standard error that a failure keeps, from its end.
const MAX_STDERR: usize = 2000;

/// Maps a failed call to the outcome of its unit.
///
/// An error of the unit fails it. An error of the pool costs the unit no attempt. All other errors
/// are retried by the unit's policy, unless the operation advises otherwise ([`RetryAdvice`]).
pub fn outcome(error: &CallError) -> Outcome {
    let failure = || Failure::new(code(&error.kind), failure_message(error));
    let retry = |after| Outcome::Retry { failure: failure(), after };
    match &error.kind {
        ErrorKind::Handler { .. } => match error.kind.advice() {
            RetryAdvice::Fail => Outcome::Fail(failure()),
            RetryAdvice::Retry(after) => retry(after),
            RetryAdvice::Snooze(after) => Outcome::Snooze(after),
        },
        ErrorKind::UnknownOperation { .. } | ErrorKind::BadArguments { .. } | ErrorKind::TooLarge { .. } => {
            Outcome::Fail(failure())
        }
        ErrorKind::Full { .. }
        | ErrorKind::ShuttingDown
        | ErrorKind::Timeout { effect: CancelEffect::NotStarted, .. } => Outcome::Snooze(FULL_SNOOZE),
        // One of several units blocked a worker. None is blamed: each runs alone the next time.
        ErrorKind::Interrupted | ErrorKind::Timeout { effect: CancelEffect::Blocked, .. } => {
            Outcome::Interrupted
        }
        ErrorKind::StartFailed { .. } => {
            tracing::warn!(%error, "no worker can be started; the unit is snoozed");
            Outcome::Snooze(NO_WORKER_SNOOZE)
        }
        // The engine knows the reason of a cancellation, and turns it into an interruption or an
        // end.
        ErrorKind::Cancelled { .. }
        | ErrorKind::WorkerDied { .. }
        | ErrorKind::Protocol { .. }
        | ErrorKind::Panic { .. }
        | ErrorKind::BadResult { .. }
        | ErrorKind::Timeout { .. } => retry(None),
    }
}

/// Whether the pool cannot accept any unit at the moment.
pub(super) fn is_pool_unavailable(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::Full { .. } | ErrorKind::ShuttingDown | ErrorKind::StartFailed { .. })
}

/// The failure's code: short and stable, to group failures by.
fn code(kind: &ErrorKind) -> &str {
    match kind {
        ErrorKind::Handler { .. } => kind.own_code().unwrap_or("error"),
        ErrorKind::UnknownOperation { .. } => "unknown-operation",
        ErrorKind::BadArguments { .. } => "bad-input",
        ErrorKind::TooLarge { .. } => "too-large",
        ErrorKind::Cancelled { .. } => "cancelled",
        ErrorKind::WorkerDied { .. } => "worker-died",
        ErrorKind::Interrupted => "interrupted",
        ErrorKind::Protocol { .. } => "protocol",
        ErrorKind::Panic { .. } => "panic",
        ErrorKind::BadResult { .. } => "bad-output",
        ErrorKind::Timeout { .. } => "timeout",
        ErrorKind::Full { .. } => "full",
        ErrorKind::ShuttingDown => "shutting-down",
        ErrorKind::StartFailed { .. } => "start-failed",
    }
}

/// The failure's message: an operation's own message as it is; for other errors also the pool, the
/// operation and the worker.
fn failure_message(error: &CallError) -> String {
    match &error.kind {
        ErrorKind::Handler { .. } => error.kind.to_string(),
        kind => {
            let kind = kind.clone().with_short_stderr(MAX_STDERR);
            CallError { kind, ..error.clone() }.to_string()
        }
    }
}
