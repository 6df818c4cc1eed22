//! Enqueues messages.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use longshore::{Priority, Timestamp};
use serde_json::Value;

use super::error::{IoContext, SpoolError};
use super::filename::{FileName, MessageKey};
use super::format::{Envelope, SpooledMessage};
use super::state_machine::Note;
use super::{Spool, State, durable_fs};

/// A message to enqueue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// Its key: there is one message per key.
    pub key: MessageKey,
    /// Not sent before this time.
    pub due: Timestamp,
    /// Which due message goes first.
    pub priority: Priority,
    /// The envelope.
    pub envelope: Envelope,
    /// The Message-ID in the body: [`MessageKey::message_id`].
    pub message_id: String,
    /// Metadata that a later enqueue of the same key returns.
    pub metadata: Option<Value>,
    /// The message's bytes.
    pub body: Vec<u8>,
}

/// The result of enqueueing a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnqueueResult {
    /// It is stored and will be sent.
    Created,
    /// A message with this key exists; this one is discarded.
    Existing,
}

/// Groups of at least this size are synced by one call for the whole file system.
const MIN_SYNCFS_GROUP: usize = 4;

impl Spool {
    /// Enqueues messages. Once this returns `Ok`, they are durable and will be sent. If it fails, any of them
    /// may be stored; it is safe to enqueue all of them again.
    ///
    /// The number of disk syncs does not grow with the number of messages: enqueue many at a time.
    pub fn enqueue(&self, messages: &[NewMessage], now: Timestamp) -> Result<Vec<EnqueueResult>, SpoolError> {
        // Avoid syncing for an empty group.
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let mut written = Vec::with_capacity(messages.len());
        let result = messages.iter().try_for_each(|message| {
            let mut temp_file = self.write(message, now)?;
            // A large group is synced as a whole, so its files are closed at once.
            temp_file.file = temp_file.file.filter(|_| messages.len() < MIN_SYNCFS_GROUP);
            written.push(temp_file);
            Ok(())
        });
        if let Err(error) = result.and_then(|()| self.sync_files(&written)) {
            // Nothing is committed yet; free the space on a full disk.
            for temp_file in &written {
                let _ = durable_fs::remove(&temp_file.path);
            }
            return Err(error);
        }
        let results =
            written.iter().map(|temp_file| self.commit(temp_file)).collect::<Result<Vec<_>, _>>()?;
        // Sync also if all keys existed: their writer may not have synced them yet.
        self.failpoint("sync folders");
        durable_fs::sync_folder(&self.dir("keys"))?;
        for (temp_file, result) in written.iter().zip(&results) {
            self.move_to_pending(temp_file, *result)?;
        }
        self.failpoint("sync pending");
        durable_fs::sync_folder(&self.dir("pending"))?;
        Ok(results)
    }

    /// The message with this key, in any state.
    pub fn message(&self, key: &MessageKey) -> Result<SpooledMessage, SpoolError> {
        self.read(&self.key_path(key))
    }

    fn write(&self, new: &NewMessage, now: Timestamp) -> Result<TempFile, SpoolError> {
        let name = FileName::enqueued(now, new.due, new.priority, new.key.clone());
        let message = SpooledMessage {
            name: name.clone(),
            created: now,
            message_id: new.message_id.clone(),
            envelope: new.envelope.clone(),
            metadata: new.metadata.clone(),
            body: new.body.clone(),
            notes: Vec::new(),
        };
        let number = self.0.written.fetch_add(1, Ordering::Relaxed);
        let path = self.dir("tmp").join(format!("{}.{number}", self.0.identity));
        self.failpoint("write");
        let file = durable_fs::write_new(&path, &message.to_bytes())?;
        Ok(TempFile { name, path, file: Some(file) })
    }

    fn sync_files(&self, written: &[TempFile]) -> Result<(), SpoolError> {
        self.failpoint("sync files");
        if written.len() >= MIN_SYNCFS_GROUP {
            return durable_fs::sync_disk(self.folder());
        }
        let files = written.iter().filter_map(|temp_file| Some((temp_file.file.as_ref()?, &temp_file.path)));
        files.into_iter().try_for_each(|(file, path)| file.sync_all().context("sync", path))
    }

    /// The commit point: creating the key's link succeeds once per key.
    fn commit(&self, temp_file: &TempFile) -> Result<EnqueueResult, SpoolError> {
        self.failpoint("commit");
        match fs::hard_link(&temp_file.path, self.key_path(&temp_file.name.key)) {
            Ok(()) => Ok(EnqueueResult::Created),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(EnqueueResult::Existing),
            Err(error) => Err(error).context("link", &temp_file.path),
        }
    }

    fn move_to_pending(&self, temp_file: &TempFile, result: EnqueueResult) -> Result<(), SpoolError> {
        match result {
            EnqueueResult::Created => {
                self.failpoint("move to pending");
                if !durable_fs::rename(&temp_file.path, &self.state_path(State::Pending, &temp_file.name))? {
                    // A sender moved it to `pending`, or removed it as a crashed writer's; then only the
                    // key's link is left.
                    self.restore_if_lost(&temp_file.name.key)?;
                }
            }
            EnqueueResult::Existing => {
                self.restore_if_lost(&temp_file.name.key)?;
                self.failpoint("remove duplicate");
                durable_fs::remove(&temp_file.path)?;
            }
        }
        Ok(())
    }

    /// Makes a message pending if its only link is its key. A message normally has two links; after a power
    /// failure only one may be left. Returns whether it did.
    pub(super) fn restore_if_lost(&self, key: &MessageKey) -> Result<bool, SpoolError> {
        if link_count(&self.key_path(key)) != Some(1) {
            return Ok(false);
        }
        match self.active_message(key)? {
            // In a copied spool the other name may be a separate file; its sender relinks it.
            Some(message) if !self.has_state(key)? => self.make_pending(&message),
            _ => Ok(false),
        }
    }

    /// The message of a key, unless it reached its final state: then its other link was removed on purpose.
    pub(super) fn active_message(&self, key: &MessageKey) -> Result<Option<SpooledMessage>, SpoolError> {
        let path = self.key_path(key);
        let Some(message) = self.skip_bad_file(&path, self.read(&path).map(Some))? else {
            return Ok(None);
        };
        let is_final = match message.notes.last() {
            Some(Note::Sent { .. } | Note::Refused { .. }) => true,
            Some(Note::Partial { later, .. }) => later.is_empty(),
            _ => false,
        };
        Ok((!is_final).then_some(message))
    }

    /// Links a message into `pending`. Returns false if the link exists.
    pub(super) fn make_pending(&self, message: &SpooledMessage) -> Result<bool, SpoolError> {
        let path = self.key_path(&message.name.key);
        self.failpoint("restore");
        match fs::hard_link(&path, self.state_path(State::Pending, &message.name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            result => result.map(|()| true).context("link", &path),
        }
    }
}

struct TempFile {
    name: FileName,
    path: PathBuf,
    /// Open if it is synced individually.
    file: Option<File>,
}

/// The number of hard links of a file.
pub(super) fn link_count(path: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).ok().map(|data| data.nlink())
}
