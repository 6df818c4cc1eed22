//! The wait queue, and which waiters are notified.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::permits::{AcquireRequest, AcquireResult, IfFull, Permits};
use longshore_testkit::servers::RedisPersistence;

use crate::helpers::{LONG, TEST_TIMEOUT, ask, granted, open, pool, server, until_granted, wait};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_process_died_is_passed_soon() {
    let server = server(RedisPersistence::Always).await;
    let (permits, dead) = (open(&server.url()), open(&server.url()));
    let (mine, ghosts, next) = (ask(LONG), [wait(LONG), wait(LONG), wait(LONG)], wait(LONG));
    granted(&*permits, &mine).await;
    for ghost in &ghosts {
        dead.acquire(pool(), ghost).await.unwrap();
    }
    permits.acquire(pool(), &next).await.unwrap();
    drop(dead);
    until_channel_count(&server, 1).await;
    permits.release(pool(), &[mine.id], false).await.unwrap();
    // Its place would be valid for ten minutes.
    let turn = tokio::time::timeout(TEST_TIMEOUT, until_granted(&*permits, &next));
    turn.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_turn_is_told_once_and_to_nobody_else() {
    let server = server(RedisPersistence::Always).await;
    let (first, second) = (open(&server.url()), open(&server.url()));
    let (mine, a, b) = (ask(LONG), wait(LONG), wait(LONG));
    granted(&*first, &mine).await;
    first.acquire(pool(), &a).await.unwrap();
    second.acquire(pool(), &b).await.unwrap();
    // Consume the wake-ups of the subscription.
    for (permits, id) in [(&first, a.id), (&second, b.id)] {
        while tokio::time::timeout(Duration::from_millis(500), permits.wait_for_wakeup(pool(), id))
            .await
            .is_ok()
        {}
    }
    first.release(pool(), &[mine.id], false).await.unwrap();
    first.wait_for_wakeup(pool(), a.id).await;
    // Releasing the same permit again, and reading stats, notifies no waiter again.
    second.release(pool(), &[mine.id], false).await.unwrap();
    second.stats(pool()).await.unwrap();
    let silence = |permits: &Arc<dyn Permits>, id| {
        let permits = Arc::clone(permits);
        async move {
            tokio::time::timeout(Duration::from_millis(100), permits.wait_for_wakeup(pool(), id))
                .await
                .is_err()
        }
    };
    assert!(silence(&first, a.id).await && silence(&second, b.id).await);
    granted(&*first, &a).await;
    first.release(pool(), &[a.id], false).await.unwrap();
    second.wait_for_wakeup(pool(), b.id).await;
    granted(&*second, &b).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sleepers_at_the_head_do_not_make_those_behind_them_wake_each_other() {
    let server = server(RedisPersistence::Always).await;
    let permits = open(&server.url());
    let waiters: Vec<AcquireRequest> = (0..3).map(|_| wait(LONG)).collect();
    permits.resize(pool(), 0).await.unwrap();
    permits.resize(pool(), 1).await.unwrap();
    let mine = ask(LONG);
    granted(&*permits, &mine).await;
    for waiter in &waiters {
        permits.acquire(pool(), waiter).await.unwrap();
    }
    permits.resize(pool(), 4).await.unwrap();
    // The first does not react. The others ask whenever they are notified.
    let mut asks = 0;
    for waiter in [&waiters[1], &waiters[2]].into_iter().cycle() {
        let turn = permits.wait_for_wakeup(pool(), waiter.id);
        if tokio::time::timeout(Duration::from_millis(100), turn).await.is_err() {
            break;
        }
        let answer = permits.acquire(pool(), waiter).await.unwrap();
        assert!(matches!(answer, AcquireResult::Waiting { .. }), "it is not first: {answer:?}");
        asks += 1;
        assert!(asks < 10, "they wake each other");
    }
    for waiter in &waiters {
        granted(&*permits, waiter).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_became_too_heavy_blocks_nobody() {
    let server = server(RedisPersistence::Always).await;
    let permits = open(&server.url());
    let mine = AcquireRequest { max: 4, ..ask(LONG) };
    granted(&*permits, &mine).await;
    let (heavy, light) = (AcquireRequest { weight: 4, ..wait(LONG) }, wait(LONG));
    permits.acquire(pool(), &heavy).await.unwrap();
    permits.acquire(pool(), &light).await.unwrap();
    permits.resize(pool(), 3).await.unwrap();
    permits.wait_for_wakeup(pool(), heavy.id).await;
    assert_eq!(permits.acquire(pool(), &heavy).await.unwrap(), AcquireResult::TooHeavy { max: 3 });
    permits.wait_for_wakeup(pool(), light.id).await;
    granted(&*permits, &light).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stays_behind_of_those_who_are_gone() {
    let server = server(RedisPersistence::Always).await;
    let permits = open(&server.url());
    let short = Duration::from_millis(20);
    granted(&*permits, &ask(short)).await;
    for _ in 0..50 {
        let asked = AcquireRequest { if_full: IfFull::Wait(short), ..wait(short) };
        permits.acquire(pool(), &asked).await.unwrap();
        permits.acquire_alert(pool(), "full", short).await.unwrap();
    }
    let keys = || tokio::task::block_in_place(|| server.run(&["KEYS", "*"]).unwrap());
    let until = tokio::time::Instant::now() + TEST_TIMEOUT;
    loop {
        permits.stats(pool()).await.unwrap();
        let mut keys: Vec<String> = keys().lines().map(str::to_owned).collect();
        keys.sort();
        if keys == ["longshore:pools", "{longshore:pool:render}:pool"] {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "{keys:?}");
        tokio::time::sleep(short).await;
    }
}

/// Waits until the server has noticed that a process is gone: only `left` channels remain.
async fn until_channel_count(server: &longshore_testkit::servers::PrivateRedis, left: usize) {
    let until = tokio::time::Instant::now() + TEST_TIMEOUT;
    loop {
        let channels = || server.run(&["PUBSUB", "CHANNELS"]).unwrap();
        if tokio::task::block_in_place(channels).lines().count() == left {
            return;
        }
        assert!(tokio::time::Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
