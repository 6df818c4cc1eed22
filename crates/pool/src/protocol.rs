//! What a pool and its worker processes say to each other; `docs/worker-protocol.md` is its contract.
//!
//! Messages are written as JSON lines ([`line`]) or binary frames ([`frame`]); [`decoder`] finds them
//! in whatever pieces a pipe delivers. No reading or writing happens here.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::ErrorKind;
use crate::operation::Operation;
use crate::payload::{Form, Payload};

pub(crate) mod decoder;
pub(crate) mod frame;
pub(crate) mod line;
#[cfg(test)]
mod tests;

/// The version that both sides must speak.
pub(crate) const VERSION: u32 = 1;

/// How messages are written once a worker is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Encoding {
    Json,
    Binary,
}

/// What a pool says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ToWorker {
    Hello(Hello),
    Call(CallMessage),
    Cancel(u64),
    Ping(u64),
    Stop,
}

/// The first message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    pub(crate) pool: String,
    pub(crate) worker: u64,
    pub(crate) encodings: Vec<Encoding>,
    pub(crate) max_frame: usize,
}

/// A call as the worker gets it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallMessage {
    pub(crate) id: u64,
    pub(crate) operation: String,
    pub(crate) timeout: Option<Duration>,
    pub(crate) progress: bool,
    pub(crate) arguments: Payload,
}

/// A call as the pool has it, before it is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) id: u64,
    pub(crate) operation: &'a str,
    pub(crate) timeout: Option<Duration>,
    pub(crate) progress: bool,
    pub(crate) arguments: &'a Payload,
}

/// What a worker says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FromWorker {
    Ready(Ready),
    Failed(String),
    Result { id: u64, value: Payload },
    Error { id: u64, error: ErrorKind },
    Progress { id: u64, value: Payload },
    Pong(u64),
    Retire,
}

/// Calls may come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) version: u32,
    #[serde(default)]
    pub(crate) pid: Option<u32>,
    #[serde(default = "json")]
    pub(crate) encoding: Encoding,
    #[serde(default)]
    pub(crate) operations: Vec<Operation>,
    #[serde(default = "one")]
    pub(crate) concurrency: usize,
    #[serde(default)]
    pub(crate) name: Option<String>,
}

fn json() -> Encoding {
    Encoding::Json
}

fn one() -> usize {
    1
}

/// What was heard.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Heard<M> {
    Message(M),
    /// A line that is no message: a stray print. Its beginning.
    Stray(String),
}

/// One direction's messages, as the decoder needs them.
pub(crate) trait Message: Sized {
    /// Reads a line; `None` if it is no message of ours.
    fn from_line(line: &[u8]) -> Result<Option<Self>, Fault>;

    /// Reads a frame; `None` if its type is unknown.
    fn from_frame(frame: frame::Frame) -> Result<Option<Self>, Fault>;
}

/// The other side said something that the protocol does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Fault {
    pub(crate) fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }
}

/// An error as it crosses.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ErrorBody {
    #[serde(deserialize_with = "or_default")]
    pub(crate) kind: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub(crate) chain: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<serde_json::Value>,
}

/// `null` says as little as absence.
fn or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl From<ErrorBody> for ErrorKind {
    /// A kind that we do not know is the handler's own affair.
    fn from(body: ErrorBody) -> Self {
        let ErrorBody { kind, message, chain, data } = body;
        match kind.as_str() {
            "unknown_operation" => {
                let known = data.and_then(|data| serde_json::from_value(data).ok());
                Self::UnknownOperation { known: known.unwrap_or_default() }
            }
            "bad_arguments" => Self::BadArguments { message },
            "panic" => Self::Panic { message },
            "cancelled" => Self::Cancelled { fate: crate::Fate::Asked },
            _ => Self::Handler { message, chain, data },
        }
    }
}

impl From<ErrorKind> for ErrorBody {
    fn from(error: ErrorKind) -> Self {
        let body =
            |kind: &str, message: String| Self { kind: kind.into(), message, ..Self::default() };
        match error {
            ErrorKind::Handler { message, chain, data } => {
                Self { kind: "handler".into(), message, chain, data }
            }
            ErrorKind::UnknownOperation { known } => {
                let message = "no such operation".to_owned();
                Self { data: Some(known.into()), ..body("unknown_operation", message) }
            }
            ErrorKind::BadArguments { message } => body("bad_arguments", message),
            ErrorKind::Panic { message } => body("panic", message),
            ErrorKind::Cancelled { .. } => body("cancelled", "given up when asked".to_owned()),
            other => body("handler", other.to_string()),
        }
    }
}

impl Encoding {
    /// Writes a call.
    pub(crate) fn call(self, call: &Outgoing<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        match self {
            Self::Json => line::call(call, out),
            Self::Binary => {
                frame::call_head(call, out)?;
                out.extend_from_slice(frame::body(call.arguments));
                Ok(())
            }
        }
    }

    /// Writes one of the small messages of a pool.
    pub(crate) fn tell(self, message: &ToWorker, out: &mut Vec<u8>) -> Result<(), Fault> {
        match (self, message) {
            (_, ToWorker::Call(call)) => self.call(&call.outgoing(), out),
            (Self::Binary, ToWorker::Cancel(id)) => frame::bare(frame::CANCEL, *id, out),
            (Self::Binary, ToWorker::Ping(id)) => frame::bare(frame::PING, *id, out),
            (Self::Binary, ToWorker::Stop) => frame::bare(frame::STOP, 0, out),
            (Self::Json, _) | (_, ToWorker::Hello(_)) => line::tell(message, out),
        }
    }

    /// Writes a message of a worker.
    pub(crate) fn answer(self, message: &FromWorker, out: &mut Vec<u8>) -> Result<(), Fault> {
        match (self, message) {
            (Self::Json, _) | (_, FromWorker::Ready(_) | FromWorker::Failed(_)) => {
                line::answer(message, out)
            }
            (Self::Binary, _) => frame::answer(message, out),
        }
    }
}

impl CallMessage {
    fn outgoing(&self) -> Outgoing<'_> {
        Outgoing {
            id: self.id,
            operation: &self.operation,
            timeout: self.timeout,
            progress: self.progress,
            arguments: &self.arguments,
        }
    }
}

/// A time limit as it crosses: whole milliseconds, never none at all.
fn millis(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Text of a payload that is put into a line: checked, so that nothing can be smuggled into the
/// message around it.
fn embedded(payload: &Payload) -> Result<&[u8], Fault> {
    let text = payload.as_bytes();
    match serde_json::from_slice::<&serde_json::value::RawValue>(text) {
        Ok(_) => Ok(text),
        Err(cause) => Err(Fault::new(format!("not JSON: {cause}"))),
    }
}

fn is_bytes(payload: &Payload) -> bool {
    payload.form() == Form::Bytes
}
