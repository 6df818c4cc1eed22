//! The seam to dispatch: pools of script workers that another process leads, as far as pages and
//! programs want to know of them.

use async_trait::async_trait;
use serde::Serialize;

/// Pools of script workers.
#[async_trait]
pub trait ScriptPools: Send + Sync + 'static {
    /// All that are known, whether their servers answer or not.
    async fn look(&self) -> Vec<ScriptPool>;

    /// Has a pool keep between `min` and `max` workers. In plain words why not.
    async fn scale(&self, pool: &str, min: u32, max: u32) -> Result<(), String>;
}

/// A pool of script workers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScriptPool {
    /// What it is called.
    pub pool: String,
    /// How it stands, if its server answers.
    pub status: Option<ScriptPoolStatus>,
    /// Why there is no status.
    pub trouble: Option<String>,
}

/// How a pool of script workers stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScriptPoolStatus {
    /// `working` or `draining`.
    pub mood: String,
    /// What starts its workers: `local`, `slurm` and so on.
    pub base: String,
    /// Workers that there should be at least.
    pub min: u32,
    /// Workers that there should be at most.
    pub max: u32,
    /// Scripts that wait for a worker.
    pub waiting: u64,
    /// Scripts that wait for others, or for their time.
    pub later: u64,
    /// Scripts that run.
    pub running: u64,
    /// Scripts that were done.
    pub done: u64,
    /// Scripts that failed.
    pub failed: u64,
    /// Its workers.
    pub nodes: Vec<ScriptNode>,
    /// For how long its server has been up.
    pub up_seconds: f64,
}

/// A worker of such a pool: a process on some machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScriptNode {
    /// Its identity.
    pub id: String,
    /// Its machine.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// `working`, `draining`, `away`.
    pub mood: String,
    /// Threads that it has.
    pub threads: u32,
    /// Threads that are taken.
    pub taken: u32,
    /// Scripts that it was given and has not ended.
    pub scripts: u64,
    /// The load average of its machine.
    pub load: f32,
}
