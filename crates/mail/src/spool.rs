//! The spool: one file per message, from enqueueing until it is sent or failed.
//!
//! ```text
//! keys/KEY               the message itself, by its unit key: the commit point
//! tmp/                   being written
//! pending/DUE-P-KEY      to be sent at its due time; if postponed, the name ends with -SINCE
//! sending/DUE-P-KEY      claimed by a sender
//! sent/DAY/DUE-P-KEY     accepted by the server
//! failed/WHEN-P-KEY      not sent again, except by `retry`
//! locks/N                held by the sender of bucket N; 16 by the process that prunes
//! ```
//!
//! A message is one file with two hard links: one under `keys`, which stays as long as the message is known,
//! and one in the folder of its state, which changes by rename. **The link under `keys` is the commit
//! point.** It is created after the file is synced, and `link` fails if it exists; so there is one file per
//! key, however many writers enqueue it, and a committed message is never lost. If the writer crashes before
//! the message is pending, the next sender finds the file in `tmp` with two links and moves it to `pending`.
//!
//! What happens to a message is appended to its file as a [`Note`]; pure functions in the module
//! `state_machine` decide what follows from the notes.

mod admin;
mod due_scan;
mod durable_fs;
mod enqueue;
mod error;
mod failpoints;
mod filename;
mod format;
mod leased_message;
mod recover;
mod relink;
mod shard;
mod state_machine;
mod stats;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use longshore::SessionId;

pub use admin::{FailedMessage, PruneReport};
pub use due_scan::DueMessages;
pub use enqueue::{EnqueueResult, NewMessage};
pub use error::SpoolError;
use failpoints::Failpoints;
pub use filename::{BUCKETS, FileName, MessageKey, MessageKeyError, ParseFileNameError};
pub use format::{Envelope, SpooledMessage};
pub use leased_message::LeasedMessage;
pub use recover::RecoveryReport;
pub use shard::{ParseShareError, Shard, Share};
pub use state_machine::{DeliveryOutcome, DeliveryPolicy, NextState, Note, OnUnanswered};
pub use stats::{HealthThresholds, SpoolHealth, SpoolStats};

/// A spool in a folder. Cheap to clone. Any number of processes may share a folder on a local disk.
#[derive(Debug, Clone)]
pub struct Spool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    /// Makes the names in `tmp` unique to this process.
    identity: SessionId,
    written: AtomicU64,
    failpoints: Failpoints,
    /// Files with an error that was logged.
    logged: Mutex<HashSet<PathBuf>>,
}

/// The state folder of a message.
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
    /// Opens the spool in a folder, and creates missing folders.
    pub fn open(folder: &Path) -> Result<Self, SpoolError> {
        Self::open_with(folder, Failpoints::default())
    }

    /// Opens a spool for tests: `hook` is called before every step that changes the disk.
    #[doc(hidden)]
    pub fn open_with_failpoints(
        folder: &Path,
        hook: impl Fn(&'static str) + Send + Sync + 'static,
    ) -> Result<Self, SpoolError> {
        Self::open_with(folder, Failpoints::with_hook(hook))
    }

    fn open_with(folder: &Path, failpoints: Failpoints) -> Result<Self, SpoolError> {
        for name in ["keys", "tmp", "pending", "sending", "sent", "failed", "locks"] {
            durable_fs::make_folder(&folder.join(name))?;
        }
        let folder = folder.to_path_buf();
        let (identity, written) = (SessionId::new(), AtomicU64::new(0));
        Ok(Self(Arc::new(Inner { folder, identity, written, failpoints, logged: Mutex::default() })))
    }

    /// The spool's folder.
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.0.folder.join(name)
    }

    fn state_path(&self, state: State, name: &FileName) -> PathBuf {
        self.dir(state.folder()).join(name.to_string())
    }

    fn key_path(&self, key: &MessageKey) -> PathBuf {
        self.dir("keys").join(key.encoded())
    }

    fn failpoint(&self, name: &'static str) {
        self.0.failpoints.hit(name);
    }
}
