//! A message's file: one line about it, the message as it is sent, then what happened to it.

use std::path::Path;

use longshore::{Priority, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::SpoolError;
use super::fate::{Note, left};
use super::name::FileName;

/// From whom and to whom: the envelope, which is not what the message's own lines say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Whom a bounce goes to; none for messages that must not bounce.
    pub from: Option<String>,
    /// Whom it goes to.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    about: Option<Value>,
    bytes: usize,
}

/// A message as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its name when it was spooled.
    pub name: FileName,
    /// When it was spooled.
    pub created: Timestamp,
    /// By which whoever gets it twice can know it.
    pub message_id: String,
    /// From whom and to whom.
    pub envelope: Envelope,
    /// What whoever puts the same key again is to know of it.
    pub about: Option<Value>,
    /// The message, all lines of it.
    pub body: Vec<u8>,
    /// What happened to it so far.
    pub notes: Vec<Note>,
}

const VERSION: u32 = 1;

impl Message {
    /// Those of its recipients who have neither got it nor were refused.
    pub fn left(&self) -> Vec<&str> {
        left(&self.envelope.to, &self.notes)
    }

    /// Whether this is the same message, whatever happened to either.
    pub(super) fn is(&self, other: &Self) -> bool {
        (&self.name, self.created) == (&other.name, other.created)
    }

    /// From when on it is tried, which is not before it is due: how long it may be tried counts from here.
    pub(super) fn begun(&self) -> Timestamp {
        self.created.max(self.name.due)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let header = Header {
            longshore_mail: VERSION,
            key: self.name.key.as_file().to_owned(),
            created: self.created,
            due: self.name.due,
            priority: self.name.priority,
            message_id: self.message_id.clone(),
            envelope: self.envelope.clone(),
            about: self.about.clone(),
            bytes: self.body.len(),
        };
        // Text, numbers and lists of them are always JSON.
        let mut bytes = serde_json::to_vec(&header).unwrap_or_default();
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.body);
        for note in &self.notes {
            bytes.extend(line(note));
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8], path: &Path) -> Result<Self, SpoolError> {
        read(bytes).map_err(|why| SpoolError::Damaged { path: path.to_path_buf(), why })
    }
}

/// A note as it is put at the end of a file, on a line of its own even if the last was never finished.
pub(super) fn line(note: &Note) -> Vec<u8> {
    let mut line = vec![b'\n'];
    line.extend(serde_json::to_vec(note).unwrap_or_default());
    line.push(b'\n');
    line
}

fn read(bytes: &[u8]) -> Result<Message, String> {
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or("it has no first line")?;
    let header: Header =
        serde_json::from_slice(&bytes[..end]).map_err(|cause| cause.to_string())?;
    if header.longshore_mail != VERSION {
        return Err(format!("it is of version {}, and this is {VERSION}", header.longshore_mail));
    }
    let rest = &bytes[end + 1..];
    if rest.len() < header.bytes {
        return Err(format!(
            "{} of its {} bytes are missing",
            header.bytes - rest.len(),
            header.bytes
        ));
    }
    let (body, notes) = rest.split_at(header.bytes);
    // Whoever wrote the last line may have died over it: what is not a note never was one.
    let notes = notes.split(|byte| *byte == b'\n');
    let notes = notes.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let key =
        format!("0-5-{}", header.key).parse::<FileName>().map_err(|cause| cause.to_string())?.key;
    Ok(Message {
        name: FileName::new(header.due, header.priority, key),
        created: header.created,
        message_id: header.message_id,
        envelope: header.envelope,
        about: header.about,
        body: body.to_vec(),
        notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::name::Key;

    fn message() -> Message {
        let at = Timestamp::from_micros(1_763_300_000_000_000);
        Message {
            name: FileName::new(at, Priority::HIGH, Key::new("digest/7").expect("a key")),
            created: at,
            message_id: "x@example.org".into(),
            envelope: Envelope {
                from: Some("a@example.org".into()),
                to: vec!["b@example.org".into()],
            },
            about: Some(serde_json::json!({ "last": 7 })),
            body: b"Subject: hi\r\n\r\n{\"data\":1}\n".to_vec(),
            notes: vec![Note::Data { at }, Note::Lost { at }],
        }
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let path = Path::new("x");
        assert_eq!(Message::from_bytes(&message().to_bytes(), path).expect("it is one"), message());
        let fresh = Message { notes: Vec::new(), ..message() };
        assert_eq!(Message::from_bytes(&fresh.to_bytes(), path).expect("it is one"), fresh);
    }

    #[test]
    fn a_note_that_was_never_finished_costs_no_other() {
        let mut bytes = Message { notes: Vec::new(), ..message() }.to_bytes();
        let note = Note::Lost { at: message().created };
        bytes.extend(&line(&note)[..10]);
        bytes.extend(line(&note));
        assert_eq!(Message::from_bytes(&bytes, Path::new("x")).expect("it is one").notes, [note]);
    }

    #[test]
    fn what_is_no_message_is_told_and_never_taken_for_one() {
        let whole = Message { notes: Vec::new(), ..message() }.to_bytes();
        for cut in [0, 5, 40, whole.len() - 1] {
            let error = Message::from_bytes(&whole[..cut], Path::new("x")).expect_err("it is cut");
            assert!(matches!(error, SpoolError::Damaged { .. }), "{error}");
        }
    }
}
