//! Two names, one file: what a copy without hard links took apart.
//!
//! Notes go to the end of the file that is in some state; should its key be another file, nobody who looks
//! there knows that the message was sent. So the two are made one before anything is sent, and the one
//! that knows more is it.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

use super::error::{SpoolError, Tried};
use super::file::Message;
use super::name::{FileName, Key};
use super::put::names_of;
use super::shard::Shard;
use super::{Spool, State, disk};

const STATES: [State; 3] = [State::Pending, State::Sending, State::Failed];

impl Shard {
    /// Makes one file of every message of this shard that is two; how many were.
    pub(super) fn unite(&self) -> Result<usize, SpoolError> {
        let mut united = 0;
        for state in STATES {
            self.spool.walk(state, |name| {
                if self.has(&name) {
                    let one = self.spool.unite(state, &name);
                    let one = self.spool.or_complain(&self.spool.at(state, &name), one)?;
                    united += usize::from(one);
                }
                Ok(())
            })?;
        }
        if united > 0 {
            disk::sync_folder(&self.spool.within("keys"))?;
        }
        Ok(united)
    }

    /// Makes pending what has no name but its key; how many those were. To be done once all are united.
    pub(super) fn restore_lost(&self) -> Result<usize, SpoolError> {
        let (spool, mut alone) = (&self.spool, HashSet::new());
        disk::walk(&spool.within("keys"), |name| {
            let key = Key::from_file(name).filter(|key| self.has_key(key));
            alone.extend(key.filter(|key| names_of(&spool.key(key)) == Some(1)));
            Ok(())
        })?;
        // In almost every spool there are none, and so nothing more to look through.
        if !alone.is_empty() {
            spool.leave_out(&mut alone)?;
        }
        let mut restored = 0;
        for key in alone {
            if let Some(message) = spool.unended(&key)? {
                let one = spool.or_complain(&spool.key(&key), spool.make_pending(&message))?;
                restored += usize::from(one);
            }
        }
        Ok(restored)
    }
}

impl Spool {
    /// Makes a message and its key one file; whether they were two.
    fn unite(&self, state: State, name: &FileName) -> Result<bool, SpoolError> {
        let (path, key) = (self.at(state, name), self.key(&name.key));
        if disk::same_file(&path, &key) {
            return Ok(false);
        }
        // Gone meanwhile, or damaged: whoever takes it sees to that.
        let Ok(message) = self.read(&path) else { return Ok(false) };
        match self.read(&key) {
            // Its key may have been forgotten a moment ago, and it is next.
            Err(_) if !key.exists() && state == State::Failed => Ok(false),
            Err(_) if !key.exists() => self.name_anew(&path, &key),
            Ok(known) if !known.is(&message) => Ok(false),
            // Copied while it was sent, its key last: what became of it is decided by what is known.
            Ok(known) if known.notes.len() > message.notes.len() => {
                let sending = self.at(State::Sending, name);
                self.step("take copy");
                disk::rename(&path, &sending)?;
                self.replace(&sending, &key, &name.key)
            }
            Ok(_) | Err(_) => self.replace(&key, &path, &name.key),
        }
    }

    fn name_anew(&self, path: &Path, key: &Path) -> Result<bool, SpoolError> {
        self.step("unite");
        match fs::hard_link(path, key) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            result => result.map(|()| true).tried("link", path),
        }
    }

    /// Makes `old` a name of what `new` is a name of. At no moment there is no such name.
    fn replace(&self, old: &Path, new: &Path, key: &Key) -> Result<bool, SpoolError> {
        // Not in `tmp`, where a file with two names is promised; and no key is written like this.
        let beside = self.within("keys").join(format!("{key}-"));
        disk::remove(&beside)?;
        self.step("unite");
        fs::hard_link(new, &beside).tried("link", new)?;
        self.step("replace");
        disk::rename(&beside, old)
    }

    /// Whether a key alone is a copy of this message's.
    pub(super) fn is_copy(&self, path: &Path, key: &Path) -> bool {
        let read = |path| self.read(path).ok();
        let same = |one: Message| read(key).is_some_and(|other| one.is(&other));
        names_of(key) == Some(1) && read(path).is_some_and(same)
    }

    /// Whether anything in any state has this key.
    pub(super) fn has_state(&self, key: &Key) -> Result<bool, SpoolError> {
        let mut alone = HashSet::from([key.clone()]);
        self.leave_out(&mut alone)?;
        Ok(alone.is_empty())
    }

    /// Leaves out of these keys all that have another name after all: those could not be united, or were sent
    /// before anybody did.
    fn leave_out(&self, alone: &mut HashSet<Key>) -> Result<(), SpoolError> {
        for state in STATES {
            self.walk(state, |name| {
                alone.remove(&name.key);
                Ok(())
            })?;
        }
        for day in disk::names(&self.within("sent"))? {
            let folder = self.within("sent").join(day);
            disk::walk(&folder, |file| match file.parse::<FileName>() {
                Ok(name) if alone.contains(&name.key) => {
                    let (path, key) = (folder.join(file), self.key(&name.key));
                    let copy = self.is_copy(&path, &key);
                    if copy {
                        self.replace(&key, &path, &name.key)?;
                    }
                    // What cannot be read was sent all the same; another message may have had the key.
                    if copy || self.read(&path).is_err() {
                        alone.remove(&name.key);
                    }
                    Ok(())
                }
                _ => Ok(()),
            })?;
        }
        Ok(())
    }
}
