//! Messages as binary frames: a header of 20 bytes, a name, a body that is not scanned.

use std::time::Duration;

use super::{CallMessage, ErrorBody, FromWorker, OutgoingCall, ProtocolError, ToWorker, millis};
use crate::payload::{CallPayload, Form};

/// The size of a header, its first four bytes included.
pub(crate) const HEADER: usize = 20;
/// The part of the header that the length field includes.
const COUNTED_HEADER: usize = HEADER - 4;
/// Set in the limit field of a call if the caller subscribed to progress.
const PROGRESS_FLAG: u32 = 1 << 31;

const CALL: u8 = 1;
pub(super) const CANCEL: u8 = 2;
pub(super) const PING: u8 = 3;
pub(super) const STOP: u8 = 4;
const RESULT: u8 = 129;
const ERROR: u8 = 130;
const PROGRESS: u8 = 131;
const PONG: u8 = 132;
const RETIRE: u8 = 133;

/// A valid header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    kind: u8,
    form: Form,
    limit: u32,
    id: u64,
    /// The length of the name.
    pub(crate) name: usize,
    /// The length of the body.
    pub(crate) body: usize,
}

/// A parsed frame.
#[derive(Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) header: Header,
    pub(crate) name: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl Header {
    /// Parses a header once all of its bytes are there. An invalid one is rejected as early as
    /// possible, so that the decoder neither waits for nor allocates a gigabyte that will not come.
    pub(crate) fn read(bytes: &[u8], max_frame: usize) -> Result<Option<Self>, ProtocolError> {
        let Some(length) = bytes.first_chunk().map(|four| u32::from_le_bytes(*four) as usize) else {
            return Ok(None);
        };
        if length > max_frame || length < COUNTED_HEADER {
            let message = format!("a frame of {length} bytes, of at most {max_frame}");
            return Err(ProtocolError(message));
        }
        let Some(bytes) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let form = match bytes[5] {
            0 => Form::Json,
            1 => Form::Bytes,
            other => return Err(ProtocolError(format!("a body of the unknown form {other}"))),
        };
        let name = usize::from(u16::from_le_bytes([bytes[6], bytes[7]]));
        let Some(body) = (length - COUNTED_HEADER).checked_sub(name) else {
            return Err(ProtocolError::new("a name longer than its frame"));
        };
        let limit = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        let (_, id) = bytes.split_last_chunk().unwrap_or((&[], &[0; 8]));
        Ok(Some(Self { kind: bytes[4], form, limit, id: u64::from_le_bytes(*id), name, body }))
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
        let length = u32::try_from(COUNTED_HEADER + self.name + self.body);
        let (Ok(length), Ok(name)) = (length, u16::try_from(self.name)) else {
            return Err(ProtocolError::new("a message too long for a frame"));
        };
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&[self.kind, u8::from(self.form == Form::Bytes)]);
        out.extend_from_slice(&name.to_le_bytes());
        out.extend_from_slice(&self.limit.to_le_bytes());
        out.extend_from_slice(&self.id.to_le_bytes());
        Ok(())
    }
}

/// Writes a call up to its body, which follows unchanged.
pub(crate) fn call_head(call: &OutgoingCall<'_>, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
    let limit = call.timeout.map_or(0, |limit| millis(limit).min(u64::from(PROGRESS_FLAG - 1)) as u32);
    let header = Header {
        kind: CALL,
        form: call.arguments.form(),
        limit: limit | if call.progress { PROGRESS_FLAG } else { 0 },
        id: call.id,
        name: call.operation.len(),
        body: body(call.arguments).len(),
    };
    header.write(out)?;
    out.extend_from_slice(call.operation.as_bytes());
    Ok(())
}

/// The bytes of a payload in a frame: an empty body stands for `null`.
pub(super) fn body(payload: &CallPayload) -> &[u8] {
    match (payload.form(), payload.as_bytes()) {
        (Form::Json, b"null") => &[],
        (_, bytes) => bytes,
    }
}

/// Writes a message without name and body.
pub(super) fn encode_bare(kind: u8, id: u64, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
    encode_with_body(kind, id, Form::Json, &[], out)
}

fn encode_with_body(
    kind: u8,
    id: u64,
    form: Form,
    body: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), ProtocolError> {
    Header { kind, form, limit: 0, id, name: 0, body: body.len() }.write(out)?;
    out.extend_from_slice(body);
    Ok(())
}

/// Writes a result up to its value, which follows unchanged.
pub(crate) fn result_head(id: u64, value: &CallPayload, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
    let body = body(value).len();
    Header { kind: RESULT, form: value.form(), limit: 0, id, name: 0, body }.write(out)
}

/// Writes a message from a worker.
pub(super) fn encode_from_worker(message: &FromWorker, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
    match message {
        FromWorker::Result { id, value } => {
            result_head(*id, value, out)?;
            out.extend_from_slice(body(value));
            Ok(())
        }
        FromWorker::Progress { id, value } => {
            encode_with_body(PROGRESS, *id, value.form(), value.as_bytes(), out)
        }
        FromWorker::Error { id, error } => {
            let body = serde_json::to_vec(&ErrorBody::from(error.clone())).unwrap_or_default();
            encode_with_body(ERROR, *id, Form::Json, &body, out)
        }
        FromWorker::Pong(id) => encode_bare(PONG, *id, out),
        FromWorker::Retire => encode_bare(RETIRE, 0, out),
        FromWorker::Ready(_) | FromWorker::Failed(_) => Err(ProtocolError::new("no frame for this")),
    }
}

fn payload(form: Form, body: Vec<u8>) -> CallPayload {
    match form {
        Form::Json if body.is_empty() => CallPayload::null(),
        Form::Json => CallPayload::from_json_text(body),
        Form::Bytes => CallPayload::bytes(body),
    }
}

/// Parses a frame from a worker.
pub(super) fn from_worker(frame: Frame) -> Result<Option<FromWorker>, ProtocolError> {
    let Frame { header: Header { kind, form, id, .. }, body, .. } = frame;
    Ok(Some(match kind {
        RESULT => FromWorker::Result { id, value: payload(form, body) },
        ERROR => {
            let body: ErrorBody = serde_json::from_slice(&body)
                .map_err(|cause| ProtocolError(format!("an error with {cause}")))?;
            FromWorker::Error { id, error: body.into() }
        }
        PROGRESS => FromWorker::Progress { id, value: payload(form, body) },
        PONG => FromWorker::Pong(id),
        RETIRE => FromWorker::Retire,
        _ => return Ok(None),
    }))
}

/// Parses a frame from the pool.
pub(super) fn to_worker(frame: Frame) -> Result<Option<ToWorker>, ProtocolError> {
    let Frame { header: Header { kind, form, limit, id, .. }, name, body } = frame;
    Ok(Some(match kind {
        CALL => {
            let operation = String::from_utf8(name)
                .map_err(|_| ProtocolError::new("an operation whose name is not UTF-8"))?;
            let (progress, limit) = (limit & PROGRESS_FLAG != 0, u64::from(limit & !PROGRESS_FLAG));
            let timeout = (limit > 0).then(|| Duration::from_millis(limit));
            let arguments = payload(form, body);
            ToWorker::Call(CallMessage { id, operation, timeout, progress, arguments })
        }
        CANCEL => ToWorker::Cancel(id),
        PING => ToWorker::Ping(id),
        STOP => ToWorker::Stop,
        _ => return Ok(None),
    }))
}
