//! The order of waiting requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore::{AcquireError, MemoryPermits, Permits, Priority};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{builder, name, pool, pool_stats, remote, until_waiting, usage};

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_served_in_order_without_a_delay() {
    let permits = Arc::new(MemoryPermits::default());
    let pool = builder(permits.clone(), 1).build();
    let held = pool.acquire().await.unwrap();
    let (served, mut tasks) = (Arc::new(Mutex::new(Vec::new())), JoinSet::new());
    for n in 0..5 {
        let (pool, served) = (pool.clone(), Arc::clone(&served));
        tasks.spawn(async move {
            let _permit = pool.acquire().await.unwrap();
            served.lock().unwrap().push(n);
        });
        until_waiting(&*permits, n + 1).await;
    }
    let began = Instant::now();
    drop(held);
    tasks.join_all().await;
    assert_eq!(*served.lock().unwrap(), [0, 1, 2, 3, 4]);
    assert_eq!(began.elapsed(), Duration::ZERO, "no request slept");
}

#[tokio::test(start_paused = true)]
async fn classes_and_weights_are_the_requests() {
    let permits = Arc::new(MemoryPermits::default());
    let pool = builder(permits.clone(), 3).owner("host").build();
    let held = pool.request().weight(3).owner("all of it").acquire().await.unwrap();
    let classes = [(Priority::LOW, 3), (Priority::NORMAL, 2), (Priority::HIGH, 2)];
    let mut tasks = JoinSet::new();
    for (n, (priority, weight)) in classes.into_iter().enumerate() {
        let pool = pool.clone();
        tasks.spawn(async move {
            let request = pool.request().weight(weight).priority(priority);
            (priority, request.acquire().await.unwrap())
        });
        until_waiting(&*permits, n + 1).await;
    }
    let stats = pool_stats(&pool).await;
    assert_eq!((stats.in_use, &*stats.holders[0].owner), (3, "all of it"));
    assert_eq!(&*stats.waiting[0].owner, "host");
    drop(held);
    for expected in [Priority::HIGH, Priority::NORMAL, Priority::LOW] {
        let (priority, permit) = tasks.join_next().await.unwrap().unwrap();
        assert_eq!(priority, expected);
        drop(permit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_has_its_limit() {
    let limit = Duration::from_secs(7);
    let pool = remote(1).0.wait(limit).build();
    let _held = pool.acquire().await.unwrap();
    let began = Instant::now();
    let answer = pool.acquire().await;
    assert!(matches!(answer, Err(AcquireError::TimedOut { .. })), "{answer:?}");
    assert_eq!(began.elapsed(), limit);
    let stats = pool_stats(&pool).await;
    assert_eq!((stats.timeouts, stats.waiting.len(), stats.in_use), (1, 0, 1));
    let shorter = pool.request().wait(Duration::from_secs(1)).acquire().await;
    assert!(shorter.is_err());
    assert_eq!(began.elapsed(), limit + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_it_waits_for_days() {
    let (builder, _) = remote(1);
    let pool = builder.build();
    let held = pool.acquire().await.unwrap();
    let days = Duration::from_secs(3 * 24 * 3600);
    let later = async {
        tokio::time::sleep(days).await;
        drop(held);
    };
    let (permit, ()) = tokio::join!(pool.acquire(), later);
    assert!(permit.unwrap().waited() >= days);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_leaves_the_line() {
    let (builder, permits) = remote(1);
    let pool = builder.build();
    let held = pool.acquire().await.unwrap();
    let mut waiting = JoinSet::new();
    let own = pool.clone();
    waiting.spawn(async move { own.acquire().await.unwrap() });
    until_waiting(&*permits, 1).await;
    waiting.shutdown().await;
    pool.flush().await;
    assert_eq!(usage(&pool).await, (1, 0));
    drop(held);
}

/// The permit is granted, and its requester is gone before the response arrives.
#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_hears_of_is_given_back() {
    let (builder, permits) = remote(1);
    let pool = builder.build();
    permits.lose_answers(1);
    let limit = Duration::from_millis(1);
    let gone = tokio::time::timeout(limit, pool.acquire()).await;
    assert!(gone.is_err(), "its answer was lost");
    pool.flush().await;
    assert_eq!(usage(&pool).await, (0, 0));
    assert_eq!(pool_stats(&pool).await.acquired, 1, "it had been granted");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_costs_no_second_permit() {
    let (builder, permits) = remote(2);
    let pool = builder.build();
    permits.lose_answers(2);
    let permit = pool.acquire().await.unwrap();
    let stats = pool_stats(&pool).await;
    assert_eq!((stats.in_use, stats.acquired, permit.fence()), (1, 1, Some(1)));
}

#[tokio::test(start_paused = true)]
async fn one_too_heavy_is_told_at_once() {
    let pool = pool(2);
    let answer = pool.request().weight(3).acquire().await;
    assert!(matches!(answer, Err(AcquireError::TooHeavy { weight: 3, max: 2, .. })));
    assert!(pool.request().weight(0).acquire().await.is_err());
    assert_eq!(usage(&pool).await, (0, 0));
}

/// `LONGSHORE_SOAK` runs more rounds.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_storm_of_requests_leaves_nothing_behind() {
    let rounds = if std::env::var_os("LONGSHORE_SOAK").is_some() { 5_000 } else { 100 };
    let (builder, permits) = remote(4);
    let pool = builder.build();
    let (held, mut tasks) = (Arc::new(tokio::sync::Semaphore::new(4)), JoinSet::new());
    for n in 0..16_u32 {
        let (pool, held) = (pool.clone(), Arc::clone(&held));
        tasks.spawn(async move {
            for round in 0..rounds {
                let weight = (n + round) % 3 + 1;
                let request = pool.request().weight(weight).acquire();
                let patience = Duration::from_micros(u64::from((n * 31 + round * 17) % 400));
                let permit = if round % 3 == 0 {
                    tokio::time::timeout(patience, request).await.ok()
                } else {
                    Some(request.await)
                };
                if let Some(permit) = permit {
                    let permit = permit.unwrap();
                    // An independent semaphore must have room whenever the pool grants a permit.
                    let seen = held.try_acquire_many(weight).expect("more than there are");
                    tokio::task::yield_now().await;
                    drop(seen);
                    drop(permit);
                }
            }
        });
    }
    tasks.join_all().await;
    pool.flush().await;
    let permits: &dyn Permits = &*permits;
    let stats = permits.stats(&name()).await.unwrap().unwrap();
    assert_eq!((stats.in_use, stats.waiting.len(), stats.expired), (0, 0, 0));
}
