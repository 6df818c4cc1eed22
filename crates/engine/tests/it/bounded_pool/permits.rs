//! Permits are held, renewed, lost and released.

use std::sync::Arc;
use std::time::Duration;

use longshore::{AcquireError, HeartbeatPlacement, MemoryPermits, Permits};
use tokio::time::sleep;

use super::{LEASE, builder, name, pool, pool_stats, remote, usage};

#[tokio::test]
async fn a_dropped_permit_is_given_back() {
    let pool = pool(2);
    let (first, second) = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
    assert!(second.fence() > first.fence());
    assert!(pool.try_acquire().await.unwrap().is_none());
    drop(first);
    assert!(pool.try_acquire().await.unwrap().is_some());
    drop(second);
    assert_eq!((usage(&pool).await, pool.stats().await.held_here), ((0, 0), 0));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_permit_is_given_back_across_a_network() {
    let (builder, permits) = remote(1);
    let pool = builder.build();
    for _ in 0..3 {
        drop(pool.acquire().await.unwrap());
    }
    pool.flush().await;
    assert_eq!(usage(&pool).await, (0, 0));
    permits.outage(true);
    let held = pool.try_acquire().await;
    assert!(held.is_err());
    permits.outage(false);
    let held = pool.acquire().await.unwrap();
    permits.outage(true);
    drop(held);
    permits.outage(false);
    pool.flush().await;
    assert_eq!(usage(&pool).await, (0, 0), "it was tried again");
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_with_the_pool_is_given_back_too() {
    let (builder, permits) = remote(1);
    drop(builder.build().acquire().await.unwrap());
    let permits: &dyn Permits = &*permits;
    while permits.stats(&name()).await.unwrap().unwrap().in_use > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_permit_that_is_released_is_back_when_that_returns() {
    let (builder, permits) = remote(1);
    let pool = builder.build();
    let permit = pool.acquire().await.unwrap();
    permit.release().await.unwrap();
    let permits: &dyn Permits = &*permits;
    assert_eq!(permits.stats(&name()).await.unwrap().unwrap().in_use, 0);
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_kept_as_long_as_it_is_held() {
    let (builder, _) = remote(1);
    let pool = builder.build();
    let permit = pool.acquire().await.unwrap();
    for _ in 0..20 {
        sleep(LEASE / 2).await;
        assert!(!permit.is_lost());
        assert!(pool.try_acquire().await.unwrap().is_none());
    }
    assert_eq!(pool_stats(&pool).await.expired, 0);
}

#[test]
fn a_process_that_dies_gives_its_permits_back() {
    let permits: Arc<dyn Permits> = Arc::new(MemoryPermits::default());
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let lease = Duration::from_millis(300);
    let make = || builder(permits.clone(), 1).lease(lease).build();
    let dying = runtime();
    let dead = make();
    std::mem::forget(dying.block_on(dead.acquire()).unwrap());
    drop(dying);
    let fence = runtime().block_on(async {
        let heir = make();
        let permit = heir.acquire().await.unwrap();
        assert_eq!(pool_stats(&heir).await.expired, 1);
        permit.fence()
    });
    assert_eq!(fence, Some(2));
}

#[test]
fn a_process_whose_runtime_is_blocked_keeps_its_permits() {
    let permits: Arc<dyn Permits> = Arc::new(MemoryPermits::default());
    let lease = Duration::from_millis(300);
    let make = || {
        let builder = builder(permits.clone(), 1).lease(lease);
        builder.renewals(HeartbeatPlacement::Thread).build()
    };
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime().block_on(async {
        let held = make().acquire().await.unwrap();
        // A handler that never yields: nothing else runs on this runtime.
        let rival = std::thread::spawn({
            let rival = make();
            move || runtime().block_on(async { rival.request().wait(lease * 10).acquire().await.map(drop) })
        });
        let rival = rival.join().unwrap();
        assert!(matches!(rival, Err(AcquireError::TimedOut { .. })), "{rival:?}");
        assert!(!held.is_lost());
    });
}

#[test]
fn a_permit_may_outlive_its_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (builder, permits) = remote(1);
    let pool = builder.build();
    let permit = runtime.block_on(pool.acquire()).unwrap();
    drop(runtime);
    drop(permit);
    let next = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    next.block_on(async {
        let permits: &dyn Permits = &*permits;
        permits.reset(&name()).await.unwrap();
        drop(pool.acquire().await.unwrap());
        pool.flush().await;
        assert_eq!(usage(&pool).await, (0, 0), "its tasks run again");
    });
}

#[tokio::test(start_paused = true)]
async fn a_lost_permit_is_told_and_not_taken_again() {
    let (builder, _) = remote(1);
    let pool = builder.build();
    let permit = pool.acquire().await.unwrap();
    pool.reset().await.unwrap();
    assert!(!permit.is_lost(), "the loss is not detected yet");
    permit.lost().await;
    assert!(permit.is_lost());
    sleep(LEASE * 2).await;
    assert_eq!(usage(&pool).await, (0, 0));
    let heir = pool.try_acquire().await.unwrap().unwrap();
    drop(permit);
    pool.flush().await;
    assert_eq!(usage(&pool).await, (1, 0), "the loser gives nothing back");
    drop(heir);
}

#[tokio::test(start_paused = true)]
async fn work_ends_with_its_permit() {
    let (builder, _) = remote(1);
    let pool = builder.build();
    assert_eq!(pool.with_permit(async { 42 }).await.unwrap(), 42);
    let endless = pool.with_permit(std::future::pending::<()>());
    let reset = async {
        sleep(LEASE).await;
        pool.reset().await.unwrap();
    };
    let (answer, ()) = tokio::join!(endless, reset);
    assert!(matches!(answer, Err(AcquireError::Lost(_))), "{answer:?}");
}

#[tokio::test]
async fn setting_up_again_and_again_makes_no_permit() {
    let pool = pool(2);
    let held = [pool.acquire().await.unwrap(), pool.acquire().await.unwrap()];
    for _ in 0..3 {
        pool.init().await.unwrap();
        assert!(pool.try_acquire().await.unwrap().is_none());
    }
    pool.resize(1).await.unwrap();
    pool.init().await.unwrap();
    drop(held);
    assert_eq!(pool_stats(&pool).await.max, 1, "nor does it undo what an operator did");
}
