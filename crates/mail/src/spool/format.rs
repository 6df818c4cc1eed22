//! The file format: one line of JSON metadata, the message's bytes, then one line of JSON per note.

use std::path::Path;

use longshore::{Priority, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::SpoolError;
use super::filename::FileName;
use super::state_machine::{Note, remaining};

/// The SMTP envelope, which may differ from the message's headers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// The envelope sender, which receives bounces; none for messages that must not bounce.
    pub from: Option<String>,
    /// The envelope recipients.
    pub to: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    longshore_mail: u32,
    key: String,
    created: Timestamp,
    due: Timestamp,
    priority: Priority,
    message_id: String,
    #[serde(flatten)]
    envelope: Envelope,
    #[serde(rename = "about", default, skip_serializing_if = "Option::is_none")]
    metadata: Option<Value>,
    bytes: usize,
}

/// A stored message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpooledMessage {
    /// Its file name when it was enqueued.
    pub name: FileName,
    /// When it was enqueued.
    pub created: Timestamp,
    /// The Message-ID, by which recipients recognise duplicates.
    pub message_id: String,
    /// The envelope.
    pub envelope: Envelope,
    /// Metadata that a later enqueue of the same key returns.
    pub metadata: Option<Value>,
    /// The message's bytes.
    pub body: Vec<u8>,
    /// Its notes so far.
    pub notes: Vec<Note>,
}

const VERSION: u32 = 1;

impl SpooledMessage {
    /// The recipients that have neither been accepted nor refused.
    pub fn remaining(&self) -> Vec<&str> {
        remaining(&self.envelope.to, &self.notes)
    }

    /// Whether this is the same message, whatever their notes.
    pub(super) fn is_same_message(&self, other: &Self) -> bool {
        (&self.name, self.created) == (&other.name, other.created)
    }

    /// When its first attempt could be made: the maximum age counts from here.
    pub(super) fn retry_start(&self) -> Timestamp {
        self.created.max(self.name.due)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let header = Header {
            longshore_mail: VERSION,
            key: self.name.key.encoded().to_owned(),
            created: self.created,
            due: self.name.due,
            priority: self.name.priority,
            message_id: self.message_id.clone(),
            envelope: self.envelope.clone(),
            metadata: self.metadata.clone(),
            bytes: self.body.len(),
        };
        // Serialising texts, numbers and lists of them cannot fail.
        let mut bytes = serde_json::to_vec(&header).unwrap_or_default();
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.body);
        for note in &self.notes {
            bytes.extend(encode_note(note));
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8], path: &Path) -> Result<Self, SpoolError> {
        parse(bytes).map_err(|why| SpoolError::Damaged { path: path.to_path_buf(), why })
    }
}

/// Encodes a note with a line break before it: the previous line may be incomplete after a crash.
pub(super) fn encode_note(note: &Note) -> Vec<u8> {
    let mut line = vec![b'\n'];
    line.extend(serde_json::to_vec(note).unwrap_or_default());
    line.push(b'\n');
    line
}

fn parse(bytes: &[u8]) -> Result<SpooledMessage, String> {
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or("its first line is missing")?;
    let header: Header = serde_json::from_slice(&bytes[..end]).map_err(|cause| cause.to_string())?;
    if header.longshore_mail != VERSION {
        return Err(format!("its format version is {}, this program reads {VERSION}", header.longshore_mail));
    }
    let rest = &bytes[end + 1..];
    if rest.len() < header.bytes {
        return Err(format!("{} of its {} bytes are missing", header.bytes - rest.len(), header.bytes));
    }
    let (body, notes) = rest.split_at(header.bytes);
    // A crash may have cut a line: lines that are not notes are ignored.
    let notes = notes.split(|byte| *byte == b'\n');
    let notes = notes.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let key = format!("0-5-{}", header.key).parse::<FileName>().map_err(|cause| cause.to_string())?.key;
    Ok(SpooledMessage {
        name: FileName::enqueued(header.created, header.due, header.priority, key),
        created: header.created,
        message_id: header.message_id,
        envelope: header.envelope,
        metadata: header.metadata,
        body: body.to_vec(),
        notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::filename::MessageKey;

    fn message() -> SpooledMessage {
        let at = Timestamp::from_micros(1_763_300_000_000_000);
        SpooledMessage {
            name: FileName::new(at, Priority::HIGH, MessageKey::new("digest/7").expect("a key")),
            created: at,
            message_id: "x@example.org".into(),
            envelope: Envelope { from: Some("a@example.org".into()), to: vec!["b@example.org".into()] },
            metadata: Some(serde_json::json!({ "last": 7 })),
            body: b"Subject: hi\r\n\r\n{\"data\":1}\n".to_vec(),
            notes: vec![Note::Data { at }, Note::Lost { at }],
        }
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let path = Path::new("x");
        assert_eq!(SpooledMessage::from_bytes(&message().to_bytes(), path).expect("it is one"), message());
        let fresh = SpooledMessage { notes: Vec::new(), ..message() };
        assert_eq!(SpooledMessage::from_bytes(&fresh.to_bytes(), path).expect("it is one"), fresh);
    }

    #[test]
    fn a_note_that_was_never_finished_costs_no_other() {
        let mut bytes = SpooledMessage { notes: Vec::new(), ..message() }.to_bytes();
        let note = Note::Lost { at: message().created };
        bytes.extend(&encode_note(&note)[..10]);
        bytes.extend(encode_note(&note));
        assert_eq!(SpooledMessage::from_bytes(&bytes, Path::new("x")).expect("it is one").notes, [note]);
    }

    #[test]
    fn what_is_no_message_is_told_and_never_taken_for_one() {
        let whole = SpooledMessage { notes: Vec::new(), ..message() }.to_bytes();
        for cut in [0, 5, 40, whole.len() - 1] {
            let error = SpooledMessage::from_bytes(&whole[..cut], Path::new("x")).expect_err("it is cut");
            assert!(matches!(error, SpoolError::Damaged { .. }), "{error}");
        }
    }
}
