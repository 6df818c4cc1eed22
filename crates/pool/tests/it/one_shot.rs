//! A fresh process for each call, within limits that the kernel enforces.

use std::collections::BTreeSet;
use std::time::Duration;

use longshore_pool::{CallError, ErrorKind, PoolSettings, Program, ResourceLimits, WorkerPool};
use serde_json::Value;

use crate::helpers::{eventually, exists, worker, zombies};

async fn one_shot(program: Program, limits: ResourceLimits) -> WorkerPool {
    WorkerPool::one_shot("test", program, limits, PoolSettings::default()).await.unwrap()
}

async fn fails(limits: ResourceLimits, operation: &str, arguments: u64) -> CallError {
    let pool = one_shot(worker("json", "well"), limits).await;
    pool.call::<_, u64>(operation, &arguments).await.unwrap_err()
}

#[tokio::test]
async fn each_call_has_a_process_that_remembers_nothing_and_is_gone_after_it() {
    let pool = one_shot(worker("json", "well"), ResourceLimits::default()).await;
    let mut pids = BTreeSet::new();
    for _ in 0..4 {
        let pid: u32 = pool.call("pid", &()).await.unwrap();
        pids.insert(pid);
        eventually("it is gone", || !exists(pid)).await;
        assert_eq!(pool.call::<_, u32>("count", &()).await.unwrap(), 1);
    }
    assert_eq!(pids.len(), 4);
    eventually("all are gone", || pool.stats().workers == 0).await;
    assert_eq!(pool.stats().ended.get("calls"), Some(&8));
    eventually("no zombies", || zombies().is_empty()).await;
}

#[tokio::test]
async fn no_more_run_at_a_time_than_asked_for() {
    let settings = PoolSettings { max: 2, ..PoolSettings::default() };
    let pool =
        WorkerPool::one_shot("test", worker("json", "well"), ResourceLimits::default(), settings).await;
    let pool = pool.unwrap();
    let calls = (0..6).map(|_| async {
        let slept = pool.call::<_, f64>("sleep", &0.05).await;
        assert!(pool.stats().workers <= 2, "{:?}", pool.stats());
        slept.unwrap()
    });
    assert_eq!(futures_util::future::join_all(calls).await.len(), 6);
}

#[tokio::test]
async fn memory_files_and_time_are_limited() {
    let error = fails(ResourceLimits::default().memory(256 << 20), "allocate", 1 << 30).await;
    let ErrorKind::WorkerDied { stderr, .. } = &error.kind else { panic!("{error}") };
    assert!(stderr.contains("MemoryError"), "{stderr}");
    let error = fails(ResourceLimits::default().files(32), "open_files", 100).await;
    assert!(error.to_string().contains("Too many open files"), "{error}");
    let error = fails(ResourceLimits::default().cpu_time(Duration::from_secs(1)), "burn", 0).await;
    assert!(matches!(error.kind, ErrorKind::WorkerDied { signal: Some(_), .. }), "{error}");
}

#[tokio::test]
async fn a_wrapper_does_what_limits_do_not() {
    let program = worker("json", "well").wrapped_in(["nice", "-n", "9"]);
    let pool = one_shot(program, ResourceLimits::default()).await;
    let about: Value = pool.call("about", &()).await.unwrap();
    assert_eq!(about["nice"], 9);
}

#[tokio::test]
async fn a_warm_process_waits_before_the_call_comes_and_another_after_it() {
    let pool = one_shot(worker("json", "well"), ResourceLimits::default().warm(1)).await;
    assert_eq!(pool.stats().workers, 1);
    let first: u32 = pool.call("pid", &()).await.unwrap();
    eventually("the next one waits", || {
        let stats = pool.stats();
        !exists(first) && (stats.workers, stats.busy, stats.starting) == (1, 0, 0)
    })
    .await;
    assert_ne!(pool.call::<_, u32>("pid", &()).await.unwrap(), first);
}

#[tokio::test]
async fn one_that_dies_or_cannot_start_is_its_callers_error_alone() {
    let pool = one_shot(worker("json", "well"), ResourceLimits::default()).await;
    let error = pool.call::<_, ()>("exit", &3).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::WorkerDied { exit: Some(3), .. }), "{error}");
    assert_eq!(pool.call::<_, u32>("count", &()).await.unwrap(), 1);
    let pool = one_shot(worker("json", "exit"), ResourceLimits::default()).await;
    let error = pool.call::<_, ()>("noop", &()).await.unwrap_err();
    assert!(error.to_string().contains("walrus"), "{error}");
}
