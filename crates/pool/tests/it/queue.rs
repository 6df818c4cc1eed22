//! The queue: its limit, and the order of calls.

use std::time::Duration;

use longshore_pool::{CallError, CallOptions, CancelEffect, ErrorKind, WhenQueueFull};
use tokio::task::JoinSet;

use crate::gate::gated;
use crate::helpers::eventually;

#[tokio::test]
async fn a_full_queue_refuses_at_once_with_depth_and_limit() {
    let (pool, gate) = gated(|settings| (settings.min, settings.max, settings.queue) = (1, 1, 2)).await;
    let mut calls = JoinSet::new();
    for id in 0..3_u64 {
        let pool = pool.clone();
        calls.spawn(async move { pool.call::<_, u64>("gate", &id).await });
    }
    eventually("two wait", || pool.stats().queue_depth == 2).await;
    let error = pool.call::<_, u64>("gate", &9).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Full { depth: 2, limit: 2 });
    let forgotten = pool.call_detached("gate", &9).unwrap_err();
    assert_eq!(forgotten.kind, ErrorKind::Full { depth: 2, limit: 2 });
    gate.open();
    assert!(calls.join_all().await.into_iter().all(|answer| answer.is_ok()));
    let stats = pool.stats();
    assert_eq!((stats.calls.done, stats.calls.refused), (3, 2));
    assert_eq!(stats.operations["gate"], stats.calls);
}

#[tokio::test]
async fn callers_who_wait_for_a_place_are_served_in_the_order_in_which_they_came() {
    let (pool, gate) = gated(|settings| {
        (settings.min, settings.max, settings.queue) = (1, 1, 2);
        settings.when_full = WhenQueueFull::Wait;
    })
    .await;
    let mut calls = JoinSet::new();
    for id in 0..8_u64 {
        let caller = pool.clone();
        calls.spawn(async move { caller.call::<_, u64>("gate", &id).await });
        eventually("it is in its place", || {
            let stats = pool.stats();
            (stats.busy + stats.queue_depth + stats.in_line) as u64 == id + 1
        })
        .await;
    }
    assert_eq!(pool.stats().in_line, 5);
    gate.open();
    assert!(calls.join_all().await.into_iter().all(|answer| answer.is_ok()));
    assert_eq!(gate.arrived(), (0..8).collect::<Vec<_>>());
}

#[tokio::test]
async fn urgent_calls_go_before_others_that_wait() {
    let (pool, gate) = gated(|settings| (settings.min, settings.max) = (1, 1)).await;
    let mut calls = JoinSet::new();
    for (place, id) in [5_u64, 9, 1, 5].into_iter().enumerate() {
        let caller = pool.clone();
        let options = CallOptions::default().priority(u8::try_from(id).unwrap());
        calls.spawn(async move { caller.call_with::<_, u64>("gate", &id, options).await });
        eventually("it is in its place", || {
            let stats = pool.stats();
            stats.busy + stats.queue_depth == place + 1
        })
        .await;
    }
    gate.open();
    assert!(calls.join_all().await.into_iter().all(|answer| answer.is_ok()));
    assert_eq!(gate.arrived(), [5, 1, 5, 9]);
}

#[tokio::test]
async fn a_queued_call_whose_time_is_over_is_never_begun() {
    let (pool, gate) = gated(|settings| (settings.min, settings.max) = (1, 1)).await;
    pool.call_detached("gate", &0_u64).unwrap();
    gate.wait_for(1).await;
    let options = CallOptions::default().timeout(Duration::from_millis(10));
    let error = pool.call_with::<_, u64>("gate", &1_u64, options).await.unwrap_err();
    let after = Duration::from_millis(10);
    assert_eq!(error.kind, ErrorKind::Timeout { after, effect: CancelEffect::NotStarted });
    assert_eq!((pool.stats().queue_depth, pool.stats().abandoned), (0, 0));
    gate.open();
    pool.call::<_, ()>("noop", &()).await.unwrap();
    assert_eq!(gate.arrived(), [0]);
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_the_line_but_not_the_queue() {
    let (pool, gate) = gated(|settings| {
        (settings.min, settings.max, settings.queue) = (1, 1, 1);
        settings.when_full = WhenQueueFull::Wait;
    })
    .await;
    let mut calls = JoinSet::new();
    for id in 0..3_u64 {
        let caller = pool.clone();
        calls.spawn(async move { caller.call::<_, u64>("gate", &id).await });
        eventually("it is in its place", || {
            let stats = pool.stats();
            (stats.busy + stats.queue_depth + stats.in_line) as u64 == id + 1
        })
        .await;
    }
    calls.shutdown().await;
    eventually("the line is empty", || pool.stats().in_line == 0).await;
    assert_eq!(pool.stats().queue_depth, 1);
    assert_eq!(pool.stats().calls.failed, 3, "callers that went away are counted");
    gate.open();
    pool.call::<_, ()>("noop", &()).await.unwrap();
    assert_eq!(gate.arrived(), [0, 1]);
}

#[tokio::test]
async fn a_call_can_be_taken_back_with_its_caller() {
    let (pool, gate) = gated(|settings| (settings.min, settings.max) = (1, 1)).await;
    pool.call_detached("gate", &0_u64).unwrap();
    gate.wait_for(1).await;
    let options = CallOptions::default().cancel_on_drop();
    let mut call = Box::pin(pool.call_with::<_, u64>("gate", &1_u64, options));
    assert!(futures_util::poll!(&mut call).is_pending());
    assert_eq!(pool.stats().queue_depth, 1);
    drop(call);
    assert_eq!(pool.stats().queue_depth, 0);
    gate.open();
    pool.call::<_, ()>("noop", &()).await.unwrap();
    assert_eq!(gate.arrived(), [0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_calls_at_once_each_get_their_own_answer() {
    let (pool, _) = gated(|settings| (settings.max, settings.queue) = (8, 10_000)).await;
    let mut calls = JoinSet::new();
    for n in 0..10_000_u64 {
        let pool = pool.clone();
        calls.spawn(async move { Ok::<_, CallError>((n, pool.call::<_, u64>("double", &n).await?)) });
    }
    while let Some(answer) = calls.join_next().await {
        let (n, twice) = answer.unwrap().unwrap();
        assert_eq!(twice, n * 2);
    }
    let stats = pool.stats();
    assert_eq!((stats.calls.done, stats.busy, stats.queue_depth), (10_000, 0, 0));
    assert_eq!((stats.wait.count, stats.run.count), (10_000, 10_000));
}

#[tokio::test]
async fn the_event_loop_goes_on_while_every_worker_is_held() {
    let (pool, gate) = gated(|settings| (settings.max, settings.queue) = (8, 300)).await;
    let mut calls = JoinSet::new();
    for id in 0..200_u64 {
        let pool = pool.clone();
        calls.spawn(async move { pool.call::<_, u64>("gate", &id).await });
    }
    gate.wait_for(8).await;
    // If a call had blocked this thread, none of this would run.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!((pool.stats().busy, pool.stats().queue_depth), (8, 192));
    gate.open();
    assert!(calls.join_all().await.into_iter().all(|answer| answer.is_ok()));
}
