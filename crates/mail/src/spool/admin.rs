//! Administration: list and retry failures, prune old messages.

use std::path::Path;
use std::time::Duration;

use longshore::Timestamp;

use super::error::{IoContext, SpoolError};
use super::filename::{BUCKETS, FileName, MessageKey};
use super::format::{SpooledMessage, encode_note};
use super::leased_message::day;
use super::state_machine::Note;
use super::{Spool, State, durable_fs};

/// The result of pruning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PruneReport {
    /// Removed messages.
    pub messages: usize,
    /// Removed day folders.
    pub days: usize,
}

/// A failed message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedMessage {
    /// Its key.
    pub key: MessageKey,
    /// Its recipients; empty if it cannot be read.
    pub to: Vec<String>,
    /// When it failed.
    pub at: Timestamp,
    /// Why it failed.
    pub why: String,
}

impl FailedMessage {
    fn of(name: FileName, message: Result<SpooledMessage, SpoolError>) -> Self {
        let (key, at) = (name.key, name.due);
        let message = match message {
            Ok(message) => message,
            Err(error) => return Self { key, to: Vec::new(), at, why: error.to_string() },
        };
        let possibly_delivered = || "it may have arrived, and is not sent again".to_owned();
        let why = message.notes.iter().rev().find_map(|note| match note {
            Note::Refused { at, why } | Note::Deferred { at, why } => Some((*at, why.clone())),
            Note::Lost { at } => Some((*at, possibly_delivered())),
            Note::Partial { at, refused, .. } => {
                let each = refused.iter().map(|(to, why)| format!("{to}: {why}"));
                Some((*at, each.collect::<Vec<_>>().join("; ")))
            }
            Note::Data { .. } | Note::Sent { .. } | Note::Retried { .. } => None,
        });
        let (at, why) = why.unwrap_or_else(|| (at, possibly_delivered()));
        Self { key, to: message.envelope.to, at, why }
    }
}

impl Spool {
    /// At most `max` failed messages, latest first.
    pub fn failures(&self, max: usize) -> Result<Vec<FailedMessage>, SpoolError> {
        let mut names = self.names(State::Failed)?;
        names.sort_unstable_by(|one, other| other.cmp(one));
        names.truncate(max);
        let read = |name: FileName| {
            let message = self.read(&self.state_path(State::Failed, &name));
            FailedMessage::of(name, message)
        };
        Ok(names.into_iter().map(read).collect())
    }

    /// Makes a failed message pending again with a fresh attempt count. Returns whether there was one. Fails
    /// if the message cannot be read, since it would fail again.
    pub fn retry(&self, key: &MessageKey, now: Timestamp) -> Result<bool, SpoolError> {
        let names = self.names(State::Failed)?;
        let found = names.iter().find(|name| name.key == *key);
        found.map_or(Ok(false), |name| self.retry_file(name, now))
    }

    /// Retries all failed messages; returns how many.
    pub fn retry_all(&self, now: Timestamp) -> Result<usize, SpoolError> {
        let mut retried = 0;
        for name in self.names(State::Failed)? {
            // A message that cannot be read would fail again.
            let path = self.state_path(State::Failed, &name);
            retried += usize::from(self.skip_bad_file(&path, self.retry_file(&name, now))?);
        }
        Ok(retried)
    }

    fn retry_file(&self, name: &FileName, now: Timestamp) -> Result<bool, SpoolError> {
        let from = self.state_path(State::Failed, name);
        match self.read(&from) {
            // Another process moved it.
            Err(_) if from.symlink_metadata().is_err() => return Ok(false),
            other => other?,
        };
        self.failpoint("note retry");
        durable_fs::append(&from, &encode_note(&Note::Retried { at: now }))?;
        let to = FileName::new(now, name.priority, name.key.clone());
        self.failpoint("retry");
        durable_fs::rename(&from, &self.state_path(State::Pending, &to))
    }

    /// Removes messages sent longer than `keep` ago, by whole days, with their keys: such a key could be
    /// enqueued again.
    pub fn prune(&self, keep: Duration, now: Timestamp) -> Result<PruneReport, SpoolError> {
        // One process prunes at a time: a key that is removed twice may belong to a new message.
        let _one = match self.lock(BUCKETS) {
            Err(SpoolError::Locked { .. }) => return Ok(PruneReport::default()),
            lock => lock?,
        };
        let (mut pruned, cutoff) = (PruneReport::default(), day(now - keep));
        for name in durable_fs::names(&self.dir("sent"))? {
            if name >= cutoff {
                continue;
            }
            let folder = self.dir("sent").join(&name);
            for file in durable_fs::names(&folder)? {
                self.remove_message(&folder.join(&file), file.parse().ok())?;
                pruned.messages += 1;
            }
            match std::fs::remove_dir(&folder) {
                // Another process removed it, or it is not a day folder.
                Err(error) if durable_fs::is_no_folder(&error) => {}
                result => {
                    result.context("remove", &folder)?;
                    pruned.days += 1;
                }
            }
        }
        Ok(pruned)
    }

    /// Removes messages that failed longer than `keep` ago, by whole days, with their keys. The name has the
    /// time of failure; the modification time would be that of a copy.
    pub fn prune_failed(&self, keep: Duration, now: Timestamp) -> Result<usize, SpoolError> {
        let _one = match self.lock(BUCKETS) {
            Err(SpoolError::Locked { .. }) => return Ok(0),
            lock => lock?,
        };
        let (mut messages, cutoff) = (0, day(now - keep));
        for name in self.names(State::Failed)? {
            let path = self.state_path(State::Failed, &name);
            if day(name.due) < cutoff {
                let result = self.remove_message(&path, Some(name)).map(|()| 1);
                messages += self.skip_bad_file(&path, result)?;
            }
        }
        Ok(messages)
    }

    fn remove_message(&self, path: &Path, name: Option<FileName>) -> Result<(), SpoolError> {
        if let Some(name) = name {
            let key = self.key_path(&name.key);
            // After a crash at this point a new message may have the key.
            if durable_fs::same_file(path, &key) || self.is_separate_copy(path, &key) {
                self.failpoint("remove key");
                durable_fs::remove(&key)?;
            }
        }
        self.failpoint("remove message");
        durable_fs::remove(path).map(drop)
    }
}
