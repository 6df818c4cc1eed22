//! Names of network ports, looked up by a Python library.

use std::path::Path;

use longshore_pool::{CallError, PoolSettings, Program, WorkerPool};

pub(crate) async fn open() -> Result<WorkerPool, CallError> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Program::command("python3")
        .arg(here.join("worker.py"))
        // Where `pip install` would have put the SDK.
        .env("PYTHONPATH", here.join("../../sdk/python"));
    let settings = PoolSettings { min: 1, max: 2, queue: 10, ..PoolSettings::default() };
    WorkerPool::processes("python", program, settings).await
}
