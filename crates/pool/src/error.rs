//! What can go wrong with a call, as data: it can be matched, sent over a wire, and shown.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why a call came to nothing.
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
    /// Who had the call, if it had reached anybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerRef>,
}

/// A worker, as errors and logs name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRef {
    /// Its number in the pool; never given twice.
    pub id: u64,
    /// Its process, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// What became of the work of a call that nobody waits for any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It had not begun, and never will.
    NotStarted,
    /// Its process was killed and is replaced.
    Killed,
    /// It goes on, and its result will be thrown away.
    LeftRunning,
    /// Its worker was asked to stop it, and is killed if it does not in time.
    Asked,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// No worker knows the operation.
    UnknownOperation {
        /// Those that are known.
        known: Vec<String>,
    },
    /// The arguments are not what the operation takes.
    BadArguments {
        /// Why.
        message: String,
    },
    /// The operation said no.
    Handler {
        /// What it said.
        message: String,
        /// The causes behind it, outermost first.
        #[serde(default)]
        chain: Vec<String>,
        /// What else it said, for programs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<serde_json::Value>,
    },
    /// The operation panicked. Its worker is replaced.
    Panic {
        /// The panic's words.
        message: String,
    },
    /// The result is not what the caller asked for.
    BadResult {
        /// Why.
        message: String,
    },
    /// It took too long.
    Timeout {
        /// How long it was given, waiting included.
        after: Duration,
        /// What became of it.
        fate: Fate,
    },
    /// The caller took it back.
    Cancelled {
        /// What became of it.
        fate: Fate,
    },
    /// The worker ended in the middle of the call.
    WorkerDied {
        /// Its exit code, if it ended by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<i32>,
        /// The signal that ended it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// The end of what it wrote to its standard error.
        stderr: String,
    },
    /// The worker said something that is not the protocol. It is replaced.
    Protocol {
        /// What.
        message: String,
    },
    /// No worker could be started.
    StartFailed {
        /// Why.
        message: String,
        /// The end of what it wrote to its standard error.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        stderr: String,
    },
    /// Too much is waiting already.
    Full {
        /// How many calls wait.
        depth: usize,
        /// How many may.
        limit: usize,
    },
    /// Arguments or a result are larger than a frame may be.
    TooLarge {
        /// How large.
        bytes: usize,
        /// How large they may be.
        limit: usize,
    },
    /// The pool takes no more calls.
    ShuttingDown,
}

impl ErrorKind {
    /// The same with at most the last `most` bytes of what the worker wrote to its standard error:
    /// for places where long words are cut, and the end is what counts.
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
            Self::Timeout { after, fate } => write!(f, "not done within {after:?}; {fate}"),
            Self::Cancelled { fate } => write!(f, "cancelled; {fate}"),
            Self::WorkerDied { exit, signal, stderr } => died(f, *exit, *signal, stderr),
            Self::Protocol { message } => write!(f, "the worker broke the protocol: {message}"),
            Self::StartFailed { message, stderr } => {
                write!(f, "no worker could be started: {message}{}", tail(stderr))
            }
            Self::Full { depth, limit } => write!(f, "{depth} calls wait already, of {limit}"),
            Self::TooLarge { bytes, limit } => write!(f, "{bytes} bytes, of at most {limit}"),
            Self::ShuttingDown => f.write_str("the pool is shutting down"),
        }
    }
}

fn died(
    f: &mut fmt::Formatter<'_>,
    exit: Option<i32>,
    signal: Option<i32>,
    stderr: &str,
) -> fmt::Result {
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
        words => format!("; it said: {words}"),
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotStarted => "it had not begun",
            Self::Killed => "its worker was killed and is replaced",
            Self::LeftRunning => "it goes on unseen",
            Self::Asked => "its worker was asked to stop it",
        })
    }
}

/// Any error at all: what operations and their `init` may return.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How an operation says no with more than words. Other errors become one of these by themselves,
/// with their causes.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct OperationError(pub ErrorKind);

impl OperationError {
    /// Says no with data that a program can look at.
    pub fn with_data(message: impl Into<String>, data: serde_json::Value) -> Self {
        Self(ErrorKind::Handler { message: message.into(), chain: Vec::new(), data: Some(data) })
    }

    /// Says that the arguments are not what the operation takes.
    pub fn bad_arguments(message: impl Into<String>) -> Self {
        Self(ErrorKind::BadArguments { message: message.into() })
    }

    /// Any error, with its causes.
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
