//! Recovery after crashes of writers and senders.

use std::path::Path;
use std::time::Duration;

use longshore::Timestamp;

use super::enqueue::link_count;
use super::error::SpoolError;
use super::filename::FileName;
use super::format::encode_note;
use super::shard::Shard;
use super::state_machine::{DeliveryHistory, DeliveryPolicy, NextState, after_crash};
use super::{Spool, State, durable_fs};

/// The result of recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveryReport {
    /// Committed messages that were moved to `pending`.
    pub enqueued: usize,
    /// Left in `sending`, and pending again.
    pub requeued: usize,
    /// Left in `sending`, and accepted by the server.
    pub sent: usize,
    /// Left in `sending`, and failed by its notes or the policy.
    pub failed: usize,
    /// Old temporary files that were never committed, removed.
    pub removed: usize,
    /// Messages with two separate files after a copy, which are links again.
    pub relinked: usize,
}

/// A temporary file that is older than this belongs to a crashed writer.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

impl Shard {
    /// Recovers what crashed writers and senders left behind. Call it once when a sender starts: only the
    /// shard's holder may have its messages claimed.
    pub fn recover(&self, policy: &DeliveryPolicy, now: Timestamp) -> Result<RecoveryReport, SpoolError> {
        let mut found = self.spool.move_committed(now)?;
        found.relinked = self.relink()?;
        found.enqueued += self.restore_lost()?;
        for name in self.spool.names(State::Sending)? {
            if self.has(&name) {
                self.recover_one(&name, policy, now, &mut found)?;
            }
        }
        Ok(found)
    }

    fn recover_one(
        &self,
        name: &FileName,
        policy: &DeliveryPolicy,
        now: Timestamp,
        found: &mut RecoveryReport,
    ) -> Result<(), SpoolError> {
        let next = match self.decide_recovered(name, policy, now) {
            Err(error) if error.is_file_specific() => {
                self.spool.log_once(&self.spool.state_path(State::Sending, name), &error);
                NextState::Failed
            }
            next => next?,
        };
        self.spool.settle(name, &next, now)?;
        match next {
            NextState::Sent => found.sent += 1,
            NextState::Pending(_) => found.requeued += 1,
            NextState::Failed => found.failed += 1,
        }
        Ok(())
    }

    /// Decides about a message that a crashed sender left in `sending`, by its notes.
    fn decide_recovered(
        &self,
        name: &FileName,
        policy: &DeliveryPolicy,
        now: Timestamp,
    ) -> Result<NextState, SpoolError> {
        let path = self.spool.state_path(State::Sending, name);
        let message = self.spool.read(&path)?;
        let history =
            DeliveryHistory { key: &name.key, created: message.retry_start(), notes: &message.notes };
        let (note, next) = after_crash(history, policy, now);
        if let Some(note) = note {
            self.spool.failpoint("note loss");
            durable_fs::append(&path, &encode_note(&note))?;
        }
        Ok(next)
    }
}

impl Spool {
    /// Moves committed messages from `tmp` to `pending`. Safe at any time, also while their writers run: the
    /// second rename finds no file.
    pub fn move_committed(&self, now: Timestamp) -> Result<RecoveryReport, SpoolError> {
        let mut found = RecoveryReport::default();
        for name in durable_fs::names(&self.dir("tmp"))? {
            let path = self.dir("tmp").join(name);
            match link_count(&path) {
                Some(2..) => {
                    let moved = self.skip_bad_file(&path, self.move_one(&path))?;
                    found.enqueued += usize::from(moved);
                }
                Some(_) if is_abandoned(&path, now) => {
                    self.failpoint("remove uncommitted");
                    let removed = self.skip_bad_file(&path, durable_fs::remove(&path))?;
                    found.removed += usize::from(removed);
                }
                _ => {}
            }
        }
        if found.enqueued > 0 {
            durable_fs::sync_folder(&self.dir("pending"))?;
        }
        Ok(found)
    }

    /// Returns false if its writer moved it first.
    fn move_one(&self, path: &Path) -> Result<bool, SpoolError> {
        let message = self.read(path)?;
        self.failpoint("move committed");
        durable_fs::rename(path, &self.state_path(State::Pending, &message.name))
    }
}

fn is_abandoned(path: &Path, now: Timestamp) -> bool {
    durable_fs::changed(path).is_some_and(|written| now.since(written) > ABANDONED_AFTER)
}
