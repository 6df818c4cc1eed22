//! Events of a stream, as bytes.

use serde::Serialize;

/// What every event's data begins with.
const DATA: &[u8] = b"data: ";

/// Writes an event of JSON.
pub(super) fn data(out: &mut Vec<u8>, body: &impl Serialize) {
    out.extend_from_slice(DATA);
    json(out, body);
    out.extend_from_slice(b"\n\n");
}

/// Writes an event of text that is one line already.
pub(super) fn line(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(DATA);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\n\n");
}

/// Writes the name of the event that follows.
pub(super) fn name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.push(b'\n');
}

/// Writes JSON. Memory takes every byte, and what is written here has only texts for keys, so nothing
/// can go wrong.
pub(super) fn json(out: &mut Vec<u8>, body: &impl Serialize) {
    let _ = serde_json::to_writer(out, body);
}
