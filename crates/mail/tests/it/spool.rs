//! The spool: every committed message is kept, once.

mod copy;
mod corrupt_files;
mod crash;
mod enqueue;
mod group_commit;
mod state_machine;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use longshore::{Priority, Timestamp};
use longshore_mail::spool::{Envelope, FileName, MessageKey, NewMessage};

/// The tests' current time.
const NOW: Timestamp = Timestamp::from_micros(1_763_300_000_000_000);

fn later(seconds: u64) -> Timestamp {
    NOW + Duration::from_secs(seconds)
}

fn key(text: &str) -> MessageKey {
    MessageKey::new(text).expect("a key")
}

fn letter(text: &str) -> NewMessage {
    let key = key(text);
    let message_id = key.message_id("example.org");
    NewMessage {
        due: NOW,
        priority: Priority::NORMAL,
        envelope: Envelope { from: Some("a@example.org".into()), to: vec!["b@example.org".into()] },
        metadata: None,
        body: format!("Message-ID: <{message_id}>\r\n\r\nhello {text}\r\n").into_bytes(),
        message_id,
        key,
    }
}

/// The state folders of every message in a spool, by key.
fn states(folder: &Path) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut folders: Vec<_> = ["pending", "sending", "failed"].map(|name| folder.join(name)).into();
    folders.extend(entries(&folder.join("sent")));
    for path in folders.iter().flat_map(|folder| entries(folder)) {
        let name = path.file_name().expect("a name").to_str().expect("text").to_owned();
        let name: FileName = name.parse().expect("a message's name");
        let state = path.strip_prefix(folder).expect("inside").components().next().expect("a folder");
        let state = state.as_os_str().to_str().expect("text").to_owned();
        found.entry(name.key.encoded().to_owned()).or_default().push(state);
    }
    found
}

fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.expect("an entry").path()).collect()
}
