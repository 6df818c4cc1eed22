//! After a data loss nothing is granted while lost leases may still be valid.

use std::time::Duration;

use longshore_core::PoolName;
use longshore_core::permits::AcquireResult;
use longshore_testkit::servers::RedisPersistence;
use tokio::task::block_in_place;
use tokio::time::Instant;

use crate::helpers::{
    LONG, TEST_TIMEOUT, ask, granted, open, pool, retry_until_ok, server, until_granted, wait,
};

/// Long enough to restart a server within it.
const LEASE: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_that_forgets_gives_nothing_until_leases_have_run_out() {
    let mut server = server(RedisPersistence::Nothing).await;
    let permits = open(&server.url());
    // The server is younger than a lease itself.
    until_granted(&*permits, &wait(LEASE)).await;
    let mine = permits.stats(pool()).await.unwrap().unwrap().holders[0].clone();
    let held = Instant::now();
    assert_eq!(permits.renew(pool(), &[mine.id], LEASE).await.unwrap(), []);
    block_in_place(|| server.restart()).unwrap();
    // Neither a client that knew the pool nor another one is granted a permit.
    let other_client = open(&server.url());
    let asked = ask(LEASE);
    let answer = retry_until_ok(|| other_client.acquire(pool(), &asked)).await;
    assert!(answer == AcquireResult::Full || held.elapsed() > LEASE, "{answer:?}");
    let other = wait(LEASE);
    let answer = retry_until_ok(|| permits.acquire(pool(), &other)).await;
    assert!(matches!(answer, AcquireResult::Waiting { .. }) || held.elapsed() > LEASE, "{answer:?}");
    let stats = other_client.stats(pool()).await.unwrap().unwrap();
    assert!(stats.quarantine.is_some_and(|left| left < LEASE * 2) || held.elapsed() > LEASE);
    // The holder learns that its lease is lost.
    assert_eq!(permits.renew(pool(), &[mine.id], LEASE).await.unwrap(), [mine.id]);
    assert!(until_granted(&*permits, &other).await > held + LEASE);
    let stats = other_client.stats(pool()).await.unwrap().unwrap();
    assert_eq!((stats.quarantine, stats.in_use), (None, 1));
    assert!(stats.holders[0].fence > mine.fence, "fences go on: {stats:?} {mine:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_flushed_gives_nothing_until_leases_have_run_out() {
    let server = server(RedisPersistence::Always).await;
    let permits = open(&server.url());
    let first = granted(&*permits, &ask(LEASE)).await;
    let held = Instant::now();
    block_in_place(|| server.run(&["FLUSHALL"])).unwrap();
    let second = wait(LEASE);
    let answer = permits.acquire(pool(), &second).await.unwrap();
    assert!(matches!(answer, AcquireResult::Waiting { .. }) || held.elapsed() > LEASE, "{answer:?}");
    assert!(until_granted(&*permits, &second).await >= held + LEASE);
    let stats = permits.stats(pool()).await.unwrap().unwrap();
    assert!(stats.holders[0].fence > first.fence, "fences go on");
    let pools = permits.pools(None).await.unwrap();
    assert_eq!((&pools[0].0, pools.len()), (pool(), 1), "it is in the list again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_notices_a_flush_for_those_who_never_knew_the_pool() {
    let server = server(RedisPersistence::Always).await;
    let (holder, other_client) = (open(&server.url()), open(&server.url()));
    let mine = ask(LONG);
    granted(&*holder, &mine).await;
    block_in_place(|| server.run(&["FLUSHALL"])).unwrap();
    assert_eq!(holder.renew(pool(), &[mine.id], LONG).await.unwrap(), [mine.id]);
    assert_eq!(other_client.acquire(pool(), &ask(LONG)).await.unwrap(), AcquireResult::Full);
    let stats = other_client.stats(pool()).await.unwrap().unwrap();
    assert!(stats.quarantine.is_some_and(|left| left > LONG / 2), "{stats:?}");
    // An operator that knows that no permit is held can end the quarantine for good.
    other_client.reset(pool()).await.unwrap();
    let other = ask(LONG);
    granted(&*holder, &other).await;
    other_client.release(pool(), &[other.id], false).await.unwrap();
    granted(&*other_client, &ask(LONG)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_that_remembers_forgets_neither_holders_nor_the_line() {
    for remembers in [RedisPersistence::EverySecond, RedisPersistence::Always] {
        let mut server = server(remembers).await;
        let permits = open(&server.url());
        let (mine, next, last) = (ask(LONG), wait(LONG), wait(LONG));
        let fence = granted(&*permits, &mine).await.fence;
        for waiter in [&next, &last] {
            permits.acquire(pool(), waiter).await.unwrap();
        }
        block_in_place(|| server.restart_killed()).unwrap();
        let lost = retry_until_ok(|| permits.renew(pool(), std::slice::from_ref(&mine.id), LONG)).await;
        assert_eq!(lost, []);
        let stats = permits.stats(pool()).await.unwrap().unwrap();
        assert_eq!(stats.waiting.iter().map(|waiter| waiter.id).collect::<Vec<_>>(), [next.id, last.id]);
        assert_eq!(stats.quarantine, None);
        permits.release(pool(), &[mine.id], false).await.unwrap();
        assert!(granted(&*permits, &next).await.fence > fence);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_server_gives_a_new_pool_at_once() {
    let server = server(RedisPersistence::Nothing).await;
    let permits = open(&server.url());
    let tiny = ask(Duration::from_millis(10));
    let until = Instant::now() + TEST_TIMEOUT;
    // Once the server is older than a lease.
    for number in 0.. {
        let fresh = PoolName::new(format!("fresh-{number}")).unwrap();
        match permits.acquire(&fresh, &tiny).await.unwrap() {
            AcquireResult::Granted(_) => break,
            answer => {
                assert!(answer == AcquireResult::Full && Instant::now() < until, "{answer:?}");
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// As docs/redis.md says of a server without a file: the pool gets the maximum of the next request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_that_forgets_also_forgets_a_resize_and_one_that_remembers_does_not() {
    for (remembers, max) in [(RedisPersistence::Nothing, 1), (RedisPersistence::Always, 7)] {
        let mut server = server(remembers).await;
        let permits = open(&server.url());
        permits.create(pool(), 3).await.unwrap();
        permits.resize(pool(), 7).await.unwrap();
        block_in_place(|| server.restart()).unwrap();
        let asked = ask(LEASE);
        retry_until_ok(|| permits.acquire(pool(), &asked)).await;
        assert_eq!(permits.stats(pool()).await.unwrap().unwrap().max, max);
    }
}
