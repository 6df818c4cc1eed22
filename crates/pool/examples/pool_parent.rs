//! A program that a test kills: opens a pool, prints the ids of its processes, and waits.
//!
//! The first argument decides the orphan reaper: this program itself (`hooked`) or a shell
//! (`plain`). The others are the command of its workers, which must implement `pid`, `fork` and
//! `daemon`.

use std::process::ExitCode;

use longshore_pool::{CallError, PoolSettings, Program, WorkerPool, child};

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let how = words.next().unwrap_or_default();
    if how != "plain"
        && let Some(ended) = child::run_if_worker(|_| None)
    {
        return ended;
    }
    let program = Program::command(words.next().unwrap_or_default()).args(words);
    let Ok(runtime) = tokio::runtime::Runtime::new() else { return ExitCode::FAILURE };
    match runtime.block_on(run(program)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

#[expect(clippy::print_stdout, reason = "this is what the test reads")]
async fn run(program: Program) -> Result<(), CallError> {
    let mut settings = PoolSettings::default();
    (settings.min, settings.max) = (1, 1);
    let pool = WorkerPool::processes("doomed", program, settings).await?;
    let worker: u32 = pool.call("pid", &()).await?;
    let grandchild: u32 = pool.call("fork", &()).await?;
    let daemon: u32 = pool.call("daemon", &()).await?;
    println!("{worker} {grandchild} {daemon}");
    std::future::pending().await
}
