//! What a unit of the storm does: a little work, and one line in a file that proves it.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use longshore::{Context, Handler, HandlerResult, Reply};
use serde::{Deserialize, Serialize};

/// The kind's name.
pub const KIND: &str = "chaos";

/// What a unit of the storm carries.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    /// Its number in the batch.
    pub n: u64,
    /// How long it works, in milliseconds.
    pub ms: u64,
    /// Takes its whole worker with it, midway: for tests.
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
    type Input = Task;
    type Output = ();

    async fn run(&self, _: Context, task: Task) -> HandlerResult<()> {
        // A kill may come before the effect or after it.
        let half = Duration::from_millis(task.ms) / 2;
        tokio::time::sleep(half).await;
        // One write of a short line with O_APPEND: lines of several processes do not mix.
        (&self.log).write_all(format!("{}\n", task.n).as_bytes())?;
        if task.abort {
            std::process::abort();
        }
        tokio::time::sleep(half).await;
        Ok(Reply::new(()))
    }
}
