//! A message in the hands of its sender.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use longshore::Timestamp;

use super::error::{SpoolError, Tried};
use super::fate::{Note, OnUnanswered, Outcome, Past, Policy, Verdict, judge};
use super::file::{Message, line};
use super::name::FileName;
use super::shard::Shard;
use super::{Spool, State, disk};

/// A message in the hands of its sender. Dropped without a word, it stays where it is until its shard
/// is recovered: a sender that gives up says so with [`Held::put_back`].
#[derive(Debug)]
pub struct Held {
    spool: Spool,
    name: FileName,
    message: Message,
}

impl Shard {
    /// Takes a message in hand; nothing if it is gone. One that cannot be read is put to the failures.
    pub fn take(&self, name: &FileName) -> Result<Option<Held>, SpoolError> {
        let spool = &self.spool;
        let path = spool.at(State::Sending, name);
        spool.step("take");
        if !disk::rename(&spool.at(State::Pending, name), &path)? {
            return Ok(None);
        }
        match spool.read(&path) {
            Ok(message) => Ok(Some(Held { spool: spool.clone(), name: name.clone(), message })),
            Err(error) if error.is_of_one_file() => {
                spool.complain(&path, &error);
                spool.step("set aside");
                disk::rename(&path, &spool.at(State::Failed, name))?;
                Ok(None)
            }
            Err(error) => {
                // Nothing is wrong with it: as if it had never been taken.
                spool.step("put back");
                disk::rename(&path, &spool.at(State::Pending, name))?;
                Err(error)
            }
        }
    }
}

impl Held {
    /// The message.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Notes that all of it is about to be with the server. To be said before the server can have it: what
    /// is known to have been said decides what a crash means.
    pub fn hands_over(&mut self, policy: &Policy, now: Timestamp) -> Result<(), SpoolError> {
        let note = Note::Data { at: now };
        self.spool.step("note data");
        let file = disk::append(&self.path(), &line(&note))?;
        // At most once also holds if the power fails; at least once needs no more than the file.
        if policy.on_unanswered == OnUnanswered::Fail {
            file.sync_data().tried("sync", &self.path())?;
            disk::sync_folder(&self.spool.within("sending"))?;
        }
        self.message.notes.push(note);
        Ok(())
    }

    /// Notes what came of it, and puts it where it belongs then.
    pub fn settle(
        self,
        outcome: Outcome,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<Verdict, SpoolError> {
        let past =
            Past { key: &self.name.key, created: self.message.begun(), notes: &self.message.notes };
        let (note, verdict) = judge(past, outcome, policy, now);
        self.spool.step("note outcome");
        let file = disk::append(&self.path(), &line(&note))?;
        let reached = matches!(note, Note::Partly { .. } | Note::Sent { .. });
        if reached && verdict != Verdict::Sent && policy.on_unanswered == OnUnanswered::Fail {
            // It goes on to others: who has it must be known whatever fails.
            file.sync_data().tried("sync", &self.path())?;
        }
        self.spool.settle(&self.name, &verdict, now)?;
        Ok(verdict)
    }

    /// Puts it back as if it had never been taken. Only before it was handed over.
    pub fn put_back(self) -> Result<(), SpoolError> {
        self.put_back_as(&self.name)
    }

    /// The same, due at another time. No attempt is counted.
    pub fn put_off(self, until: Timestamp) -> Result<(), SpoolError> {
        self.put_back_as(&self.name.put_off(until))
    }

    fn put_back_as(&self, name: &FileName) -> Result<(), SpoolError> {
        self.spool.step("put back");
        disk::rename(&self.path(), &self.spool.at(State::Pending, name)).map(drop)
    }

    fn path(&self) -> PathBuf {
        self.spool.at(State::Sending, &self.name)
    }
}

impl Spool {
    pub(super) fn read(&self, path: &Path) -> Result<Message, SpoolError> {
        Message::from_bytes(&fs::read(path).tried("read", path)?, path)
    }

    /// Logs what is wrong with a file, once: it is found again and again.
    pub(super) fn complain(&self, path: &Path, error: &SpoolError) {
        let mut told = self.0.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert(path.to_path_buf()) {
            tracing::error!("a message cannot be had, and the others go on: {}", error.told());
        }
    }

    /// The same with what came of a file, if one file is at fault.
    pub(super) fn or_complain<T: Default>(
        &self,
        path: &Path,
        result: Result<T, SpoolError>,
    ) -> Result<T, SpoolError> {
        match result {
            // Others may move it any time.
            Err(error) if error.is_of_one_file() && path.symlink_metadata().is_err() => {
                Ok(T::default())
            }
            Err(error) if error.is_of_one_file() => {
                self.complain(path, &error);
                Ok(T::default())
            }
            result => result,
        }
    }

    /// From `sending` to wherever the verdict says.
    pub(super) fn settle(
        &self,
        name: &FileName,
        verdict: &Verdict,
        now: Timestamp,
    ) -> Result<(), SpoolError> {
        let from = self.at(State::Sending, name);
        let to = match verdict {
            Verdict::Failed => {
                // When it failed is in its name.
                let name = FileName::new(now, name.priority, name.key.clone());
                self.at(State::Failed, &name)
            }
            Verdict::Again(due) => self.at(State::Pending, &name.put_off(*due)),
            Verdict::Sent => {
                let folder = self.within("sent").join(day(now));
                disk::make_folder(&folder)?;
                folder.join(name.to_string())
            }
        };
        self.step("settle");
        disk::rename(&from, &to).map(drop)
    }
}

/// The day, as folders are named by it.
pub(super) fn day(now: Timestamp) -> String {
    now.to_string().chars().take(10).collect()
}
