//! The handler of `chaos` units: works briefly, and appends a line to a file as evidence.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use longshore::{Context, Handler, HandlerReply, HandlerResult};
use serde::{Deserialize, Serialize};

/// The kind's name.
pub const KIND: &str = "chaos";

/// The payload of a `chaos` unit.
#[derive(Debug, Serialize, Deserialize)]
pub struct ChaosTask {
    /// Its number in the batch.
    pub n: u64,
    /// How long it works, in milliseconds.
    pub ms: u64,
    /// Aborts the worker midway: for tests.
    #[serde(default)]
    pub abort: bool,
}

/// Appends a line for each run.
pub struct ChaosHandler {
    log: File,
}

impl ChaosHandler {
    /// Appends to `log`.
    pub fn open(log: &Path) -> std::io::Result<Self> {
        let log = File::options().create(true).append(true).open(log)?;
        Ok(Self { log })
    }
}

impl Handler for ChaosHandler {
    type Input = ChaosTask;
    type Output = ();

    async fn run(&self, _: Context, task: ChaosTask) -> HandlerResult<()> {
        // A kill may come before the effect or after it.
        let half = Duration::from_millis(task.ms) / 2;
        tokio::time::sleep(half).await;
        // One write of a short line with O_APPEND: lines of several processes do not mix.
        (&self.log).write_all(format!("{}\n", task.n).as_bytes())?;
        if task.abort {
            std::process::abort();
        }
        tokio::time::sleep(half).await;
        Ok(HandlerReply::new(()))
    }
}
