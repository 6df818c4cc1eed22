//! Messages as JSON lines, which are easy to write by hand.

use std::borrow::Cow;
use std::io::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    CallMessage, ErrorBody, FromWorker, Message, OutgoingCall, ProtocolError, ToWorker, frame, is_bytes,
    millis, valid_json,
};
use crate::payload::CallPayload;

/// Writes a call.
pub(super) fn encode_call(call: &OutgoingCall<'_>, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
    // Validated before a byte is written: half a message would corrupt the next.
    let text = if is_bytes(call.arguments) { &[][..] } else { valid_json(call.arguments)? };
    let _ = write!(out, "{{\"type\":\"call\",\"id\":{},\"operation\":", call.id);
    write_json(&call.operation, out);
    if is_bytes(call.arguments) {
        base64_field("arguments_base64", call.arguments, out);
    } else {
        text_field("arguments", text, out);
    }
    if let Some(limit) = call.timeout {
        let _ = write!(out, ",\"timeout_ms\":{}", millis(limit));
    }
    if call.progress {
        out.extend_from_slice(b",\"progress\":true");
    }
    out.extend_from_slice(b"}\n");
    Ok(())
}

/// Writes a message from the pool.
pub(super) fn encode_to_worker(message: &ToWorker, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
    #[derive(Serialize)]
    struct Hello<'a> {
        r#type: &'a str,
        #[serde(flatten)]
        hello: &'a super::Hello,
    }
    match message {
        ToWorker::Hello(hello) => write_json(&Hello { r#type: "hello", hello }, out),
        ToWorker::Call(message) => return encode_call(&message.outgoing(), out),
        ToWorker::Cancel(id) => _ = write!(out, "{{\"type\":\"cancel\",\"id\":{id}}}"),
        ToWorker::Ping(id) => _ = write!(out, "{{\"type\":\"ping\",\"id\":{id}}}"),
        ToWorker::Stop => out.extend_from_slice(b"{\"type\":\"stop\"}"),
    }
    out.push(b'\n');
    Ok(())
}

/// Writes a message from a worker.
pub(super) fn encode_from_worker(message: &FromWorker, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
    #[derive(Serialize)]
    struct Ready<'a> {
        r#type: &'a str,
        #[serde(flatten)]
        ready: &'a super::Ready,
    }
    #[derive(Serialize)]
    struct Failed<'a> {
        r#type: &'a str,
        message: &'a str,
    }
    #[derive(Serialize)]
    struct Error<'a> {
        r#type: &'a str,
        id: u64,
        #[serde(flatten)]
        body: ErrorBody,
    }
    match message {
        FromWorker::Ready(ready) => write_json(&Ready { r#type: "ready", ready }, out),
        FromWorker::Failed(message) => write_json(&Failed { r#type: "failed", message }, out),
        FromWorker::Result { id, value } => return encode_value("result", *id, value, out),
        FromWorker::Progress { id, value } => return encode_value("progress", *id, value, out),
        FromWorker::Error { id, error } => {
            write_json(&Error { r#type: "error", id: *id, body: error.clone().into() }, out);
        }
        FromWorker::Pong(id) => _ = write!(out, "{{\"type\":\"pong\",\"id\":{id}}}"),
        FromWorker::Retire => out.extend_from_slice(b"{\"type\":\"retire\"}"),
    }
    out.push(b'\n');
    Ok(())
}

fn encode_value(kind: &str, id: u64, value: &CallPayload, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
    let text = if is_bytes(value) { &[][..] } else { valid_json(value)? };
    let _ = write!(out, "{{\"type\":\"{kind}\",\"id\":{id}");
    if is_bytes(value) {
        base64_field("value_base64", value, out);
    } else {
        text_field("value", text, out);
    }
    out.extend_from_slice(b"}\n");
    Ok(())
}

fn write_json(value: &impl Serialize, out: &mut Vec<u8>) {
    // Serialising our own types into memory cannot fail.
    let _ = serde_json::to_writer(out, value);
}

fn text_field(name: &str, text: &[u8], out: &mut Vec<u8>) {
    let _ = write!(out, ",\"{name}\":");
    let begin = out.len();
    out.extend_from_slice(text);
    // Valid JSON contains raw line ends only as white space; they must not end the line.
    if memchr::memchr2(b'\n', b'\r', text).is_some() {
        let line_end = |byte: &&mut u8| matches!(**byte, b'\n' | b'\r');
        out[begin..].iter_mut().filter(line_end).for_each(|byte| *byte = b' ');
    }
}

fn base64_field(name: &str, payload: &CallPayload, out: &mut Vec<u8>) {
    let _ = write!(out, ",\"{name}\":\"{}\"", STANDARD.encode(payload.as_bytes()));
}

/// Any message, with its fields not parsed yet: a field that its type does not use is ignored.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Fields<'a> {
    #[serde(borrow)]
    r#type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    operation: Option<Cow<'a, str>>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments_base64: Option<Cow<'a, str>>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    #[serde(borrow)]
    value_base64: Option<Cow<'a, str>>,
    #[serde(borrow)]
    timeout_ms: Option<&'a RawValue>,
    progress: Option<bool>,
}

impl<'a> Fields<'a> {
    fn of(line: &'a [u8]) -> Option<(Self, String)> {
        let mut fields: Self = serde_json::from_slice(line).ok()?;
        let kind = fields.r#type.take()?.into_owned();
        Some((fields, kind))
    }

    fn id(&self, kind: &str) -> Result<u64, ProtocolError> {
        let id = self.id.and_then(|id| id.get().parse().ok());
        id.ok_or_else(|| ProtocolError::new(format!("a `{kind}` without an id")))
    }
}

/// Parses the whole line as one type.
fn parse_line<'a, T: Deserialize<'a>>(kind: &str, line: &'a [u8]) -> Result<T, ProtocolError> {
    serde_json::from_slice(line).map_err(|cause| ProtocolError::new(format!("a `{kind}` with {cause}")))
}

fn payload(text: Option<&RawValue>, base64: Option<&str>) -> Result<CallPayload, ProtocolError> {
    match (text, base64) {
        (_, Some(base64)) => match STANDARD.decode(base64) {
            Ok(bytes) => Ok(CallPayload::bytes(bytes)),
            Err(cause) => Err(ProtocolError::new(format!("bad base64: {cause}"))),
        },
        (Some(text), None) => Ok(CallPayload::from_json_text(text.get())),
        (None, None) => Ok(CallPayload::null()),
    }
}

impl Message for FromWorker {
    fn from_line(line: &[u8]) -> Result<Option<Self>, ProtocolError> {
        let Some((fields, kind)) = Fields::of(line) else { return Ok(None) };
        let value = || payload(fields.value, fields.value_base64.as_deref());
        Ok(Some(match kind.as_str() {
            "result" => Self::Result { id: fields.id(&kind)?, value: value()? },
            "error" => {
                let body: ErrorBody = parse_line(&kind, line)?;
                Self::Error { id: fields.id(&kind)?, error: body.into() }
            }
            "progress" => Self::Progress { id: fields.id(&kind)?, value: value()? },
            "pong" => Self::Pong(fields.id(&kind)?),
            "retire" => Self::Retire,
            "ready" => Self::Ready(parse_line(&kind, line)?),
            "failed" => Self::Failed(parse_line::<ErrorBody>(&kind, line)?.message),
            _ => return Ok(None),
        }))
    }

    fn from_frame(frame: frame::Frame) -> Result<Option<Self>, ProtocolError> {
        frame::from_worker(frame)
    }
}

impl Message for ToWorker {
    fn from_line(line: &[u8]) -> Result<Option<Self>, ProtocolError> {
        let Some((fields, kind)) = Fields::of(line) else { return Ok(None) };
        Ok(Some(match kind.as_str() {
            "hello" => Self::Hello(parse_line(&kind, line)?),
            "call" => {
                let limit = fields.timeout_ms.and_then(|limit| limit.get().parse().ok());
                Self::Call(CallMessage {
                    id: fields.id(&kind)?,
                    arguments: payload(fields.arguments, fields.arguments_base64.as_deref())?,
                    operation: fields.operation.unwrap_or_default().into_owned(),
                    timeout: limit.map(Duration::from_millis),
                    progress: fields.progress.unwrap_or_default(),
                })
            }
            "cancel" => Self::Cancel(fields.id(&kind)?),
            "ping" => Self::Ping(fields.id(&kind)?),
            "stop" => Self::Stop,
            _ => return Ok(None),
        }))
    }

    fn from_frame(frame: frame::Frame) -> Result<Option<Self>, ProtocolError> {
        frame::to_worker(frame)
    }
}
