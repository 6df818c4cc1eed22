//! Timeouts and cancellations.

use std::time::Duration;

use longshore_pool::{
    CallOptions, CancelEffect, ErrorKind, OnTimeout, Operation, Operations, PoolCall, PoolSettings,
    WorkerPool,
};
use tokio_util::sync::CancellationToken;

use crate::gate::gated;
use crate::helpers::eventually;

fn short_timeout() -> CallOptions {
    CallOptions::default().timeout(Duration::from_millis(20))
}

#[tokio::test]
async fn a_call_that_takes_too_long_releases_its_caller_and_its_thread_is_replaced() {
    let (pool, gate) = gated(|settings| (settings.min, settings.max) = (1, 1)).await;
    let error = pool.call_with::<_, u64>("gate", &1_u64, short_timeout()).await.unwrap_err();
    let after = Duration::from_millis(20);
    assert_eq!(error.kind, ErrorKind::Timeout { after, effect: CancelEffect::LeftRunning });
    assert_eq!(error.worker.map(|worker| worker.id), Some(1));
    assert_eq!(pool.stats().abandoned, 1);
    assert!(pool.health().is_serving() && pool.health() != longshore_pool::Health::Ok);
    // Another thread runs the next call, while the first is still at the gate.
    let twice: u64 = pool.call("double", &4_u64).await.unwrap();
    assert_eq!(twice, 8);
    gate.open();
    eventually("the thread is gone", || pool.stats().abandoned == 0).await;
    eventually("its end is counted", || pool.stats().ended.get("timeout") == Some(&1)).await;
    assert_eq!((pool.stats().calls.timeouts, pool.stats().workers), (1, 1));
}

#[tokio::test]
async fn no_more_threads_are_given_up_than_may_be() {
    let (pool, gate) = gated(|settings| {
        (settings.min, settings.max, settings.max_abandoned) = (1, 1, 1);
    })
    .await;
    for id in 0..2_u64 {
        // The replacement of an abandoned thread may take longer to start than the timeout.
        loop {
            let error = pool.call_with::<_, u64>("gate", &id, short_timeout()).await.unwrap_err();
            match error.kind {
                ErrorKind::Timeout { effect: CancelEffect::LeftRunning, .. } => break,
                ErrorKind::Timeout { effect: CancelEffect::NotStarted, .. } => {}
                other => panic!("{other:?}"),
            }
        }
        gate.wait_for(usize::try_from(id).unwrap() + 1).await;
    }
    assert_eq!((pool.stats().abandoned, pool.stats().busy), (1, 1));
    let error = pool.call_with::<_, ()>("noop", &(), short_timeout()).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Timeout { effect: CancelEffect::NotStarted, .. }), "{error}");
    gate.open();
    pool.call::<_, ()>("noop", &()).await.unwrap();
    eventually("all is well again", || pool.health() == longshore_pool::Health::Ok).await;
}

#[tokio::test]
async fn a_call_may_also_keep_its_thread_until_it_is_done() {
    let (pool, gate) = gated(|settings| {
        (settings.min, settings.max, settings.on_timeout) = (1, 1, OnTimeout::Leave);
    })
    .await;
    pool.call_with::<_, u64>("gate", &1_u64, short_timeout()).await.unwrap_err();
    assert_eq!((pool.stats().abandoned, pool.stats().busy), (0, 1));
    gate.open();
    pool.call::<_, ()>("noop", &()).await.unwrap();
    assert!(pool.stats().ended.is_empty(), "the same thread did it");
}

#[tokio::test]
async fn an_operation_has_a_time_limit_of_its_own_unless_the_caller_says_otherwise() {
    let (limit, gate) = (Duration::from_millis(30), crate::gate::Gate::default());
    let own = gate.clone();
    let operations =
        Operations::stateless().add(Operation::new("slow").timeout(limit), move |(), id: u64| {
            own.pass(id);
            Ok::<_, String>(())
        });
    let pool = WorkerPool::threads("slow", operations, PoolSettings::default()).await.unwrap();
    let error = pool.call::<_, ()>("slow", &1_u64).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout { after: limit, effect: CancelEffect::LeftRunning });
    let (caller, patient) = (pool.clone(), CallOptions::default().timeout(Duration::MAX));
    let call =
        tokio::task::JoinSet::from_iter([
            async move { caller.call_with::<_, ()>("slow", &2_u64, patient).await },
        ]);
    gate.wait_for(2).await;
    gate.open();
    call.join_all().await.pop().unwrap().unwrap();
}

#[tokio::test]
async fn a_call_taken_back_can_see_it_and_its_worker_is_kept() {
    let gate = crate::gate::Gate::default();
    let own = gate.clone();
    let operations = Operations::stateless().add_with("patient", move |(), call: &PoolCall, id: u64| {
        own.pass(id);
        while !call.is_cancelled() {
            std::thread::yield_now();
        }
        Ok::<_, String>(())
    });
    let settings = longshore_pool::PoolSettings::default();
    let pool = WorkerPool::threads("patient", operations, settings).await.unwrap();
    gate.open();
    let token = CancellationToken::new();
    let options = CallOptions::default().cancelled_by(token.clone());
    let call = pool.call_with::<_, ()>("patient", &1_u64, options);
    let cancel = async {
        gate.wait_for(1).await;
        token.cancel();
    };
    let (answer, ()) = tokio::join!(call, cancel);
    let kind = answer.unwrap_err().kind;
    assert_eq!(kind, ErrorKind::Cancelled { effect: CancelEffect::LeftRunning });
    eventually("the worker is free again", || pool.stats().busy == 0).await;
    assert_eq!((pool.stats().abandoned, pool.stats().ended.len()), (0, 0));
}
