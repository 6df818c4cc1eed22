//! A message that a sender has claimed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use longshore::Timestamp;

use super::error::{IoContext, SpoolError};
use super::filename::FileName;
use super::format::{SpooledMessage, encode_note};
use super::shard::Shard;
use super::state_machine::{
    DeliveryHistory, DeliveryOutcome, DeliveryPolicy, NextState, Note, OnUnanswered, after_attempt,
};
use super::{Spool, State, durable_fs};

/// A message that a sender has claimed. If it is dropped, it stays in `sending` until its shard is recovered;
/// [`LeasedMessage::release`] releases it.
#[derive(Debug)]
pub struct LeasedMessage {
    spool: Spool,
    name: FileName,
    message: SpooledMessage,
}

impl Shard {
    /// Claims a message; `None` if it is gone. A message that cannot be read is moved to `failed`.
    pub fn claim(&self, name: &FileName) -> Result<Option<LeasedMessage>, SpoolError> {
        let spool = &self.spool;
        let path = spool.state_path(State::Sending, name);
        spool.failpoint("claim");
        if !durable_fs::rename(&spool.state_path(State::Pending, name), &path)? {
            return Ok(None);
        }
        match spool.read(&path) {
            Ok(message) => Ok(Some(LeasedMessage { spool: spool.clone(), name: name.clone(), message })),
            Err(error) if error.is_file_specific() => {
                spool.log_once(&path, &error);
                spool.failpoint("move to failed");
                durable_fs::rename(&path, &spool.state_path(State::Failed, name))?;
                Ok(None)
            }
            Err(error) => {
                // The file itself is fine: release it.
                spool.failpoint("release");
                durable_fs::rename(&path, &spool.state_path(State::Pending, name))?;
                Err(error)
            }
        }
    }
}

impl LeasedMessage {
    /// The message.
    pub fn message(&self) -> &SpooledMessage {
        &self.message
    }

    /// Records that the data is about to be sent. Call it before the server can have the data: after a crash
    /// this note decides what happens.
    pub fn record_data(&mut self, policy: &DeliveryPolicy, now: Timestamp) -> Result<(), SpoolError> {
        let note = Note::Data { at: now };
        self.spool.failpoint("note data");
        let file = durable_fs::append(&self.path(), &encode_note(&note))?;
        // At-most-once must survive a power failure, so sync. At-least-once does not need it.
        if policy.on_unanswered == OnUnanswered::Fail {
            file.sync_data().context("sync", &self.path())?;
            durable_fs::sync_folder(&self.spool.dir("sending"))?;
        }
        self.message.notes.push(note);
        Ok(())
    }

    /// Records the outcome, and moves the message to its next state.
    pub fn settle(
        self,
        outcome: DeliveryOutcome,
        policy: &DeliveryPolicy,
        now: Timestamp,
    ) -> Result<NextState, SpoolError> {
        let history = DeliveryHistory {
            key: &self.name.key,
            created: self.message.retry_start(),
            notes: &self.message.notes,
        };
        let (note, next) = after_attempt(history, outcome, policy, now);
        self.spool.failpoint("note outcome");
        let file = durable_fs::append(&self.path(), &encode_note(&note))?;
        let accepted = matches!(note, Note::Partial { .. } | Note::Sent { .. });
        if accepted && next != NextState::Sent && policy.on_unanswered == OnUnanswered::Fail {
            // The message is sent again to the remaining recipients: which ones have it must survive a power
            // failure.
            file.sync_data().context("sync", &self.path())?;
        }
        self.spool.settle(&self.name, &next, now)?;
        Ok(next)
    }

    /// Releases the message without a trace. Only before its data was sent.
    pub fn release(self) -> Result<(), SpoolError> {
        self.release_as(&self.name)
    }

    /// Releases the message, due at another time. Counts no attempt.
    pub fn postpone(self, until: Timestamp) -> Result<(), SpoolError> {
        self.release_as(&self.name.postponed(until))
    }

    fn release_as(&self, name: &FileName) -> Result<(), SpoolError> {
        self.spool.failpoint("release");
        durable_fs::rename(&self.path(), &self.spool.state_path(State::Pending, name)).map(drop)
    }

    fn path(&self) -> PathBuf {
        self.spool.state_path(State::Sending, &self.name)
    }
}

impl Spool {
    pub(super) fn read(&self, path: &Path) -> Result<SpooledMessage, SpoolError> {
        SpooledMessage::from_bytes(&fs::read(path).context("read", path)?, path)
    }

    /// Logs an error of a file once: later scans find the file again.
    pub(super) fn log_once(&self, path: &Path, error: &SpoolError) {
        let mut logged = self.0.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.insert(path.to_path_buf()) {
            tracing::error!("skipping a message that cannot be read: {}", error.with_source());
        }
    }

    /// Logs an error that concerns only this file, and continues with the default value.
    pub(super) fn skip_bad_file<T: Default>(
        &self,
        path: &Path,
        result: Result<T, SpoolError>,
    ) -> Result<T, SpoolError> {
        match result {
            // Another process moved it: not an error.
            Err(error) if error.is_file_specific() && path.symlink_metadata().is_err() => Ok(T::default()),
            Err(error) if error.is_file_specific() => {
                self.log_once(path, &error);
                Ok(T::default())
            }
            result => result,
        }
    }

    /// Moves a message from `sending` to its next state.
    pub(super) fn settle(&self, name: &FileName, next: &NextState, now: Timestamp) -> Result<(), SpoolError> {
        let from = self.state_path(State::Sending, name);
        let to = match next {
            NextState::Failed => {
                // The name of a failed message has the time of the failure.
                let name = FileName::new(now, name.priority, name.key.clone());
                self.state_path(State::Failed, &name)
            }
            NextState::Pending(due) => self.state_path(State::Pending, &name.postponed(*due)),
            NextState::Sent => {
                let folder = self.dir("sent").join(day(now));
                durable_fs::make_folder(&folder)?;
                folder.join(name.to_string())
            }
        };
        self.failpoint("settle");
        durable_fs::rename(&from, &to).map(drop)
    }
}

/// The date as used in folder names.
pub(super) fn day(now: Timestamp) -> String {
    now.to_string().chars().take(10).collect()
}
