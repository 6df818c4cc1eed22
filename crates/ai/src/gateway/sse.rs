//! Writes server-sent events.

use serde::Serialize;

/// The prefix of an event's data.
const DATA: &[u8] = b"data: ";

/// Writes an event with JSON data.
pub(super) fn data(out: &mut Vec<u8>, body: &impl Serialize) {
    out.extend_from_slice(DATA);
    json(out, body);
    out.extend_from_slice(b"\n\n");
}

/// Writes an event with one line of text.
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

/// Writes JSON. Cannot fail: memory takes every byte, and all keys are strings.
pub(super) fn json(out: &mut Vec<u8>, body: &impl Serialize) {
    let _ = serde_json::to_writer(out, body);
}
