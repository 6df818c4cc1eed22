//! What people do with a spool: try failures again, and forget what is old.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use longshore::Timestamp;

use super::error::{SpoolError, Tried};
use super::fate::Note;
use super::file::{Message, line};
use super::held::day;
use super::name::{BUCKETS, FileName, Key};
use super::{Spool, State, disk};

/// What was forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Messages.
    pub messages: usize,
    /// Days that were forgotten as a whole.
    pub days: usize,
}

/// A message that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// What it is about.
    pub key: Key,
    /// Whom it does not reach; nobody if it cannot be read.
    pub to: Vec<String>,
    /// When it was given up.
    pub at: Timestamp,
    /// Why.
    pub why: String,
}

impl Failed {
    fn of(name: FileName, message: Result<Message, SpoolError>) -> Self {
        let (key, at) = (name.key, name.due);
        let message = match message {
            Ok(message) => message,
            Err(error) => return Self { key, to: Vec::new(), at, why: error.to_string() },
        };
        let unheard = || "it may have arrived, and is not sent again".to_owned();
        let why = message.notes.iter().rev().find_map(|note| match note {
            Note::Refused { at, why } | Note::Deferred { at, why } => Some((*at, why.clone())),
            Note::Lost { at } => Some((*at, unheard())),
            Note::Partly { at, refused, .. } => {
                let each = refused.iter().map(|(to, why)| format!("{to}: {why}"));
                Some((*at, each.collect::<Vec<_>>().join("; ")))
            }
            Note::Data { .. } | Note::Sent { .. } | Note::Retried { .. } => None,
        });
        let (at, why) = why.unwrap_or_else(|| (at, unheard()));
        Self { key, to: message.envelope.to, at, why }
    }
}

impl Spool {
    /// What failed, the latest first: at most so many.
    pub fn failures(&self, most: usize) -> Result<Vec<Failed>, SpoolError> {
        let mut names = self.names(State::Failed)?;
        names.sort_unstable_by(|one, other| other.cmp(one));
        names.truncate(most);
        let read = |name: FileName| {
            let message = self.read(&self.at(State::Failed, &name));
            Failed::of(name, message)
        };
        Ok(names.into_iter().map(read).collect())
    }

    /// Makes a failure pending again, from the beginning; whether there was one. An error if it cannot be read:
    /// it would fail again.
    pub fn retry(&self, key: &Key, now: Timestamp) -> Result<bool, SpoolError> {
        let names = self.names(State::Failed)?;
        let found = names.iter().find(|name| name.key == *key);
        found.map_or(Ok(false), |name| self.retry_one(name, now))
    }

    /// The same with all failures; how many there were.
    pub fn retry_all(&self, now: Timestamp) -> Result<usize, SpoolError> {
        let mut retried = 0;
        for name in self.names(State::Failed)? {
            // What cannot be read would fail again.
            let one =
                self.or_complain(&self.at(State::Failed, &name), self.retry_one(&name, now))?;
            retried += usize::from(one);
        }
        Ok(retried)
    }

    fn retry_one(&self, name: &FileName, now: Timestamp) -> Result<bool, SpoolError> {
        let from = self.at(State::Failed, name);
        match self.read(&from) {
            // Another was faster.
            Err(_) if from.symlink_metadata().is_err() => return Ok(false),
            other => other?,
        };
        self.step("note retry");
        disk::append(&from, &line(&Note::Retried { at: now }))?;
        let to = FileName::new(now, name.priority, name.key.clone());
        self.step("retry");
        disk::rename(&from, &self.at(State::Pending, &to))
    }

    /// Forgets what was sent longer ago than `keep`, by whole days, and with it the keys: the same message
    /// could be put again then.
    pub fn prune(&self, keep: Duration, now: Timestamp) -> Result<Pruned, SpoolError> {
        // One at a time: a key that is forgotten twice may be another's by then.
        let _one = match self.lock(BUCKETS) {
            Err(SpoolError::Taken { .. }) => return Ok(Pruned::default()),
            lock => lock?,
        };
        let (mut pruned, first) = (Pruned::default(), day(now - keep));
        for name in disk::names(&self.within("sent"))? {
            if name >= first {
                continue;
            }
            let folder = self.within("sent").join(&name);
            for file in disk::names(&folder)? {
                self.forget(&folder.join(&file), file.parse().ok())?;
                pruned.messages += 1;
            }
            match std::fs::remove_dir(&folder) {
                // Another who prunes was faster, or it is no day.
                Err(error) if disk::is_no_folder(&error) => {}
                removed => {
                    removed.tried("remove", &folder)?;
                    pruned.days += 1;
                }
            }
        }
        Ok(pruned)
    }

    /// Forgets what failed longer ago than `keep`, by whole days, and with it the keys. When it failed is when
    /// its file was last written to.
    pub fn prune_failed(&self, keep: Duration, now: Timestamp) -> Result<usize, SpoolError> {
        let _one = match self.lock(BUCKETS) {
            Err(SpoolError::Taken { .. }) => return Ok(0),
            lock => lock?,
        };
        let (mut messages, first) = (0, day(now - keep));
        for name in self.names(State::Failed)? {
            let path = self.at(State::Failed, &name);
            let Ok(data) = std::fs::metadata(&path) else { continue };
            if day(Timestamp::from_micros(data.mtime().saturating_mul(1_000_000))) < first {
                let forgotten = self.forget(&path, Some(name)).map(|()| 1);
                messages += self.or_complain(&path, forgotten)?;
            }
        }
        Ok(messages)
    }

    fn forget(&self, path: &Path, name: Option<FileName>) -> Result<(), SpoolError> {
        if let Some(name) = name {
            let key = self.key(&name.key);
            // If we died here before, a new message may have the key by now.
            if disk::same_file(path, &key) || self.is_copy(path, &key) {
                self.step("forget key");
                disk::remove(&key)?;
            }
        }
        self.step("forget message");
        disk::remove(path).map(drop)
    }
}
