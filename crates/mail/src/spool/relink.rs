//! Restores hard links after a copy that did not preserve them.
//!
//! Notes are appended to the file in a state folder. If its key is a separate file, a lookup by key does not
//! show that the message was sent. So before anything is sent, the two names become links to the file with
//! more notes.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

use super::enqueue::link_count;
use super::error::{IoContext, SpoolError};
use super::filename::{FileName, MessageKey};
use super::format::SpooledMessage;
use super::shard::Shard;
use super::{Spool, State, durable_fs};

const STATES: [State; 3] = [State::Pending, State::Sending, State::Failed];

impl Shard {
    /// Relinks every message of this shard that has two separate files; returns how many.
    pub(super) fn relink(&self) -> Result<usize, SpoolError> {
        let mut relinked = 0;
        for state in STATES {
            self.spool.walk(state, |name| {
                if self.has(&name) {
                    let one = self.spool.relink(state, &name);
                    let one = self.spool.skip_bad_file(&self.spool.state_path(state, &name), one)?;
                    relinked += usize::from(one);
                }
                Ok(())
            })?;
        }
        if relinked > 0 {
            durable_fs::sync_folder(&self.spool.dir("keys"))?;
        }
        Ok(relinked)
    }

    /// Makes each message pending that has no link but its key; returns how many. Call it after relinking.
    pub(super) fn restore_lost(&self) -> Result<usize, SpoolError> {
        let (spool, mut candidates) = (&self.spool, HashSet::new());
        durable_fs::walk(&spool.dir("keys"), |name| {
            let key = MessageKey::from_encoded(name).filter(|key| self.has_key(key));
            candidates.extend(key.filter(|key| link_count(&spool.key_path(key)) == Some(1)));
            Ok(())
        })?;
        // Normally there are none, and the other folders need not be read.
        if !candidates.is_empty() {
            spool.remove_known(&mut candidates)?;
        }
        let mut restored = 0;
        for key in candidates {
            if let Some(message) = spool.active_message(&key)? {
                let one = spool.skip_bad_file(&spool.key_path(&key), spool.make_pending(&message))?;
                restored += usize::from(one);
            }
        }
        Ok(restored)
    }
}

impl Spool {
    /// Makes a message and its key links to one file; returns whether they were separate.
    fn relink(&self, state: State, name: &FileName) -> Result<bool, SpoolError> {
        let (path, key) = (self.state_path(state, name), self.key_path(&name.key));
        if durable_fs::same_file(&path, &key) {
            return Ok(false);
        }
        // Gone or corrupt: the sender that claims it handles that.
        let Ok(message) = self.read(&path) else { return Ok(false) };
        match self.read(&key) {
            // Pruning removes the key first and this file next.
            Err(_) if !key.exists() && state == State::Failed => Ok(false),
            Err(_) if !key.exists() => self.link_key(&path, &key),
            Ok(known) if !known.is_same_message(&message) => Ok(false),
            // The message was sent while it was copied, its key last: recovery decides by the key's notes.
            Ok(known) if known.notes.len() > message.notes.len() => {
                let sending = self.state_path(State::Sending, name);
                self.failpoint("claim copy");
                durable_fs::rename(&path, &sending)?;
                self.replace(&sending, &key, &name.key)
            }
            Ok(_) | Err(_) => self.replace(&key, &path, &name.key),
        }
    }

    fn link_key(&self, path: &Path, key: &Path) -> Result<bool, SpoolError> {
        self.failpoint("relink");
        match fs::hard_link(path, key) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            result => result.map(|()| true).context("link", path),
        }
    }

    /// Atomically replaces `old` by a link to `new`.
    fn replace(&self, old: &Path, new: &Path, key: &MessageKey) -> Result<bool, SpoolError> {
        // Not in `tmp`, where a file with two links counts as committed. No encoded key ends with `-`.
        let temporary = self.dir("keys").join(format!("{key}-"));
        durable_fs::remove(&temporary)?;
        self.failpoint("relink");
        fs::hard_link(new, &temporary).context("link", new)?;
        self.failpoint("replace");
        durable_fs::rename(&temporary, old)
    }

    /// Whether the key's file is a separate copy of this message.
    pub(super) fn is_separate_copy(&self, path: &Path, key: &Path) -> bool {
        let read = |path| self.read(path).ok();
        let same = |one: SpooledMessage| read(key).is_some_and(|other| one.is_same_message(&other));
        link_count(key) == Some(1) && read(path).is_some_and(same)
    }

    /// Whether any state folder has a message with this key.
    pub(super) fn has_state(&self, key: &MessageKey) -> Result<bool, SpoolError> {
        let mut candidates = HashSet::from([key.clone()]);
        self.remove_known(&mut candidates)?;
        Ok(candidates.is_empty())
    }

    /// Removes from these keys all that have another name after all: they could not be relinked, or were sent
    /// before.
    fn remove_known(&self, candidates: &mut HashSet<MessageKey>) -> Result<(), SpoolError> {
        for state in STATES {
            self.walk(state, |name| {
                candidates.remove(&name.key);
                Ok(())
            })?;
        }
        for day in durable_fs::names(&self.dir("sent"))? {
            let folder = self.dir("sent").join(day);
            durable_fs::walk(&folder, |file| match file.parse::<FileName>() {
                Ok(name) if candidates.contains(&name.key) => {
                    let (path, key) = (folder.join(file), self.key_path(&name.key));
                    let copy = self.is_separate_copy(&path, &key);
                    if copy {
                        self.replace(&key, &path, &name.key)?;
                    }
                    // A file in `sent` that cannot be read was sent all the same. Otherwise the key belongs
                    // to another message.
                    if copy || self.read(&path).is_err() {
                        candidates.remove(&name.key);
                    }
                    Ok(())
                }
                _ => Ok(()),
            })?;
        }
        Ok(())
    }
}
