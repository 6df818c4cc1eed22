//! What the dead left behind.

use std::path::Path;
use std::time::Duration;

use longshore::Timestamp;

use super::error::SpoolError;
use super::fate::{Past, Policy, Verdict, recover};
use super::file::line;
use super::name::FileName;
use super::put::names_of;
use super::shard::Shard;
use super::{Spool, State, disk};

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Promised, and not pending yet.
    pub delivered: usize,
    /// In a dead sender's hands, and pending again.
    pub again: usize,
    /// In a dead sender's hands, and known to be with the server.
    pub sent: usize,
    /// In a dead sender's hands, and failed by its notes or the policy.
    pub failed: usize,
    /// Never promised to anybody, and old.
    pub forgotten: usize,
    /// Two files by a copy that knew no hard links, and one again.
    pub united: usize,
}

/// A writer that has not made its promise after so long is dead.
const OLD: Duration = Duration::from_secs(3600);

impl Shard {
    /// Puts right what writers and senders left behind when they died. To be done once when a sender
    /// begins: nobody but this shard's holder may have anything of it in hand.
    pub fn recover(&self, policy: &Policy, now: Timestamp) -> Result<Recovered, SpoolError> {
        let mut found = self.spool.deliver_promised(now)?;
        found.united = self.unite()?;
        found.delivered += self.restore_lost()?;
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
        policy: &Policy,
        now: Timestamp,
        found: &mut Recovered,
    ) -> Result<(), SpoolError> {
        let verdict = match self.judge_left(name, policy, now) {
            Err(error) if error.is_of_one_file() => {
                self.spool.complain(&self.spool.at(State::Sending, name), &error);
                Verdict::Failed
            }
            verdict => verdict?,
        };
        self.spool.settle(name, &verdict, now)?;
        match verdict {
            Verdict::Sent => found.sent += 1,
            Verdict::Again(_) => found.again += 1,
            Verdict::Failed => found.failed += 1,
        }
        Ok(())
    }

    /// What becomes of what a dead sender had in hand, by its notes.
    fn judge_left(
        &self,
        name: &FileName,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<Verdict, SpoolError> {
        let path = self.spool.at(State::Sending, name);
        let message = self.spool.read(&path)?;
        let past = Past { key: &name.key, created: message.begun(), notes: &message.notes };
        let (note, verdict) = recover(past, policy, now);
        if let Some(note) = note {
            self.spool.step("note loss");
            disk::append(&path, &line(&note))?;
        }
        Ok(verdict)
    }
}

impl Spool {
    /// Puts what was promised and is not pending where it belongs. Harmless at any time, beside whoever
    /// writes: who comes second finds nothing to move.
    pub fn deliver_promised(&self, now: Timestamp) -> Result<Recovered, SpoolError> {
        let mut found = Recovered::default();
        for name in disk::names(&self.within("tmp"))? {
            let path = self.within("tmp").join(name);
            match names_of(&path) {
                Some(2..) => {
                    let delivered = self.or_complain(&path, self.deliver_one(&path))?;
                    found.delivered += usize::from(delivered);
                }
                Some(_) if is_old(&path, now) => {
                    self.step("forget unpromised");
                    let forgotten = self.or_complain(&path, disk::remove(&path))?;
                    found.forgotten += usize::from(forgotten);
                }
                _ => {}
            }
        }
        if found.delivered > 0 {
            disk::sync_folder(&self.within("pending"))?;
        }
        Ok(found)
    }

    /// Whether it was not delivered meanwhile by whoever wrote it.
    fn deliver_one(&self, path: &Path) -> Result<bool, SpoolError> {
        let message = self.read(path)?;
        self.step("deliver promised");
        disk::rename(path, &self.at(State::Pending, &message.name))
    }
}

fn is_old(path: &Path, now: Timestamp) -> bool {
    disk::changed(path).is_some_and(|written| now.since(written) > OLD)
}
