//! What a call that came to nothing means for its unit.

use std::time::Duration;

use longshore::{Failure, Outcome};

use crate::advice::Advice;
use crate::error::{CallError, ErrorKind, Fate};

/// How long a unit waits that the pool has no room for.
const NO_ROOM: Duration = Duration::from_secs(1);
/// How long it waits where no worker can be started: that is not its fault, and another machine may
/// be better off.
const NO_WORKER: Duration = Duration::from_secs(10);

/// What is kept of a worker's last words.
const STDERR: usize = 2000;

/// What becomes of a unit whose call came to this.
///
/// Whatever is wrong with the unit fails it; whatever is wrong with the pool costs it no attempt; and
/// everything else is tried again by its policy, unless the operation says otherwise ([`Advice`]).
pub fn outcome(error: &CallError) -> Outcome {
    let failure = || Failure::new(code(&error.kind), words(error));
    let retry = |after| Outcome::Retry { failure: failure(), after };
    match &error.kind {
        ErrorKind::Handler { .. } => match error.kind.advice() {
            Advice::Fail => Outcome::Fail(failure()),
            Advice::Retry(after) => retry(after),
            Advice::Snooze(after) => Outcome::Snooze(after),
        },
        ErrorKind::UnknownOperation { .. }
        | ErrorKind::BadArguments { .. }
        | ErrorKind::TooLarge { .. } => Outcome::Fail(failure()),
        ErrorKind::Full { .. }
        | ErrorKind::ShuttingDown
        | ErrorKind::Timeout { fate: Fate::NotStarted, .. } => Outcome::Snooze(NO_ROOM),
        ErrorKind::StartFailed { .. } => {
            tracing::warn!(%error, "a unit is left for another worker");
            Outcome::Snooze(NO_WORKER)
        }
        // Why it was taken back, the engine knows: it makes an interruption or an end of this.
        ErrorKind::Cancelled { .. }
        | ErrorKind::WorkerDied { .. }
        | ErrorKind::Protocol { .. }
        | ErrorKind::Panic { .. }
        | ErrorKind::BadResult { .. }
        | ErrorKind::Timeout { .. } => retry(None),
    }
}

/// Whether it is the pool that cannot take units at the moment, whichever they are.
pub(super) fn is_of_pool(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::Full { .. } | ErrorKind::ShuttingDown | ErrorKind::StartFailed { .. })
}

/// Short and stable, to group failures by.
fn code(kind: &ErrorKind) -> &str {
    match kind {
        ErrorKind::Handler { .. } => kind.own_code().unwrap_or("error"),
        ErrorKind::UnknownOperation { .. } => "unknown-operation",
        ErrorKind::BadArguments { .. } => "bad-input",
        ErrorKind::TooLarge { .. } => "too-large",
        ErrorKind::Cancelled { .. } => "cancelled",
        ErrorKind::WorkerDied { .. } => "worker-died",
        ErrorKind::Protocol { .. } => "protocol",
        ErrorKind::Panic { .. } => "panic",
        ErrorKind::BadResult { .. } => "bad-output",
        ErrorKind::Timeout { .. } => "timeout",
        ErrorKind::Full { .. } => "full",
        ErrorKind::ShuttingDown => "shutting-down",
        ErrorKind::StartFailed { .. } => "start-failed",
    }
}

/// What an operation said, as it said it; of everything else also where it happened.
fn words(error: &CallError) -> String {
    match &error.kind {
        ErrorKind::Handler { .. } => error.kind.to_string(),
        kind => {
            let kind = kind.clone().with_short_stderr(STDERR);
            CallError { kind, ..error.clone() }.to_string()
        }
    }
}
