//! The spool: one file per message, from the promise that it goes out to the proof that it went.
//!
//! ```text
//! keys/KEY               the message itself, by its unit key: the promise
//! tmp/                   being written
//! pending/DUE-P-KEY      to be sent, not before its due time; put off, it ends with -SINCE
//! sending/DUE-P-KEY      in the hands of a sender
//! sent/DAY/DUE-P-KEY     taken by the server
//! failed/WHEN-P-KEY      never to be sent, or only if somebody says so
//! locks/N                who may send the messages of bucket N
//! ```
//!
//! A message is one file with two names: one under `keys`, which stays as long as the message is known, and
//! one that tells its state and changes by rename. **The name under `keys` is the promise.** It is made
//! once (`link` fails if it is there), after the file is on disk; so there is one file per unit key,
//! whoever writes it how often, and what was promised is never lost: should the writer die before the
//! message is pending, whoever sends next finds it in `tmp` with two names and puts it there.
//!
//! What happens to a message is noted at the end of its own file ([`Note`]); what follows from the notes
//! is decided in [`fate`](self) by plain functions.

mod disk;
mod error;
mod fate;
mod file;
mod held;
mod look;
mod name;
mod operate;
mod put;
mod recover;
mod shard;
mod stats;
mod steps;
mod unite;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use longshore::SessionId;

pub use error::SpoolError;
pub use fate::{Note, OnUnanswered, Outcome, Policy, Verdict};
pub use file::{Envelope, Message};
pub use held::Held;
pub use look::Due;
pub use name::{BUCKETS, FileName, Key, KeyError, NotAName};
pub use operate::{Failed, Pruned};
pub use put::{Letter, Put};
pub use recover::Recovered;
pub use shard::{NotAShare, Shard, Share};
pub use stats::{Health, SpoolStats, Thresholds};
use steps::Steps;

/// A spool in a folder. Cheap to clone; any number of processes may use one folder, on a local disk.
#[derive(Debug, Clone)]
pub struct Spool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    /// Makes the names in `tmp` our own.
    identity: SessionId,
    written: AtomicU64,
    steps: Steps,
    /// Files that somebody has heard of.
    told: Mutex<HashSet<PathBuf>>,
}

/// Where a message may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Pending,
    Sending,
    Failed,
}

impl State {
    const fn folder(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Sending => "sending",
            Self::Failed => "failed",
        }
    }
}

impl Spool {
    /// Opens the spool in a folder, and makes what is missing.
    pub fn open(folder: &Path) -> Result<Self, SpoolError> {
        Self::open_with(folder, Steps::default())
    }

    /// The same for tests: `tell` is called before every step that changes something on disk.
    #[doc(hidden)]
    pub fn open_watched(
        folder: &Path,
        tell: impl Fn(&'static str) + Send + Sync + 'static,
    ) -> Result<Self, SpoolError> {
        Self::open_with(folder, Steps::told_to(tell))
    }

    fn open_with(folder: &Path, steps: Steps) -> Result<Self, SpoolError> {
        for name in ["keys", "tmp", "pending", "sending", "sent", "failed", "locks"] {
            disk::make_folder(&folder.join(name))?;
        }
        let folder = folder.to_path_buf();
        let (identity, written) = (SessionId::new(), AtomicU64::new(0));
        Ok(Self(Arc::new(Inner { folder, identity, written, steps, told: Mutex::default() })))
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    fn within(&self, name: &str) -> PathBuf {
        self.0.folder.join(name)
    }

    fn at(&self, state: State, name: &FileName) -> PathBuf {
        self.within(state.folder()).join(name.to_string())
    }

    fn key(&self, key: &Key) -> PathBuf {
        self.within("keys").join(key.as_file())
    }

    fn step(&self, name: &'static str) {
        self.0.steps.tell(name);
    }
}
