//! Errors of calls, as data: they can be matched, serialised and displayed.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("operation `{operation}` of pool `{pool}`: {kind}")]
pub struct CallError {
    /// The pool.
    pub pool: String,
    /// The operation.
    pub operation: String,
    /// What went wrong.
    #[serde(flatten)]
    pub kind: ErrorKind,
    /// The worker that had the call, if it had reached one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerRef>,
}

/// A worker, as errors and logs identify it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRef {
    /// Its number in the pool; never reused.
    pub id: u64,
    /// Its process id, if it is a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// What happened to the work of a cancelled or timed-out call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelEffect {
    /// The call had not started, and never will.
    NotStarted,
    /// Its process was killed and is replaced.
    Killed,
    /// The work continues, and its result is discarded.
    LeftRunning,
    /// The worker was asked to stop it, and is killed if it does not in time.
    Asked,
    /// One of several calls blocked their worker, which was killed and is replaced. Which one is
    /// unknown.
    Blocked,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// No worker has the operation.
    UnknownOperation {
        /// The operations that exist.
        known: Vec<String>,
    },
    /// The operation does not accept these arguments.
    BadArguments {
        /// Why.
        message: String,
    },
    /// The operation returned an error.
    Handler {
        /// The error's message.
        message: String,
        /// The causes behind it, outermost first.
        #[serde(default)]
        chain: Vec<String>,
        /// Further data of the error, for programs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<serde_json::Value>,
    },
    /// The operation panicked. Its worker is replaced.
    Panic {
        /// The panic's message.
        message: String,
    },
    /// The result does not have the type that the caller expects.
    BadResult {
        /// Why.
        message: String,
    },
    /// The call took too long.
    Timeout {
        /// The call's timeout, time in the queue included.
        after: Duration,
        /// What happened to the work.
        effect: CancelEffect,
    },
    /// The caller cancelled the call.
    Cancelled {
        /// What happened to the work.
        effect: CancelEffect,
    },
    /// The worker process ended in the middle of the call.
    WorkerDied {
        /// Its exit code, if it exited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<i32>,
        /// The signal that killed it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// The end of its standard error.
        stderr: String,
    },
    /// The worker process was killed, because one of several calls on it blocked it beyond its time
    /// limit. Which one is unknown.
    Interrupted,
    /// The worker sent a message that violates the protocol. It is replaced.
    Protocol {
        /// The violation.
        message: String,
    },
    /// No worker could be started.
    StartFailed {
        /// Why.
        message: String,
        /// The end of its standard error.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        stderr: String,
    },
    /// The queue is full.
    Full {
        /// Calls in the queue.
        depth: usize,
        /// The queue's limit.
        limit: usize,
    },
    /// Arguments or a result exceed the frame limit.
    TooLarge {
        /// Their size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The pool accepts no more calls.
    ShuttingDown,
}

impl ErrorKind {
    /// Keeps at most the last `most` bytes of the worker's standard error. For messages that are
    /// truncated, where the end matters most.
    #[must_use]
    pub fn with_short_stderr(mut self, most: usize) -> Self {
        if let Self::WorkerDied { stderr, .. } | Self::StartFailed { stderr, .. } = &mut self {
            let from = stderr.ceil_char_boundary(stderr.len().saturating_sub(most));
            stderr.drain(..from);
        }
        self
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownOperation { known } => {
                write!(f, "no such operation (known: {})", known.join(", "))
            }
            Self::BadArguments { message } => write!(f, "bad arguments: {message}"),
            Self::Handler { message, chain, .. } => {
                f.write_str(message)?;
                chain.iter().try_for_each(|cause| write!(f, ": {cause}"))
            }
            Self::Panic { message } => write!(f, "panicked: {message}"),
            Self::BadResult { message } => write!(f, "unexpected result: {message}"),
            Self::Timeout { after, effect } => write!(f, "not done within {after:?}; {effect}"),
            Self::Cancelled { effect } => write!(f, "cancelled; {effect}"),
            Self::WorkerDied { exit, signal, stderr } => died(f, *exit, *signal, stderr),
            Self::Interrupted => f.write_str("its worker was killed: one of its calls blocked it"),
            Self::Protocol { message } => write!(f, "the worker broke the protocol: {message}"),
            Self::StartFailed { message, stderr } => {
                write!(f, "no worker could be started: {message}{}", tail(stderr))
            }
            Self::Full { depth, limit } => {
                write!(f, "the queue is full: {depth} calls wait, limit {limit}")
            }
            Self::TooLarge { bytes, limit } => write!(f, "{bytes} bytes, of at most {limit}"),
            Self::ShuttingDown => f.write_str("the pool is shutting down"),
        }
    }
}

fn died(f: &mut fmt::Formatter<'_>, exit: Option<i32>, signal: Option<i32>, stderr: &str) -> fmt::Result {
    match (exit, signal) {
        (_, Some(signal)) => write!(f, "its worker was ended by signal {signal}")?,
        (Some(code), _) => write!(f, "its worker ended with exit code {code}")?,
        _ => f.write_str("its worker ended")?,
    }
    f.write_str(&tail(stderr))
}

fn tail(stderr: &str) -> String {
    match stderr.trim_end() {
        "" => String::new(),
        text => format!("; its stderr: {text}"),
    }
}

impl fmt::Display for CancelEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotStarted => "it had not started",
            Self::Killed => "its worker was killed and is replaced",
            Self::LeftRunning => "it continues, and its result is discarded",
            Self::Asked => "its worker was asked to stop it",
            Self::Blocked => "one of several calls blocked their worker, which was killed",
        })
    }
}

/// Any error: what operations and their `init` may return.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An operation's error with structured data. Other error types are converted to it, with their
/// causes.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct OperationError(pub ErrorKind);

impl OperationError {
    /// An error with data that programs can read.
    pub fn with_data(message: impl Into<String>, data: serde_json::Value) -> Self {
        Self(ErrorKind::Handler { message: message.into(), chain: Vec::new(), data: Some(data) })
    }

    /// An error for arguments that the operation does not accept.
    pub fn bad_arguments(message: impl Into<String>) -> Self {
        Self(ErrorKind::BadArguments { message: message.into() })
    }

    /// Converts any error, with its causes.
    pub fn of(error: impl Into<BoxError>) -> Self {
        let error = match error.into().downcast::<Self>() {
            Ok(own) => return *own,
            Err(other) => other,
        };
        let mut chain = Vec::new();
        let mut cause = error.source();
        while let Some(one) = cause {
            chain.push(one.to_string());
            cause = one.source();
        }
        Self(ErrorKind::Handler { message: error.to_string(), chain, data: None })
    }
}
