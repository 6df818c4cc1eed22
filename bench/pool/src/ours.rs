//! Our pools, with two workers each, as the other pools.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use longshore_pool::{
    CallOptions, CallPayload, OperationError, Operations, PoolCall, PoolSettings, Program, WorkerPool,
};

use crate::clock::Caller;
use crate::install::peers;

/// The limit for the shutdown of a pool.
const CLOSE: Duration = Duration::from_secs(10);

/// The operations of our workers, on threads and in processes. `noop` and `echo` are built in and marked
/// idempotent; `nothing` is `noop` without that mark.
pub(crate) fn operations() -> Operations<()> {
    Operations::stateless()
        .add_raw("nothing", |(), _: &PoolCall, _| Ok(CallPayload::null()))
        .add("sleep", |(), millis: u64| {
            std::thread::sleep(Duration::from_millis(millis));
            Ok::<_, OperationError>(())
        })
        .add("burn", |(), millis: u64| {
            burn(Duration::from_millis(millis));
            Ok::<_, OperationError>(())
        })
}

/// Burns CPU time.
pub(crate) fn burn(time: Duration) {
    let begun = std::time::Instant::now();
    while begun.elapsed() < time {
        std::hint::black_box(());
    }
}

/// Two workers that are never replaced, as in the other pools.
pub(crate) fn settings() -> PoolSettings {
    PoolSettings { min: 2, max: 2, max_calls: None, ..PoolSettings::default() }
}

pub(crate) async fn threads() -> Result<WorkerPool> {
    Ok(WorkerPool::threads("bench-threads", operations(), settings()).await?)
}

pub(crate) async fn processes() -> Result<WorkerPool> {
    Ok(WorkerPool::processes("bench-processes", Program::this(), settings()).await?)
}

/// A Python worker with our SDK.
pub(crate) async fn python() -> Result<WorkerPool> {
    let program = Program::command(python_program()?)
        .arg(peers("python/worker.py"))
        .env("PYTHONPATH", peers("../../../sdk/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(WorkerPool::processes("bench-python", program, settings()).await?)
}

/// A Node worker with our SDK.
pub(crate) async fn node() -> Result<WorkerPool> {
    let program = Program::command("node").arg(peers("node/worker.mjs"));
    Ok(WorkerPool::processes("bench-node", program, settings()).await?)
}

/// The Perl example: JSON lines, without an SDK.
pub(crate) async fn perl() -> Result<WorkerPool> {
    let program = Program::command("perl").arg(peers("../../../examples/workers/perl/worker.pl"));
    Ok(WorkerPool::processes("bench-perl", program, settings()).await?)
}

/// The interpreter itself, not a shim script that searches for it at each start.
pub(crate) fn python_program() -> Result<PathBuf> {
    let ask = ["-c", "import sys; print(sys.executable)"];
    let said = std::process::Command::new("python3").args(ask).output()?;
    Ok(String::from_utf8(said.stdout)?.trim().into())
}

/// Calls an operation that does nothing.
#[derive(Clone)]
pub(crate) struct Ours {
    pub(crate) pool: WorkerPool,
    pub(crate) operation: &'static str,
}

impl Ours {
    pub(crate) async fn close(self) {
        self.pool.close(CLOSE).await;
    }
}

impl Caller for Ours {
    async fn call(&self) -> Result<()> {
        Ok(self.pool.call(self.operation, &()).await?)
    }
}

/// Runs empty closures on a pool of threads.
#[derive(Clone)]
pub(crate) struct Closures(pub(crate) WorkerPool);

impl Caller for Closures {
    async fn call(&self) -> Result<()> {
        Ok(self.0.run_blocking(|| ()).await?)
    }
}

/// Sends bytes and gets them back.
#[derive(Clone)]
pub(crate) struct Echo {
    pub(crate) pool: WorkerPool,
    pub(crate) payload: CallPayload,
}

impl Caller for Echo {
    async fn call(&self) -> Result<()> {
        let arguments = self.payload.clone();
        let result = self.pool.call_raw("echo", arguments, CallOptions::default()).await?;
        anyhow::ensure!(result.as_bytes().len() == self.payload.as_bytes().len(), "another size");
        Ok(())
    }
}
