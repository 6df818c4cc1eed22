//! Calls, as callers see them: arguments, results, statistics.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{StreamExt, TryStreamExt, stream};
use longshore_pool::{
    CallOptions, CallPayload, ErrorKind, Operation, Operations, PoolCall, PoolSettings, WorkerPool,
};
use tokio::sync::mpsc;

use crate::gate::gated;
use crate::helpers::eventually;

#[tokio::test]
async fn operations_are_listed_with_schemas_and_noop_and_echo_are_always_there() {
    let about = Operation::new("add").description("Adds two numbers.").idempotent();
    let operations = Operations::stateless().add(about, |(), (a, b): (u32, u32)| Ok::<u32, String>(a + b));
    let pool = WorkerPool::threads("maths", operations, PoolSettings::default()).await.unwrap();
    let listed = pool.list_operations();
    let names: Vec<_> = listed.iter().map(|operation| operation.name.as_str()).collect();
    assert_eq!(names, ["add", "echo", "noop"]);
    assert_eq!(listed[0].description, "Adds two numbers.");
    assert_eq!(listed[0].arguments.as_ref().unwrap()["type"], "array");
    assert_eq!(listed[0].result.as_ref().unwrap()["type"], "integer");
    assert!(listed[0].idempotent);
    let echo: String = pool.call("echo", "hello").await.unwrap();
    assert_eq!(echo, "hello");
}

#[tokio::test]
async fn what_cannot_be_called_is_refused_with_what_can() {
    let (pool, _) = gated(|_| ()).await;
    let error = pool.call::<_, ()>("nonsense", &()).await.unwrap_err();
    let ErrorKind::UnknownOperation { known } = error.kind else { panic!("{error}") };
    assert!(known.contains(&"double".to_owned()), "{known:?}");
    let error = pool.call::<_, u64>("double", "two").await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::BadArguments { .. }), "{error}");
    let error = pool.call::<_, String>("double", &2).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::BadResult { .. }), "{error}");
    let error = pool.call::<_, ()>("fail", "no").await.unwrap_err();
    let chain = Vec::new();
    assert_eq!(error.kind, ErrorKind::Handler { message: "no".into(), chain, data: None });
    let stats = pool.stats();
    assert_eq!((stats.calls.done, stats.calls.failed), (0, 4));
    assert_eq!(stats.operations["double"].failed, 2);
    assert!(!stats.operations.contains_key("nonsense"), "callers do not choose what is counted");
}

#[tokio::test]
async fn arguments_and_results_have_a_largest_size() {
    let operations = Operations::stateless().add_bytes("grow", |(), _: &PoolCall, bytes: Vec<u8>| {
        Ok::<_, String>([bytes.as_slice(), &bytes].concat())
    });
    let settings = PoolSettings { max_frame: 100, ..PoolSettings::default() };
    let pool = WorkerPool::threads("small", operations, settings).await.unwrap();
    let grow = async |bytes: usize| {
        pool.call_raw("grow", CallPayload::bytes(vec![1; bytes]), CallOptions::default()).await
    };
    assert_eq!(grow(50).await.unwrap().into_bytes(), vec![1; 100]);
    let too_large = |bytes| ErrorKind::TooLarge { bytes, limit: 100 };
    assert_eq!(grow(60).await.unwrap_err().kind, too_large(120));
    assert_eq!(grow(101).await.unwrap_err().kind, too_large(101));
}

#[tokio::test]
async fn a_forgotten_call_is_done_and_counted_and_nobody_waits() {
    let (pool, gate) = gated(|_| ()).await;
    pool.call_detached("gate", &1_u64).unwrap();
    pool.call_detached("fail", "in vain").unwrap();
    gate.wait_for(1).await;
    eventually("the failure is counted", || pool.stats().operations["fail"].failed == 1).await;
    gate.open();
    eventually("so is the other", || pool.stats().operations["gate"].done == 1).await;
    let error = pool.call_detached("nonsense", &()).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::UnknownOperation { .. }), "{error}");
    pool.close(std::time::Duration::from_secs(30)).await;
    assert_eq!(pool.call_detached("gate", &2_u64).unwrap_err().kind, ErrorKind::ShuttingDown);
}

#[tokio::test]
async fn many_calls_come_back_in_order_so_many_at_a_time_and_lazily() {
    let (pool, gate) = gated(|settings| (settings.max, settings.queue) = (8, 1)).await;
    let taken = AtomicUsize::new(0);
    let numbers = (0..100_u64).inspect(|_| _ = taken.fetch_add(1, Ordering::SeqCst));
    let mut results = Box::pin(pool.call_many::<_, u64, _>("gate", numbers, 3));
    assert!(futures_util::poll!(results.next()).is_pending());
    gate.wait_for(3).await;
    assert!(futures_util::poll!(results.next()).is_pending());
    assert_eq!(taken.load(Ordering::SeqCst), 3);
    gate.open();
    let results: Vec<u64> = results.try_collect().await.unwrap();
    assert_eq!(results, (0..100).collect::<Vec<_>>());
    assert!(gate.most_inside() <= 3);
}

#[tokio::test]
async fn many_calls_wait_where_others_fill_the_queue_and_may_come_from_a_stream() {
    let (pool, _) = gated(|settings| (settings.min, settings.max, settings.queue) = (1, 1, 1)).await;
    let numbers = stream::iter(0..500_u64);
    let twice = pool.call_many_from::<_, u64, _>("double", numbers, 50, CallOptions::default());
    let twice: Vec<u64> = twice.try_collect().await.unwrap();
    assert_eq!(twice, (0..500).map(|n| n * 2).collect::<Vec<_>>());
}

#[tokio::test]
async fn words_on_how_far_a_call_is_reach_a_listener_and_never_wait_for_one() {
    let operations = Operations::stateless().add_with("steps", |(), call: &PoolCall, steps: u32| {
        (0..steps).for_each(|step| call.progress(&step));
        Ok::<_, String>(steps)
    });
    let pool = WorkerPool::threads("steps", operations, PoolSettings::default()).await.unwrap();
    let (sender, mut steps) = mpsc::channel(3);
    let options = CallOptions::default().progress(sender);
    let done: u32 = pool.call_with("steps", &1_000, options).await.unwrap();
    assert_eq!(done, 1_000);
    let mut heard = Vec::new();
    while let Some(step) = steps.recv().await {
        heard.push(step.read::<u32>().unwrap());
    }
    assert_eq!(heard, [0, 1, 2], "what there was room for");
}

#[tokio::test]
async fn each_worker_keeps_its_state_from_call_to_call() {
    let made = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&made);
    let init = move || {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(0_u64)
    };
    let operations = Operations::new(init).add("count", |seen: &mut u64, step: u64| {
        *seen += step;
        Ok::<_, String>(*seen)
    });
    let pool = WorkerPool::builder("state").workers(1, 1).threads(operations).await.unwrap();
    let counts = pool.call_many::<_, u64, _>("count", [1_u64, 2, 3], 1);
    let counts: Vec<u64> = counts.try_collect().await.unwrap();
    assert_eq!(counts, [1, 3, 6]);
    assert_eq!(made.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_closure_runs_on_a_worker_and_may_bring_anything_back() {
    let (pool, _) = gated(|_| ()).await;
    let name = pool.run_blocking(|| std::thread::current().name().map(str::to_owned)).await.unwrap();
    assert!(name.is_some_and(|name| name.starts_with("gated-")));
    assert_eq!(pool.stats().calls.done, 1);
}

#[tokio::test]
async fn statistics_can_be_sent_as_json() {
    let (pool, _) = gated(|_| ()).await;
    pool.call::<_, ()>("noop", &()).await.unwrap();
    let stats = serde_json::to_value(pool.stats()).unwrap();
    assert_eq!((&stats["done"], &stats["operations"]["noop"]["done"]), (&1.into(), &1.into()));
    let health = serde_json::to_value(pool.health()).unwrap();
    assert_eq!(health, serde_json::json!({"status": "ok"}));
}
