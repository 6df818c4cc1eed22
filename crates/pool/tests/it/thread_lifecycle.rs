//! The life of threads: started, replaced, stopped, closed, dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longshore_pool::{CallError, ErrorKind, Health, Operations, PoolSettings, WorkerPool};
use tokio::task::JoinSet;

use crate::gate::{Gate, gated, operations};
use crate::helpers::eventually;

/// Number of threads of this process with this prefix in their names.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|comm| comm.starts_with(name)).count()
}

fn exactly(workers: usize) -> PoolSettings {
    let mut settings = PoolSettings::default();
    (settings.min, settings.max) = (workers, workers);
    settings
}

#[tokio::test]
async fn warm_up_starts_every_worker_before_the_first_call() {
    let begun = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&begun);
    let operations = Operations::new(move || Ok(counter.fetch_add(1, Ordering::SeqCst)));
    let pool = WorkerPool::threads("warm", operations, exactly(4)).await.unwrap();
    assert_eq!(begun.load(Ordering::SeqCst), 4);
    let stats = pool.stats();
    assert_eq!((stats.workers, stats.starting, stats.busy), (4, 0, 0));
    assert_eq!(pool.health(), Health::Ok);
}

#[tokio::test]
async fn a_panic_is_an_error_with_its_words_and_the_worker_is_replaced() {
    let (pool, _) = gated(|settings| (settings.min, settings.max) = (1, 1)).await;
    let error = pool.call::<_, ()>("panic", "boo").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Panic { message: "boo".to_owned() });
    assert_eq!(error.worker.map(|worker| worker.id), Some(1));
    let twice: u64 = pool.call("double", &2_u64).await.unwrap();
    assert_eq!(twice, 4);
    let error = pool.run_blocking(|| -> u8 { std::panic::panic_any("closure") }).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Panic { message: "closure".to_owned() });
    assert_eq!(pool.run_blocking(|| 7).await.unwrap(), 7);
    eventually("both are counted", || pool.stats().ended.get("panic") == Some(&2)).await;
}

/// Number of live states, and the lowest number at which one was cleaned up.
#[derive(Default)]
struct StateCounts {
    alive: AtomicUsize,
    min_alive: AtomicUsize,
}

fn counted(counts: &Arc<StateCounts>) -> Operations<Arc<StateCounts>> {
    let (counts, min_alive) = (Arc::clone(counts), usize::MAX);
    counts.min_alive.store(min_alive, Ordering::SeqCst);
    let init = move || {
        counts.alive.fetch_add(1, Ordering::SeqCst);
        Ok(Arc::clone(&counts))
    };
    Operations::new(init).cleanup(|counts: &mut Arc<StateCounts>| {
        let alive = counts.alive.fetch_sub(1, Ordering::SeqCst);
        counts.min_alive.fetch_min(alive, Ordering::SeqCst);
    })
}

#[tokio::test]
async fn a_worker_is_replaced_after_its_number_of_calls_once_the_next_is_ready() {
    let counts = Arc::new(StateCounts::default());
    let settings = PoolSettings { max_calls: Some(2_000), ..exactly(2) };
    let pool = WorkerPool::threads("worn", counted(&counts), settings).await.unwrap();
    let replaced = || pool.stats().ended.get("calls").copied().unwrap_or(0);
    while replaced() < 5 {
        pool.call::<_, ()>("noop", &()).await.unwrap();
    }
    // Two workers and the replacement: no worker stopped before its replacement was ready.
    assert!(counts.min_alive.load(Ordering::SeqCst) >= 3);
    pool.close(Duration::from_secs(30)).await;
    assert_eq!(counts.alive.load(Ordering::SeqCst), 0);
    assert_eq!(pool.stats().calls.failed, 0);
}

#[tokio::test]
async fn a_worker_is_replaced_at_its_age() {
    let settings = PoolSettings { max_age: Some(Duration::from_millis(40)), ..exactly(1) };
    let pool = WorkerPool::threads("aged", Operations::stateless(), settings).await.unwrap();
    eventually("it got old", || pool.stats().ended.get("age").is_some_and(|ended| *ended > 1)).await;
    pool.call::<_, ()>("noop", &()).await.unwrap();
}

#[tokio::test]
async fn a_pool_grows_when_calls_wait_and_shrinks_to_its_least_when_they_are_done() {
    let (pool, gate) = gated(|settings| {
        (settings.min, settings.max) = (1, 4);
        settings.idle_timeout = Duration::from_millis(50);
    })
    .await;
    assert_eq!(pool.stats().workers, 1);
    for id in 0..4_u64 {
        pool.call_detached("gate", &id).unwrap();
    }
    gate.wait_for(4).await;
    assert_eq!(pool.stats().workers, 4);
    gate.open();
    eventually("only one is left", || pool.stats().workers == 1).await;
    eventually("three were idle", || pool.stats().ended.get("idle") == Some(&3)).await;
    pool.call::<_, ()>("noop", &()).await.unwrap();
}

#[tokio::test]
async fn a_worker_that_cannot_be_started_is_an_error_and_not_tried_again_and_again() {
    let starts = Arc::new(AtomicUsize::new(0));
    let failing = || {
        let starts = Arc::clone(&starts);
        Operations::<()>::new(move || {
            starts.fetch_add(1, Ordering::SeqCst);
            Err("no database".into())
        })
    };
    let error = WorkerPool::threads("failing", failing(), exactly(1)).await.unwrap_err();
    let ErrorKind::StartFailed { message, .. } = error.kind else { panic!("{error}") };
    assert_eq!(message, "no database");
    assert_eq!(starts.load(Ordering::SeqCst), 1);

    // A pool that starts its workers on demand fails each call, without a start for each.
    let settings = PoolSettings { min: 0, ..exactly(4) };
    let pool = WorkerPool::threads("lazy", failing(), settings).await.unwrap();
    for _ in 0..1_000 {
        let error = pool.call::<_, ()>("noop", &()).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::StartFailed { .. }), "{error}");
    }
    let tried = starts.load(Ordering::SeqCst) - 1;
    assert!(tried < 50, "{tried} starts for 1,000 calls");
    let Health::Failed { reason } = pool.health() else { panic!("{:?}", pool.health()) };
    assert!(reason.contains("no database"), "{reason}");
}

#[tokio::test]
async fn a_start_that_fails_while_others_work_costs_no_call() {
    let starts = Arc::new(AtomicUsize::new(0));
    let gate = Gate::default();
    let inner = gate.clone();
    let only_one = move || match starts.fetch_add(1, Ordering::SeqCst) {
        0 => Ok(()),
        _ => Err("only one".into()),
    };
    let operations = Operations::new(only_one).add("gate", move |(), id: u64| {
        inner.pass(id);
        Ok::<_, String>(id)
    });
    let settings = PoolSettings { min: 1, ..exactly(4) };
    let pool = WorkerPool::threads("one", operations, settings).await.unwrap();
    let mut calls = JoinSet::new();
    for id in 0..8_u64 {
        let pool = pool.clone();
        calls.spawn(async move { pool.call::<_, u64>("gate", &id).await });
    }
    eventually("a start failed", || matches!(pool.health(), Health::Degraded { .. })).await;
    gate.open();
    assert!(calls.join_all().await.into_iter().all(|answer| answer.is_ok()));
}

#[tokio::test]
async fn an_init_that_hangs_is_an_error_in_time() {
    let gate = Gate::default();
    let inner = gate.clone();
    let operations = Operations::new(move || {
        inner.pass(0);
        Ok(())
    });
    let settings = PoolSettings { start_timeout: Duration::from_millis(50), ..exactly(1) };
    let error = WorkerPool::threads("hung", operations, settings).await.unwrap_err();
    assert!(error.to_string().contains("not ready within 50ms"), "{error}");
    gate.open();
    eventually("the thread ends after all", || threads("hung-") == 0).await;
}

#[tokio::test]
async fn closing_does_what_waits_and_refuses_what_comes() {
    let (pool, gate) = gated(|settings| (settings.min, settings.max) = (2, 2)).await;
    let mut calls = JoinSet::new();
    for id in 0..10_u64 {
        let pool = pool.clone();
        calls.spawn(async move { pool.call::<_, u64>("gate", &id).await });
    }
    eventually("eight wait", || pool.stats().queue_depth == 8).await;
    let closing = pool.close(Duration::from_secs(30));
    let opens = async {
        eventually("it closes", || !pool.health().is_serving()).await;
        let error = pool.call::<_, ()>("noop", &()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::ShuttingDown);
        assert_eq!(pool.warm_up().await.unwrap_err().kind, ErrorKind::ShuttingDown);
        gate.open();
    };
    tokio::join!(closing, opens);
    assert!(calls.join_all().await.into_iter().all(|answer| answer.is_ok()));
    let stats = pool.stats();
    assert_eq!((stats.workers, stats.ended.get("closing")), (0, Some(&2)));
}

#[tokio::test]
async fn closing_waits_no_longer_than_it_may() {
    let (pool, gate) = gated(|settings| (settings.min, settings.max) = (1, 1)).await;
    let mut calls = JoinSet::new();
    for id in 0..2_u64 {
        let caller = pool.clone();
        calls.spawn(async move { caller.call::<_, u64>("gate", &id).await });
        eventually("it is in its place", || (pool.stats().busy + pool.stats().queue_depth) as u64 == id + 1)
            .await;
    }
    pool.close(Duration::from_millis(20)).await;
    let first: Result<u64, CallError> = calls.join_next().await.unwrap().unwrap();
    assert_eq!(first.unwrap_err().kind, ErrorKind::ShuttingDown, "the one that waited");
    gate.open();
    assert_eq!(calls.join_next().await.unwrap().unwrap().unwrap(), 0);
    eventually("the thread ends when it is done", || pool.stats().workers == 0).await;
}

#[tokio::test]
async fn a_pool_that_is_closed_while_it_warms_up_says_so() {
    let gate = Gate::default();
    let inner = gate.clone();
    let operations = Operations::new(move || {
        inner.pass(0);
        Ok(())
    });
    gate.open();
    let settings = PoolSettings { min: 0, ..exactly(2) };
    let pool = WorkerPool::threads("early", operations, settings).await.unwrap();
    gate.shut();
    pool.resize(2, 2).unwrap();
    let close = async {
        gate.wait_for(2).await;
        pool.close(Duration::ZERO).await;
    };
    let (warm, ()) = tokio::join!(pool.warm_up(), close);
    assert_eq!(warm.unwrap_err().kind, ErrorKind::ShuttingDown);
    gate.open();
    eventually("both end", || pool.stats().workers == 0).await;
}

#[tokio::test]
async fn dropping_a_pool_ends_its_threads() {
    let pool = WorkerPool::threads("dropped", operations(&Gate::default()), exactly(3)).await.unwrap();
    assert_eq!(threads("dropped-"), 3);
    drop(pool);
    eventually("they end", || threads("dropped-") == 0).await;
}

#[test]
fn a_pool_may_outlive_its_runtime_and_be_dropped_outside_of_it() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let opened = WorkerPool::threads("outlives", Operations::stateless(), exactly(2));
    let pool = runtime.block_on(opened).unwrap();
    drop(runtime);
    drop(pool);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(eventually("they end", || threads("outlives-") == 0));
}

#[tokio::test]
async fn warming_up_starts_all_that_there_may_be() {
    let (pool, gate) = gated(|settings| (settings.min, settings.max) = (1, 5)).await;
    assert_eq!(pool.stats().workers, 1);
    pool.warm_up().await.unwrap();
    assert_eq!((pool.stats().workers, pool.stats().starting), (5, 0), "each is ready");
    gate.open();
}

#[tokio::test]
async fn warming_up_says_that_one_cannot_be_started() {
    let begun = AtomicUsize::new(0);
    let operations = Operations::new(move || match begun.fetch_add(1, Ordering::Relaxed) {
        0 => Ok(()),
        _ => Err("only one of me".into()),
    });
    let settings = PoolSettings { min: 1, max: 4, ..PoolSettings::default() };
    let pool = WorkerPool::threads("alone", operations, settings).await.unwrap();
    let message = pool.warm_up().await.unwrap_err().to_string();
    assert!(message.contains("only one of me"), "{message}");
    // The other starts under way fail a moment later.
    eventually("the first worker stays", || pool.stats().workers == 1).await;
}

#[tokio::test]
async fn a_pool_can_be_given_another_size() {
    let (pool, gate) = gated(|settings| (settings.min, settings.max) = (1, 1)).await;
    pool.resize(3, 3).unwrap();
    pool.warm_up().await.unwrap();
    assert_eq!(pool.stats().workers, 3);
    for id in 0..3_u64 {
        pool.call_detached("gate", &id).unwrap();
    }
    gate.wait_for(3).await;
    pool.resize(1, 1).unwrap();
    gate.open();
    eventually("two are too many", || pool.stats().ended.get("surplus") == Some(&2)).await;
    assert_eq!(pool.stats().workers, 1);
    assert!(pool.resize(2, 1).is_err() && pool.resize(0, 0).is_err());
}

#[tokio::test]
async fn settings_that_cannot_be_are_refused_with_the_reason() {
    let error = WorkerPool::builder("no").workers(3, 2).threads(Operations::stateless()).await;
    assert!(error.unwrap_err().to_string().contains("min is above its max"));
}
