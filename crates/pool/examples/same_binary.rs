//! A program that is its own worker: `cargo run -p longshore-pool --example same_binary`.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use longshore_pool::{
    CallError, OperationError, Operations, PoolCall, PoolSettings, Program, WorkerPool, child,
};

fn main() -> ExitCode {
    // Must come first: as a worker, this process does nothing else.
    if let Some(ended) = child::run_if_worker(|_| Some(Box::new(operations()))) {
        return ended;
    }
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(_) => return ExitCode::FAILURE,
    };
    match runtime.block_on(run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

async fn run() -> Result<(), CallError> {
    let pool = WorkerPool::processes("maths", Program::this(), PoolSettings::default()).await?;
    let nine: u64 = pool.call("square", &3).await?;
    tracing::info!(nine);
    pool.close(Duration::from_secs(5)).await;
    Ok(())
}

/// The operations of a worker. The state counts its calls.
#[expect(clippy::panic, clippy::print_stdout, reason = "shows that neither does harm")]
fn operations() -> Operations<u64> {
    Operations::new(|| Ok(0))
        .add("square", |_: &mut u64, n: u64| n.checked_mul(n).ok_or("too large"))
        .add("count", |seen: &mut u64, (): ()| {
            *seen += 1;
            Ok::<_, OperationError>(*seen)
        })
        .add("pid", |_: &mut u64, (): ()| Ok::<_, OperationError>(std::process::id()))
        .add("panic", |_: &mut u64, (): ()| -> Result<(), OperationError> { panic!("on purpose") })
        .add("die", |_: &mut u64, (note, really): (String, bool)| {
            if really {
                writeln!(OpenOptions::new().append(true).create(true).open(note)?, "begun")?;
                std::process::abort();
            }
            Ok::<_, std::io::Error>(())
        })
        .add("repeat", |_: &mut u64, (words, times): (String, usize)| {
            Ok::<_, OperationError>(words.repeat(times))
        })
        .add("complain", |_: &mut u64, times: usize| Err::<(), _>("alas ".repeat(times)))
        .add("print", |_: &mut u64, words: String| {
            println!("{words}");
            Ok::<_, OperationError>(words)
        })
        .add_with("sleep", |_: &mut u64, call: &PoolCall, millis: u64| {
            let end = std::time::Instant::now() + Duration::from_millis(millis);
            while std::time::Instant::now() < end {
                if call.is_cancelled() {
                    return Err("stopped on request");
                }
                call.progress(&"still at it");
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(millis)
        })
}
