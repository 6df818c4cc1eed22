//! Messages go in.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use longshore::{Priority, Timestamp};
use serde_json::Value;

use super::error::{SpoolError, Tried};
use super::fate::Note;
use super::file::{Envelope, Message};
use super::name::{FileName, Key};
use super::{Spool, State, disk};

/// A message to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// What it is about: there is one message of a key.
    pub key: Key,
    /// Not to be sent before.
    pub due: Timestamp,
    /// Which of those that are due goes first.
    pub priority: Priority,
    /// From whom and to whom.
    pub envelope: Envelope,
    /// The Message-ID that is in the body: [`Key::message_id`].
    pub message_id: String,
    /// What whoever puts the same key again is to know of it.
    pub about: Option<Value>,
    /// The message, all lines of it.
    pub body: Vec<u8>,
}

/// What became of a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It is kept, and will be sent.
    Created,
    /// There is one of this key already; this one is forgotten.
    Existing,
}

/// A group at least this large is synced by one call for the whole disk.
const GROUP: usize = 4;

impl Spool {
    /// Keeps letters. Once this returns they are on disk and will be sent, whatever dies; if it fails, any
    /// of them may be kept, and all may be put again.
    ///
    /// The disk is waited for once or twice, however many there are: put many at a time.
    pub fn put(&self, letters: &[Letter], now: Timestamp) -> Result<Vec<Put>, SpoolError> {
        // Nothing is no reason to wait for a disk.
        if letters.is_empty() {
            return Ok(Vec::new());
        }
        let mut written = Vec::with_capacity(letters.len());
        let kept = letters.iter().try_for_each(|letter| {
            let mut one = self.write(letter, now)?;
            // A large group is synced as a whole: its files need not stay open.
            one.file = one.file.filter(|_| letters.len() < GROUP);
            written.push(one);
            Ok(())
        });
        if let Err(error) = kept.and_then(|()| self.sync_files(&written)) {
            // Nothing was promised yet, and a full disk is not to become fuller.
            for one in &written {
                let _ = disk::remove(&one.path);
            }
            return Err(error);
        }
        let puts = written.iter().map(|one| self.promise(one)).collect::<Result<Vec<_>, _>>()?;
        // Also where all were there before: whoever put them may not have come so far.
        self.step("sync folders");
        disk::sync_folder(&self.within("keys"))?;
        for (one, put) in written.iter().zip(&puts) {
            self.deliver(one, *put)?;
        }
        self.step("sync pending");
        disk::sync_folder(&self.within("pending"))?;
        Ok(puts)
    }

    /// The message of a key, wherever it is by now.
    pub fn message(&self, key: &Key) -> Result<Message, SpoolError> {
        self.read(&self.key(key))
    }

    fn write(&self, letter: &Letter, now: Timestamp) -> Result<Written, SpoolError> {
        let name = FileName::new(letter.due, letter.priority, letter.key.clone());
        let message = Message {
            name: name.clone(),
            created: now,
            message_id: letter.message_id.clone(),
            envelope: letter.envelope.clone(),
            about: letter.about.clone(),
            body: letter.body.clone(),
            notes: Vec::new(),
        };
        let number = self.0.written.fetch_add(1, Ordering::Relaxed);
        let path = self.within("tmp").join(format!("{}.{number}", self.0.identity));
        self.step("write");
        let file = disk::write_new(&path, &message.to_bytes())?;
        Ok(Written { name, path, file: Some(file) })
    }

    fn sync_files(&self, written: &[Written]) -> Result<(), SpoolError> {
        self.step("sync files");
        if written.len() >= GROUP {
            return disk::sync_disk(self.folder());
        }
        let files = written.iter().filter_map(|one| Some((one.file.as_ref()?, &one.path)));
        files.into_iter().try_for_each(|(file, path)| file.sync_all().tried("sync", path))
    }

    /// The promise: the key's name can be made once.
    fn promise(&self, one: &Written) -> Result<Put, SpoolError> {
        self.step("promise");
        match fs::hard_link(&one.path, self.key(&one.name.key)) {
            Ok(()) => Ok(Put::Created),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Put::Existing),
            Err(error) => Err(error).tried("link", &one.path),
        }
    }

    fn deliver(&self, one: &Written, put: Put) -> Result<(), SpoolError> {
        match put {
            Put::Created => {
                self.step("deliver");
                if !disk::rename(&one.path, &self.at(State::Pending, &one.name))? {
                    // Delivered by a sender; or taken by one for a dead writer's, and then it has one name.
                    self.restore(&one.name.key)?;
                }
            }
            Put::Existing => {
                self.restore(&one.name.key)?;
                self.step("forget");
                disk::remove(&one.path)?;
            }
        }
        Ok(())
    }

    /// Makes a message pending whose only name is its key. In a living spool a message has two names at any
    /// moment; a disk that lost power may have kept the one and not the other. Whether there was one.
    pub(super) fn restore(&self, key: &Key) -> Result<bool, SpoolError> {
        if names_of(&self.key(key)) != Some(1) {
            return Ok(false);
        }
        match self.unended(key)? {
            // In a copy its other name may be another file, which its sender sees to.
            Some(message) if !self.has_state(key)? => self.make_pending(&message),
            _ => Ok(false),
        }
    }

    /// The message of a key, unless it came to its end: then its other name was removed by somebody, who
    /// meant it.
    pub(super) fn unended(&self, key: &Key) -> Result<Option<Message>, SpoolError> {
        let path = self.key(key);
        let Some(message) = self.or_complain(&path, self.read(&path).map(Some))? else {
            return Ok(None);
        };
        let ended = match message.notes.last() {
            Some(Note::Sent { .. } | Note::Refused { .. }) => true,
            Some(Note::Partly { later, .. }) => later.is_empty(),
            _ => false,
        };
        Ok((!ended).then_some(message))
    }

    /// Makes a message pending that has no name but its key; whether it was not.
    pub(super) fn make_pending(&self, message: &Message) -> Result<bool, SpoolError> {
        let path = self.key(&message.name.key);
        self.step("restore");
        match fs::hard_link(&path, self.at(State::Pending, &message.name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            result => result.map(|()| true).tried("link", &path),
        }
    }
}

struct Written {
    name: FileName,
    path: PathBuf,
    /// Open, if it is to be synced alone.
    file: Option<File>,
}

/// How many names a file has.
pub(super) fn names_of(path: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).ok().map(|data| data.nlink())
}
