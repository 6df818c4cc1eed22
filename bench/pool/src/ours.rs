//! Our pools, two workers each, as the others have.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use longshore_pool::{
    Call, CallOptions, OperationError, Operations, Payload, Program, Settings, WorkerPool,
};

use crate::clock::Caller;
use crate::install::peers;

/// How long a pool may take to end.
const CLOSE: Duration = Duration::from_secs(10);

/// What a worker of ours can do, on a thread or in a process. `noop` and `echo` are always there, and
/// marked idempotent; `nothing` is `noop` without that mark.
pub(crate) fn operations() -> Operations<()> {
    Operations::stateless()
        .add_raw("nothing", |(), _: &Call, _| Ok(Payload::null()))
        .add("sleep", |(), millis: u64| {
            std::thread::sleep(Duration::from_millis(millis));
            Ok::<_, OperationError>(())
        })
        .add("burn", |(), millis: u64| {
            burn(Duration::from_millis(millis));
            Ok::<_, OperationError>(())
        })
}

/// Keeps a core busy.
pub(crate) fn burn(time: Duration) {
    let begun = std::time::Instant::now();
    while begun.elapsed() < time {
        std::hint::black_box(());
    }
}

/// Two workers that live as long as the pool: the other pools do not replace theirs, either.
pub(crate) fn settings() -> Settings {
    Settings { min: 2, max: 2, max_calls: None, ..Settings::default() }
}

pub(crate) async fn threads() -> Result<WorkerPool> {
    Ok(WorkerPool::threads("bench-threads", operations(), settings()).await?)
}

pub(crate) async fn processes() -> Result<WorkerPool> {
    Ok(WorkerPool::processes("bench-processes", Program::this(), settings()).await?)
}

/// A worker in Python, by our SDK.
pub(crate) async fn python() -> Result<WorkerPool> {
    let program = Program::command(python_program()?)
        .arg(peers("python/worker.py"))
        .env("PYTHONPATH", peers("../../../sdk/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(WorkerPool::processes("bench-python", program, settings()).await?)
}

/// A worker in Node, by our SDK.
pub(crate) async fn node() -> Result<WorkerPool> {
    let program = Program::command("node").arg(peers("node/worker.mjs"));
    Ok(WorkerPool::processes("bench-node", program, settings()).await?)
}

/// The example in Perl: JSON lines, no SDK.
pub(crate) async fn perl() -> Result<WorkerPool> {
    let program = Program::command("perl").arg(peers("../../../examples/workers/perl/worker.pl"));
    Ok(WorkerPool::processes("bench-perl", program, settings()).await?)
}

/// The interpreter itself, not a script that looks for it each time.
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

/// Runs closures that do nothing on a pool of threads.
#[derive(Clone)]
pub(crate) struct Closures(pub(crate) WorkerPool);

impl Caller for Closures {
    async fn call(&self) -> Result<()> {
        Ok(self.0.run_blocking(|| ()).await?)
    }
}

/// Sends bytes and receives them back.
#[derive(Clone)]
pub(crate) struct Echo {
    pub(crate) pool: WorkerPool,
    pub(crate) payload: Payload,
}

impl Caller for Echo {
    async fn call(&self) -> Result<()> {
        let arguments = self.payload.clone();
        let result = self.pool.call_raw("echo", arguments, CallOptions::default()).await?;
        anyhow::ensure!(result.as_bytes().len() == self.payload.as_bytes().len(), "another size");
        Ok(())
    }
}
