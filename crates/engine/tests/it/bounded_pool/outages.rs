//! Outages of the backend.

use std::time::Duration;

use longshore::{AcquireError, LocalPermits, OnOutage, Permits};
use tokio::time::{Instant, sleep};

use super::{LEASE, name, pool_stats, remote, usage};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn a_pool_that_fails_closed_waits_for_its_back_end() {
    let (builder, permits) = remote(1);
    let pool = builder.build();
    permits.outage(true);
    let back = async {
        sleep(HOUR).await;
        assert!(pool.stats().await.outage.is_some_and(|lasts| lasts > HOUR / 2));
        permits.outage(false);
    };
    let (permit, ()) = tokio::join!(pool.acquire(), back);
    assert_eq!(permit.unwrap().fence(), Some(1));
    assert_eq!(pool.stats().await.outage, None);
}

#[tokio::test(start_paused = true)]
async fn a_limit_holds_in_an_outage_too() {
    let (builder, permits) = remote(1);
    let pool = builder.wait(Duration::from_secs(5)).build();
    permits.outage(true);
    let began = Instant::now();
    let answer = pool.acquire().await;
    assert!(matches!(answer, Err(AcquireError::Unavailable { .. })), "{answer:?}");
    assert_eq!(began.elapsed(), Duration::from_secs(5));
    let answer = pool.try_acquire().await;
    assert!(matches!(answer, Err(AcquireError::Unavailable { .. })), "{answer:?}");
    permits.outage(false);
    pool.flush().await;
    assert_eq!(in_use(&*permits).await, 0);
}

async fn in_use(permits: &dyn Permits) -> u32 {
    permits.stats(&name()).await.unwrap().map_or(0, |stats| stats.in_use)
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_cannot_be_extended_is_lost_before_others_get_it() {
    let (builder, permits) = remote(1);
    let pool = builder.build();
    let permit = pool.acquire().await.unwrap();
    permits.outage(true);
    let began = Instant::now();
    permit.lost().await;
    assert!(began.elapsed() <= LEASE, "{:?}", began.elapsed());
    permits.outage(false);
    assert!(permit.is_lost());
    let heir = pool.acquire().await.unwrap();
    assert_eq!(heir.fence(), Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_costs_nobody_a_permit() {
    let (builder, permits) = remote(1);
    let pool = builder.build();
    let permit = pool.acquire().await.unwrap();
    for _ in 0..10 {
        permits.outage(true);
        sleep(LEASE / 2).await;
        permits.outage(false);
        sleep(LEASE / 2).await;
        assert!(!permit.is_lost());
    }
    assert_eq!(pool_stats(&pool).await.expired, 0);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_fails_open_gives_permits_of_its_own_and_no_more_afterwards() {
    let (builder, permits) = remote(2);
    let pool = builder.on_outage(OnOutage::FailOpen { max_weight: 3 }).build();
    let held = pool.acquire().await.unwrap();
    permits.outage(true);
    let mut own = Vec::new();
    for _ in 0..3 {
        own.push(pool.acquire().await.unwrap());
    }
    assert!(own.iter().all(|permit| permit.fence().is_none() && !permit.is_lost()));
    assert!(pool.try_acquire().await.unwrap().is_none(), "it has a bound of its own");
    let stats = pool.stats().await;
    assert!(stats.pool.is_none() && stats.outage.is_some());
    assert_eq!(stats.local, Some(LocalPermits { max: 3, in_use: 3 }));
    permits.outage(false);
    drop(own);
    pool.flush().await;
    sleep(Duration::from_secs(10)).await;
    let stats = pool.stats().await;
    assert_eq!((stats.outage, stats.local.unwrap().in_use), (None, 0));
    assert_eq!(usage(&pool).await, (1, 0), "what was asked in the outage left nothing behind");
    let another = pool.acquire().await.unwrap();
    assert!(another.fence().is_some());
    assert!(pool.try_acquire().await.unwrap().is_none());
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn in_a_pool_that_fails_open_an_outage_ends_no_work() {
    let (builder, permits) = remote(1);
    let pool = builder.on_outage(OnOutage::FailOpen { max_weight: 1 }).build();
    let permit = pool.acquire().await.unwrap();
    permits.outage(true);
    sleep(LEASE * 3).await;
    assert!(!permit.is_lost());
    permits.outage(false);
    permit.lost().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_permit_of_the_process_hears_of_the_back_end() {
    let (builder, permits) = remote(1);
    let pool = builder.on_outage(OnOutage::FailOpen { max_weight: 1 }).build();
    permits.outage(true);
    let own = pool.acquire().await.unwrap();
    let back = async {
        sleep(HOUR).await;
        permits.outage(false);
    };
    let (permit, ()) = tokio::join!(pool.acquire(), back);
    assert!(permit.unwrap().fence().is_some());
    drop(own);
}
