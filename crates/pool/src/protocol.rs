//! The messages between a pool and its worker processes. `docs/worker-protocol.md` is the contract.
//!
//! Messages are JSON lines ([`json_lines`]) or binary frames ([`frame`]). [`decoder`] finds them in
//! the pieces that a pipe delivers. This module does no I/O.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::ErrorKind;
use crate::operation::Operation;
use crate::payload::{CallPayload, Form};

pub(crate) mod decoder;
pub(crate) mod frame;
pub(crate) mod json_lines;
#[cfg(not(feature = "_shuttle"))]
#[cfg(test)]
mod tests;

/// The protocol version that both sides must have.
pub(crate) const VERSION: u32 = 1;

/// The encoding of messages once a worker is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Encoding {
    Json,
    Binary,
}

/// Messages from the pool.
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

/// A call, as the worker receives it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallMessage {
    pub(crate) id: u64,
    pub(crate) operation: String,
    pub(crate) timeout: Option<Duration>,
    pub(crate) progress: bool,
    pub(crate) arguments: CallPayload,
}

/// A call, as the pool encodes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutgoingCall<'a> {
    pub(crate) id: u64,
    pub(crate) operation: &'a str,
    pub(crate) timeout: Option<Duration>,
    pub(crate) progress: bool,
    pub(crate) arguments: &'a CallPayload,
}

/// Messages from the worker.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FromWorker {
    Ready(Ready),
    Failed(String),
    Result { id: u64, value: CallPayload },
    Error { id: u64, error: ErrorKind },
    Progress { id: u64, value: CallPayload },
    Pong(u64),
    Retire,
}

/// Tells the pool that the worker accepts calls.
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

/// What the decoder found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Decoded<M> {
    Message(M),
    /// A line that is not a message: stray output. Only its beginning.
    Stray(String),
}

/// The messages of one direction, for the decoder.
pub(crate) trait Message: Sized {
    /// Parses a line; `None` if it is not a message.
    fn from_line(line: &[u8]) -> Result<Option<Self>, ProtocolError>;

    /// Parses a frame; `None` if its type is unknown.
    fn from_frame(frame: frame::Frame) -> Result<Option<Self>, ProtocolError>;
}

/// A violation of the protocol by the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProtocolError(pub(crate) String);

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ProtocolError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// An error, as it is encoded.
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

/// `null` means the same as a missing field.
fn or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl From<ErrorBody> for ErrorKind {
    /// An unknown kind counts as an error of the operation.
    fn from(body: ErrorBody) -> Self {
        let ErrorBody { kind, message, chain, data } = body;
        match kind.as_str() {
            "unknown_operation" => {
                let known = data.and_then(|data| serde_json::from_value(data).ok());
                Self::UnknownOperation { known: known.unwrap_or_default() }
            }
            "bad_arguments" => Self::BadArguments { message },
            "panic" => Self::Panic { message },
            "cancelled" => Self::Cancelled { effect: crate::CancelEffect::Asked },
            _ => Self::Handler { message, chain, data },
        }
    }
}

impl From<ErrorKind> for ErrorBody {
    fn from(error: ErrorKind) -> Self {
        let body = |kind: &str, message: String| Self { kind: kind.into(), message, ..Self::default() };
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
            ErrorKind::Cancelled { .. } => body("cancelled", "stopped on request".to_owned()),
            other => body("handler", other.to_string()),
        }
    }
}

impl Encoding {
    /// Encodes a call.
    pub(crate) fn encode_call(self, call: &OutgoingCall<'_>, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
        match self {
            Self::Json => json_lines::encode_call(call, out),
            Self::Binary => {
                frame::call_head(call, out)?;
                out.extend_from_slice(frame::body(call.arguments));
                Ok(())
            }
        }
    }

    /// Encodes a message from the pool.
    pub(crate) fn encode_to_worker(self, message: &ToWorker, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
        match (self, message) {
            (_, ToWorker::Call(call)) => self.encode_call(&call.outgoing(), out),
            (Self::Binary, ToWorker::Cancel(id)) => frame::encode_bare(frame::CANCEL, *id, out),
            (Self::Binary, ToWorker::Ping(id)) => frame::encode_bare(frame::PING, *id, out),
            (Self::Binary, ToWorker::Stop) => frame::encode_bare(frame::STOP, 0, out),
            (Self::Json, _) | (_, ToWorker::Hello(_)) => json_lines::encode_to_worker(message, out),
        }
    }

    /// Encodes a message from a worker.
    pub(crate) fn encode_from_worker(
        self,
        message: &FromWorker,
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolError> {
        match (self, message) {
            (Self::Json, _) | (_, FromWorker::Ready(_) | FromWorker::Failed(_)) => {
                json_lines::encode_from_worker(message, out)
            }
            (Self::Binary, _) => frame::encode_from_worker(message, out),
        }
    }
}

impl CallMessage {
    fn outgoing(&self) -> OutgoingCall<'_> {
        OutgoingCall {
            id: self.id,
            operation: &self.operation,
            timeout: self.timeout,
            progress: self.progress,
            arguments: &self.arguments,
        }
    }
}

/// A timeout as it is encoded: whole milliseconds, at least 1, because 0 means none.
fn millis(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// The text of a payload that is embedded in a JSON line. It is validated, so that arguments cannot
/// inject fields into the message around them.
fn valid_json(payload: &CallPayload) -> Result<&[u8], ProtocolError> {
    let text = payload.as_bytes();
    match serde_json::from_slice::<&serde_json::value::RawValue>(text) {
        Ok(_) => Ok(text),
        Err(cause) => Err(ProtocolError::new(format!("not JSON: {cause}"))),
    }
}

fn is_bytes(payload: &CallPayload) -> bool {
    payload.form() == Form::Bytes
}
