//! Configuration of a worker, its report and its errors.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use longshore_trusted_path::PathError;

use crate::connection::ConnectError;

/// Configuration of a worker.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Folder with the server's access file.
    pub folder: PathBuf,
    /// Threads that its scripts may use together; at least 1.
    pub threads: u32,
    /// Named resources.
    pub resources: BTreeMap<String, u32>,
    /// Names of a resource's instances, as `gpu` → the names in `CUDA_VISIBLE_DEVICES`.
    pub resource_names: BTreeMap<String, Vec<String>>,
    /// Launch number, if the pool launched it.
    pub launch: Option<u64>,
    /// Lifetime. The worker drains early enough to end within it.
    pub lifetime: Option<Duration>,
    /// The worker ends after this long without a script.
    pub idle: Option<Duration>,
    /// How long it tries to reconnect to a lost server.
    pub server_lost: Duration,
    /// Maximum duration of a drain that a signal or the end of the lifetime begins: at most half of the
    /// lifetime.
    pub drain: Duration,
    /// Every script, its working directory and its output must be inside one of these folders. If
    /// empty, the submitter is the operator: only the submission's own root is checked.
    pub roots: Vec<PathBuf>,
    /// Environment variables that submitters may set, if there are roots.
    pub allowed_env: Vec<String>,
    /// Environment that scripts inherit.
    pub env: Vec<(OsString, OsString)>,
    /// Scripts to run before the first and after the last task.
    pub hooks: Hooks,
    /// No other code in this process has child processes, and [`super::run`] is called on its main
    /// thread. Then the worker also kills processes that left a script's process group and outlive
    /// it.
    pub kills_orphans: bool,
}

/// Scripts around a worker's lifetime.
#[derive(Debug, Clone, Default)]
pub struct Hooks {
    /// Runs before the first task. If it fails, the worker ends.
    pub before: Option<PathBuf>,
    /// Runs after the last task.
    pub after: Option<PathBuf>,
}

/// Command to a worker from its own process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramCommand {
    /// Accept no more tasks and wait for running ones.
    Drain,
    /// Stop now.
    Stop,
}

/// Summary of a worker's lifetime.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct WorkerSummary {
    /// Successful scripts.
    pub done: u64,
    /// Failed scripts.
    pub failed: u64,
    /// Scripts that the worker's end interrupted.
    pub interrupted: u64,
    /// Why the worker ended, to show.
    #[serde(rename = "why")]
    pub end_reason: String,
}

/// Why a worker failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DispatchWorkerError {
    /// No connection to a server.
    #[error(transparent)]
    Link(#[from] ConnectError),
    /// Opening `/dev/null` failed.
    #[error("/dev/null: {0}")]
    Nowhere(#[from] io::Error),
    /// `bash` was not found.
    #[error("there is no `bash` in PATH, /bin or /usr/bin")]
    NoBash,
    /// A root cannot be used, or other users can write to it.
    #[error("root {} cannot be used", .0.display())]
    Root(PathBuf, #[source] PathError),
    /// The variable makes bash or the loader run other code.
    #[error("submitters cannot be allowed to set {0}: it changes what a script runs")]
    ForbiddenVariable(String),
    /// The hook before the first task failed.
    #[error("the hook before the first script failed: {0}: {1}")]
    Hook(PathBuf, String),
}
