//! The interface to dispatch: pools of script workers that are run by another process.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Serialize;

/// Pools of script workers.
#[async_trait]
pub trait ScriptPools: Send + Sync + 'static {
    /// Lists all known pools, whether their servers respond or not.
    async fn list(&self) -> Vec<ScriptPool>;

    /// Sets a pool's minimum and maximum number of workers. The error is for people.
    async fn scale(&self, pool: &str, min: u32, max: u32) -> Result<(), String>;
}

/// A pool of script workers.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ScriptPool {
    /// The pool's name.
    pub pool: String,
    /// Its status, if its server responds.
    pub status: Option<ScriptPoolStatus>,
    /// Why there is no status.
    pub trouble: Option<String>,
}

/// The status of a pool of script workers.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ScriptPoolStatus {
    /// `working` or `draining`.
    pub mood: String,
    /// The launcher: `local`, `slurm` and so on.
    pub base: String,
    /// Minimum number of workers.
    pub min: u32,
    /// Maximum number of workers.
    pub max: u32,
    /// Scripts waiting for a worker.
    pub waiting: u64,
    /// Scripts waiting for dependencies or their start time.
    pub later: u64,
    /// Running scripts.
    pub running: u64,
    /// Completed scripts.
    pub done: u64,
    /// Failed scripts.
    pub failed: u64,
    /// Its workers.
    pub nodes: Vec<ScriptNode>,
    /// How long its server has been up.
    pub up_seconds: f64,
}

/// A script worker: a process on some machine.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ScriptNode {
    /// The worker's id.
    pub id: String,
    /// Host name.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// `working`, `draining`, `away`.
    pub mood: String,
    /// Number of threads.
    pub threads: u32,
    /// Threads in use.
    pub taken: u32,
    /// Scripts assigned and not finished.
    pub scripts: u64,
    /// Load average of its machine.
    pub load: f32,
}
