//! Resizing and resetting a pool.

use std::sync::Arc;

use longshore_core::permits::AcquireResult;
use tokio::task::JoinSet;

use super::permits_helpers::*;
use crate::PermitsFixture;

pub(super) async fn a_larger_pool_has_more_at_once(fixture: &PermitsFixture) {
    fixture.acquire_one(1).await;
    let waiter = fixture.queued_request(1).await;
    fixture.resize(2).await;
    fixture.await_wakeup(waiter.id).await;
    fixture.acquire(&waiter).await;
    assert_eq!(fixture.stats().await.max, 2);
}

pub(super) async fn a_smaller_pool_shrinks_as_permits_return(fixture: &PermitsFixture) {
    let ids = [fixture.acquire_one(3).await, fixture.acquire_one(3).await, fixture.acquire_one(3).await];
    fixture.resize(1).await;
    let stats = fixture.stats().await;
    assert_eq!((stats.in_use, stats.available()), (3, 0), "held permits stay held");
    assert_eq!(fixture.extend(&ids, LONG_TTL).await, []);
    let waiter = fixture.queued_request(1).await;
    for id in &ids[..2] {
        fixture.release(*id).await;
        assert_eq!(fixture.join_queue(&waiter).await, 0);
    }
    fixture.release(ids[2]).await;
    fixture.acquire(&waiter).await;
    assert_eq!(fixture.request(&without_waiting(&permit_request(3))).await, AcquireResult::Full);
}

pub(super) async fn a_resize_makes_a_pool_known(fixture: &PermitsFixture) {
    fixture.resize(2).await;
    assert_eq!(fixture.stats().await.max, 2);
    fixture.acquire_one(50).await;
    fixture.acquire_one(50).await;
    fixture.queued_request(50).await;
    assert_eq!(fixture.stats().await.max, 2, "a request does not change the maximum");
}

pub(super) async fn of_many_inits_the_first_counts(fixture: &PermitsFixture) {
    let mut callers = JoinSet::new();
    for max in 1..=8 {
        let permits = Arc::clone(if max % 2 == 0 { &fixture.permits } else { &fixture.second_process });
        callers.spawn(async move { (max, permits.create(&pool(), max).await.unwrap()) });
    }
    let (made, known): (Vec<_>, Vec<_>) =
        callers.join_all().await.into_iter().partition(|(_, known)| known.is_none());
    let [(first, _)] = made[..] else { panic!("made by {made:?}") };
    assert!(known.iter().all(|(_, max)| *max == Some(first)), "{known:?}");
    assert_eq!(fixture.stats().await.max, first);
    fixture.resize(2).await;
    let held = fixture.acquire_one(9).await;
    assert_eq!(fixture.permits.create(&pool(), 9).await.unwrap(), Some(2));
    let stats = fixture.stats().await;
    assert_eq!((stats.max, stats.in_use, stats.acquired), (2, 1, 1), "it changes nothing");
    fixture.release(held).await;
}

pub(super) async fn those_whom_a_smaller_pool_cannot_serve_hear_of_it(fixture: &PermitsFixture) {
    fixture.acquire_one(3).await;
    let (large, small) = (weighted_request(3, 3), permit_request(3));
    fixture.join_queue(&large).await;
    fixture.join_queue(&small).await;
    fixture.resize(2).await;
    fixture.await_wakeup(large.id).await;
    assert_eq!(fixture.request(&large).await, AcquireResult::TooHeavy { max: 2 });
    fixture.wait_and_acquire(&small).await;
    assert_eq!(fixture.usage().await, (2, 0));
}

pub(super) async fn a_reset_forgets_all_but_the_maximum(fixture: &PermitsFixture) {
    fixture.resize(2).await;
    let held = [fixture.acquire_one(9).await, fixture.acquire_one(9).await];
    let waiter = fixture.queued_request(9).await;
    fixture.permits.reset(&pool()).await.unwrap();
    let stats = fixture.stats().await;
    assert_eq!((stats.max, stats.in_use, stats.waiting.len()), (2, 0, 0));
    assert_eq!((stats.acquired, stats.timeouts, stats.expired), (0, 0, 0));
    assert_eq!(stats.waits.percentile(1.0), None);
    assert_eq!(
        fixture.extend(&held, LONG_TTL).await,
        held,
        "a holder learns of the reset at its next renewal"
    );
    fixture.await_wakeup(waiter.id).await;
    fixture.acquire(&waiter).await;
    fixture.permits.reset(&pool_named("nowhere")).await.unwrap();
    let pools = fixture.permits.pools(None).await.unwrap();
    assert_eq!(pools.iter().map(|(name, _)| name).collect::<Vec<_>>(), [&pool()]);
}

pub(super) async fn a_pool_of_nothing_gives_nothing(fixture: &PermitsFixture) {
    let holder = fixture.acquire_one(1).await;
    fixture.resize(0).await;
    assert_eq!(fixture.request(&permit_request(1)).await, AcquireResult::TooHeavy { max: 0 });
    assert_eq!(fixture.extend(&[holder], LONG_TTL).await, []);
    fixture.resize(1).await;
    fixture.queued_request(1).await;
}
