//! What a worker is told before it begins, and how its life can go.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::link::LinkError;

/// What a worker has to know.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where its server's access file is.
    pub folder: PathBuf,
    /// How many threads its scripts may use together. Below 1 becomes 1.
    pub threads: u32,
    /// What else its scripts may take up.
    pub resources: BTreeMap<String, u32>,
    /// What it was launched as.
    pub launch: Option<u64>,
    /// How long it may live: it takes nothing new in time to end before.
    pub lifetime: Option<Duration>,
    /// It ends after so long without a script.
    pub idle: Option<Duration>,
    /// How long it looks for a server that is gone.
    pub server_lost: Duration,
    /// How long a drain may take.
    pub drain: Duration,
    /// Every script must be inside one of these; none means wherever its submitter says.
    pub roots: Vec<PathBuf>,
    /// What scripts inherit.
    pub env: Vec<(OsString, OsString)>,
    /// A script that runs before the first, and one after the last.
    pub hooks: Hooks,
    /// Scripts are not run, but count as done after this long: to measure everything else.
    pub idle_run: Option<Duration>,
    /// Nobody else in this process has children, and [`super::work`] is called on its first thread: who leaves
    /// a script's process group and outlives it is ended, too.
    pub alone: bool,
}

/// Scripts around a worker's life.
#[derive(Debug, Clone, Default)]
pub struct Hooks {
    /// Before the first script. If it fails, the worker ends.
    pub before: Option<PathBuf>,
    /// After the last.
    pub after: Option<PathBuf>,
}

/// What a worker is told from beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Take nothing new, end what runs.
    Drain,
    /// End now.
    Stop,
}

/// How a worker's life went.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Life {
    /// Scripts that ended well.
    pub done: u64,
    /// Scripts that did not.
    pub failed: u64,
    /// Scripts that were interrupted by its end.
    pub interrupted: u64,
    /// Why it ended, for people.
    pub why: String,
}

/// Why a worker could not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// There is no server.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// There is no `/dev/null`.
    #[error("/dev/null: {0}")]
    Nowhere(#[from] io::Error),
    /// There is no `bash`.
    #[error("there is no `bash` here")]
    NoBash,
    /// The hook before the first script failed.
    #[error("the hook before the first script {0}: {1}")]
    Hook(PathBuf, String),
}
