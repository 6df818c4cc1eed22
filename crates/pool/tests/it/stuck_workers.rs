//! Cases that could block a worker for ever: callers that disappear, floods of output, excessive
//! concurrency, unexpected panics. The next call succeeds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use longshore_pool::{
    CallOptions, ErrorKind, Operations, PoolSettings, Program, ResourceLimits, WhenQueueFull, WorkerPool,
};

use crate::gate::gated;
use crate::helpers::{eventually, exactly, example, pool, worker};

fn timeout_ms(millis: u64) -> CallOptions {
    CallOptions::default().timeout(Duration::from_millis(millis))
}

#[tokio::test]
async fn a_call_whose_caller_went_away_still_ends_when_its_time_is_over() {
    let pool = pool(worker("json", "well"), exactly(1)).await;
    let hangs = pool.call_with::<_, ()>("nothing", &(), timeout_ms(3_000));
    assert!(tokio::time::timeout(Duration::from_millis(50), hangs).await.is_err());
    assert_eq!(pool.call_with::<_, u32>("count", &(), timeout_ms(20_000)).await.unwrap(), 1);
    eventually("it was killed", || pool.stats().ended.get("timeout") == Some(&1)).await;
}

#[tokio::test]
async fn a_thread_whose_caller_went_away_is_still_given_up_when_its_time_is_over() {
    let (pool, gate) = gated(|settings| (settings.min, settings.max) = (1, 1)).await;
    let hangs = pool.call_with::<_, u64>("gate", &1_u64, timeout_ms(3_000));
    let mut hangs = Box::pin(hangs);
    tokio::select! {
        _ = &mut hangs => panic!("it is at the gate"),
        () = gate.wait_for(1) => {}
    }
    drop(hangs);
    assert_eq!(pool.call_with::<_, u64>("double", &4, timeout_ms(20_000)).await.unwrap(), 8);
    gate.open();
    eventually("it is gone", || pool.stats().abandoned == 0).await;
}

#[tokio::test]
async fn one_that_floods_us_before_it_is_ready_does_not_stop_the_clock() {
    let settings = PoolSettings { start_timeout: Duration::from_millis(500), ..exactly(1) };
    let begun = Instant::now();
    let error = WorkerPool::processes("test", Program::command("yes"), settings).await.unwrap_err();
    assert!(error.to_string().contains("not ready within 500ms"), "{error}");
    // It took two minutes when the flood blocked the runtime.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_fresh_process_for_each_call_is_fresh_even_if_it_could_do_several() {
    let settings = PoolSettings { max: 1, queue: 100, ..PoolSettings::default() };
    let program = worker("json", "concurrent");
    let limits = ResourceLimits::default().warm(1);
    let pool = WorkerPool::one_shot("test", program, limits, settings).await.unwrap();
    let counts = join_all((0..4).map(|_| pool.call::<_, u32>("count", &()))).await;
    let counts: Vec<u32> = counts.into_iter().map(Result::unwrap).collect();
    assert_eq!(counts, [1; 4]);
}

#[tokio::test]
async fn one_that_promises_to_do_everything_at_once_is_not_given_everything() {
    let settings = PoolSettings { queue: 10, when_full: WhenQueueFull::Refuse, ..exactly(1) };
    let pool = pool(worker("json", "greedy"), settings).await;
    let calls = (0..3_000).map(|_| pool.call_with::<_, ()>("nothing", &(), timeout_ms(2_000)));
    let ends = join_all(calls).await;
    let full = |end: &&Result<(), _>| {
        matches!(end, Err(longshore_pool::CallError { kind: ErrorKind::Full { .. }, .. }))
    };
    assert!(ends.iter().filter(full).count() > 1_000);
}

/// Panics when it is dropped, if it is armed.
struct PanicOnDrop(Arc<AtomicBool>);

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        assert!(!self.0.swap(false, Ordering::SeqCst), "on purpose");
    }
}

#[tokio::test]
async fn a_result_that_panics_when_nobody_takes_it_costs_no_worker() {
    let settings = PoolSettings { max_abandoned: 0, ..exactly(1) };
    let pool = WorkerPool::threads("test", Operations::stateless(), settings).await.unwrap();
    let (armed, (go, wait)) = (Arc::new(AtomicBool::new(true)), std::sync::mpsc::channel::<()>());
    let value = PanicOnDrop(Arc::clone(&armed));
    let mut call = Box::pin(pool.run_blocking(move || {
        let _ = wait.recv();
        value
    }));
    assert!(futures_util::poll!(&mut call).is_pending());
    drop(call);
    go.send(()).unwrap();
    eventually("it has panicked", || !armed.load(Ordering::SeqCst)).await;
    pool.call_with::<_, ()>("noop", &(), timeout_ms(60_000)).await.unwrap();
}

#[tokio::test]
async fn a_program_that_is_no_worker_of_its_own_is_not_started_over_and_over() {
    // This test binary is such a program: it does not call `run_if_worker`.
    let pool = WorkerPool::processes("test", Program::this(), exactly(1)).await;
    let error = pool.map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("child::run_if_worker"), "{error}");
}

#[tokio::test]
async fn workers_do_not_start_workers_without_end() {
    let program = || tokio::process::Command::new(example("same_binary"));
    assert!(program().status().await.unwrap().success());
    let deep = program().env("LONGSHORE_WORKER_DEPTH", "4").status().await.unwrap();
    assert!(!deep.success(), "its pool must not open");
    let pool = pool(worker("json", "well"), exactly(1)).await;
    let environment: serde_json::Value = pool.call("environment", &()).await.unwrap();
    assert_eq!(environment["LONGSHORE_WORKER_DEPTH"], "1");
}

#[tokio::test]
async fn a_result_that_is_too_large_is_an_error_and_not_the_end_of_its_worker() {
    let program = Program::command(example("same_binary")).args(["__longshore_worker", "maths"]);
    let settings = PoolSettings { max_frame: 10_000, ..exactly(1) };
    let pool = pool(program, settings).await;
    let pid: u32 = pool.call("pid", &()).await.unwrap();
    let error = pool.call::<_, String>("repeat", &("ö", 10_000)).await.unwrap_err();
    assert!(error.to_string().contains("of at most 10000"), "{error}");
    let error = pool.call::<_, String>("complain", &10_000).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Handler { .. }), "{error}");
    assert_eq!(pool.call::<_, u32>("pid", &()).await.unwrap(), pid);
}
