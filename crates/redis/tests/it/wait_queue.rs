//! The wait queue, and which waiters are notified.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::permits::{Answer, Ask, Otherwise, Permits};
use longshore_testkit::servers::Remembers;

use crate::helpers::{LONG, TEST_TIMEOUT, ask, granted, open, pool, server, until_granted, wait};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_process_died_is_passed_soon() {
    let server = server(Remembers::Always).await;
    let (permits, dead) = (open(&server.url()), open(&server.url()));
    let (mine, ghosts, next) = (ask(LONG), [wait(LONG), wait(LONG), wait(LONG)], wait(LONG));
    granted(&*permits, &mine).await;
    for ghost in &ghosts {
        dead.ask(pool(), ghost).await.unwrap();
    }
    permits.ask(pool(), &next).await.unwrap();
    drop(dead);
    until_channel_count(&server, 1).await;
    permits.release(pool(), &[mine.id], false).await.unwrap();
    // Its place would be valid for ten minutes.
    let turn = tokio::time::timeout(TEST_TIMEOUT, until_granted(&*permits, &next));
    turn.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_turn_is_told_once_and_to_nobody_else() {
    let server = server(Remembers::Always).await;
    let (first, second) = (open(&server.url()), open(&server.url()));
    let (mine, a, b) = (ask(LONG), wait(LONG), wait(LONG));
    granted(&*first, &mine).await;
    first.ask(pool(), &a).await.unwrap();
    second.ask(pool(), &b).await.unwrap();
    // Consume the wake-ups of the subscription.
    for (permits, id) in [(&first, a.id), (&second, b.id)] {
        while tokio::time::timeout(Duration::from_millis(500), permits.turn(pool(), id))
            .await
            .is_ok()
        {}
    }
    first.release(pool(), &[mine.id], false).await.unwrap();
    first.turn(pool(), a.id).await;
    // Releasing the same permit again, and reading stats, notifies no waiter again.
    second.release(pool(), &[mine.id], false).await.unwrap();
    second.stats(pool()).await.unwrap();
    let silence = |permits: &Arc<dyn Permits>, id| {
        let permits = Arc::clone(permits);
        async move {
            tokio::time::timeout(Duration::from_millis(100), permits.turn(pool(), id))
                .await
                .is_err()
        }
    };
    assert!(silence(&first, a.id).await && silence(&second, b.id).await);
    granted(&*first, &a).await;
    first.release(pool(), &[a.id], false).await.unwrap();
    second.turn(pool(), b.id).await;
    granted(&*second, &b).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sleepers_at_the_head_do_not_make_those_behind_them_wake_each_other() {
    let server = server(Remembers::Always).await;
    let permits = open(&server.url());
    let waiters: Vec<Ask> = (0..3).map(|_| wait(LONG)).collect();
    permits.resize(pool(), 0).await.unwrap();
    permits.resize(pool(), 1).await.unwrap();
    let mine = ask(LONG);
    granted(&*permits, &mine).await;
    for waiter in &waiters {
        permits.ask(pool(), waiter).await.unwrap();
    }
    permits.resize(pool(), 4).await.unwrap();
    // The first does not react. The others ask whenever they are notified.
    let mut asks = 0;
    for waiter in [&waiters[1], &waiters[2]].into_iter().cycle() {
        let turn = permits.turn(pool(), waiter.id);
        if tokio::time::timeout(Duration::from_millis(100), turn).await.is_err() {
            break;
        }
        let answer = permits.ask(pool(), waiter).await.unwrap();
        assert!(matches!(answer, Answer::Waiting { .. }), "it is not first: {answer:?}");
        asks += 1;
        assert!(asks < 10, "they wake each other");
    }
    for waiter in &waiters {
        granted(&*permits, waiter).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_became_too_heavy_blocks_nobody() {
    let server = server(Remembers::Always).await;
    let permits = open(&server.url());
    let mine = Ask { max: 4, ..ask(LONG) };
    granted(&*permits, &mine).await;
    let (heavy, light) = (Ask { weight: 4, ..wait(LONG) }, wait(LONG));
    permits.ask(pool(), &heavy).await.unwrap();
    permits.ask(pool(), &light).await.unwrap();
    permits.resize(pool(), 3).await.unwrap();
    permits.turn(pool(), heavy.id).await;
    assert_eq!(permits.ask(pool(), &heavy).await.unwrap(), Answer::TooHeavy { max: 3 });
    permits.turn(pool(), light.id).await;
    granted(&*permits, &light).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stays_behind_of_those_who_are_gone() {
    let server = server(Remembers::Always).await;
    let permits = open(&server.url());
    let short = Duration::from_millis(20);
    granted(&*permits, &ask(short)).await;
    for _ in 0..50 {
        let asked = Ask { otherwise: Otherwise::Wait(short), ..wait(short) };
        permits.ask(pool(), &asked).await.unwrap();
        permits.may_alert(pool(), "full", short).await.unwrap();
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
