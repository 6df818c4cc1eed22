//! Concurrent requests of one process.

use std::collections::BTreeSet;
use std::sync::Arc;

use longshore_core::permits::{AcquireRequest, AcquireResult};
use longshore_testkit::servers::RedisPersistence;
use tokio::task::JoinSet;

use crate::helpers::{LONG, ask, granted, open, pool, server, until_granted, wait};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_ask_together_get_what_there_is_and_no_more() {
    let server = server(RedisPersistence::Always).await;
    let permits = open(&server.url());
    let mut asking = JoinSet::new();
    for _ in 0..40 {
        let permits = Arc::clone(&permits);
        asking.spawn(async move {
            let ask = AcquireRequest { max: 10, ..ask(LONG) };
            (ask.id, permits.acquire(pool(), &ask).await.unwrap())
        });
    }
    let (mut fences, mut held) = (BTreeSet::new(), Vec::new());
    for (id, answer) in asking.join_all().await {
        match answer {
            AcquireResult::Granted(grant) => {
                held.push(id);
                fences.insert(grant.fence);
            }
            other => assert_eq!(other, AcquireResult::Full),
        }
    }
    assert_eq!((held.len(), fences.len()), (10, 10));
    let mut releasing = JoinSet::new();
    for id in held.iter().chain(&held).copied() {
        let permits = Arc::clone(&permits);
        releasing.spawn(async move { permits.release(pool(), &[id], false).await.unwrap() });
    }
    releasing.join_all().await;
    let stats = permits.stats(pool()).await.unwrap().unwrap();
    assert_eq!((stats.in_use, stats.acquired, stats.holders.len()), (0, 10, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_together_are_served_one_after_the_other() {
    let server = server(RedisPersistence::Always).await;
    let permits = open(&server.url());
    let mine = ask(LONG);
    granted(&*permits, &mine).await;
    let mut waiting = JoinSet::new();
    for turn in 0..30 {
        let permits = Arc::clone(&permits);
        waiting.spawn(async move {
            let ask = wait(LONG);
            if turn % 3 == 0 {
                // Abandoned in flight, or before it was sent.
                let given_up = permits.acquire(pool(), &ask);
                tokio::select! {
                    biased;
                    _ = given_up => {}
                    () = tokio::task::yield_now() => {}
                }
                permits.release(pool(), &[ask.id], false).await.unwrap();
                return;
            }
            until_granted(&*permits, &ask).await;
            permits.release(pool(), &[ask.id], false).await.unwrap();
        });
    }
    permits.release(pool(), &[mine.id], false).await.unwrap();
    waiting.join_all().await;
    let stats = permits.stats(pool()).await.unwrap().unwrap();
    assert_eq!((stats.in_use, stats.waiting.len(), stats.holders.len()), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_that_is_given_back_is_handed_to_the_next_if_that_is_awake() {
    let server = server(RedisPersistence::Always).await;
    let permits = open(&server.url());
    let mine = ask(LONG);
    granted(&*permits, &mine).await;
    let (first, second) = (wait(LONG), wait(LONG));
    for waiter in [&first, &second] {
        permits.acquire(pool(), waiter).await.unwrap();
    }
    let busy = || async {
        let stats = permits.stats(pool()).await.unwrap().unwrap();
        (stats.in_use, stats.waiting.len())
    };
    // Both listen: the first gets the permit, and is notified.
    let mut turns = [&first, &second].map(|waiter| Box::pin(permits.wait_for_wakeup(pool(), waiter.id)));
    for (turn, waiter) in turns.iter_mut().zip([&first, &second]) {
        // A late subscription wakes all waiters once.
        while futures_util::poll!(turn.as_mut()).is_ready() {
            *turn = Box::pin(permits.wait_for_wakeup(pool(), waiter.id));
        }
    }
    permits.release(pool(), &[mine.id], false).await.unwrap();
    assert_eq!(busy().await, (1, 1));
    let [turn, other] = turns;
    turn.await;
    granted(&*permits, &first).await;
    // The second asks but does not listen: it is not granted a permit that it might not learn of.
    drop(other);
    assert!(matches!(permits.acquire(pool(), &second).await.unwrap(), AcquireResult::Waiting { .. }));
    permits.release(pool(), &[first.id], false).await.unwrap();
    assert_eq!(busy().await, (0, 1));
    granted(&*permits, &second).await;
}

/// More values than Lua passes to one command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_permits_of_one_process_are_renewed_and_released_together() {
    const PERMITS: u32 = 9_000;
    let server = server(RedisPersistence::EverySecond).await;
    let permits = open(&server.url());
    let mut acquiring = JoinSet::new();
    for _ in 0..PERMITS {
        let permits = Arc::clone(&permits);
        acquiring.spawn(async move {
            let ask = AcquireRequest { max: PERMITS, ..ask(LONG) };
            granted(&*permits, &ask).await;
            ask.id
        });
    }
    let ids = acquiring.join_all().await;
    assert_eq!(permits.renew(pool(), &ids, LONG).await.unwrap(), []);
    // A waiter makes the release a batched one.
    let waiter = wait(LONG);
    let waiting = AcquireRequest { max: PERMITS, weight: 1, ..waiter };
    permits.acquire(pool(), &waiting).await.unwrap();
    permits.release(pool(), &ids, false).await.unwrap();
    until_granted(&*permits, &waiting).await;
    assert_eq!(permits.stats(pool()).await.unwrap().unwrap().in_use, 1);
    assert_eq!(permits.renew(pool(), &ids, LONG).await.unwrap().len(), ids.len(), "all are released");
}
