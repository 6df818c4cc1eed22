//! Statistics of pools, and rate-limited alerts.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::permits::AcquireRequest;
use tokio::task::JoinSet;

use super::permits_helpers::*;
use crate::PermitsFixture;

fn named(owner: &str, weight: u32) -> AcquireRequest {
    AcquireRequest { owner: owner.into(), ..weighted_request(weight, 4) }
}

pub(super) async fn figures_add_up(fixture: &PermitsFixture) {
    assert_eq!(fixture.permits.stats(&pool()).await.unwrap(), None, "the pool has had no request");
    let (first, second, waiter) = (named("first", 1), named("second", 2), named("waiter", 3));
    let fences = [fixture.acquire(&first).await.fence, fixture.acquire(&second).await.fence];
    fixture.join_queue(&waiter).await;
    let stats = fixture.stats().await;
    assert_eq!((stats.max, stats.in_use, stats.available(), stats.acquired), (4, 3, 1, 2));
    assert_eq!((stats.timeouts, stats.expired, stats.quarantine), (0, 0, None));
    assert_eq!(stats.waits.0.iter().sum::<u64>(), 2);
    let held = stats.holders.iter();
    let held: Vec<_> = held.map(|held| (&*held.owner, held.weight, held.fence, held.id)).collect();
    let expected = [("first", 1, fences[0], first.id), ("second", 2, fences[1], second.id)];
    assert_eq!(held, expected, "longest first");
    assert!(stats.holders.iter().all(|held| held.expires_in <= LONG_TTL && held.expires_in > LONG_TTL / 2));
    let waiting = stats.waiting.iter().map(|one| (&*one.owner, one.weight, one.id, one.priority));
    let expected = [("waiter", 3, waiter.id, waiter.priority)];
    assert_eq!(waiting.collect::<Vec<_>>(), expected);
    assert_eq!(fixture.second_process.stats(&pool()).await.unwrap().unwrap().in_use, 3);
}

pub(super) async fn waits_are_measured(fixture: &PermitsFixture) {
    let holder = fixture.acquire_one(1).await;
    let waiter = fixture.queued_request(1).await;
    fixture.advance(SHORT_TTL).await;
    let stats = fixture.stats().await;
    assert!(stats.waiting[0].waited >= SHORT_TTL && stats.holders[0].held_for >= SHORT_TTL, "{stats:?}");
    fixture.release(holder).await;
    assert!(fixture.acquire(&waiter).await.waited >= SHORT_TTL);
    let waits = fixture.stats().await.waits;
    assert_eq!(waits.percentile(0.5), Some(Duration::from_millis(1)));
    assert!(waits.percentile(1.0).unwrap() >= SHORT_TTL);
}

pub(super) async fn a_wait_that_took_too_long_is_counted_once(fixture: &PermitsFixture) {
    fixture.acquire_one(1).await;
    let (late, unwanted) = (fixture.queued_request(1).await, fixture.queued_request(1).await);
    fixture.release(unwanted.id).await;
    fixture.time_out(late.id).await;
    fixture.time_out(late.id).await;
    let stats = fixture.stats().await;
    assert_eq!((stats.timeouts, stats.waiting.len(), stats.in_use), (1, 0, 1));
}

pub(super) async fn pools_are_listed_by_name_and_kept_apart(fixture: &PermitsFixture) {
    assert_eq!(fixture.permits.pools(None).await.unwrap(), []);
    for name in ["mjml", "digest", "Mail-2"] {
        fixture.permits.acquire(&pool_named(name), &permit_request(1)).await.unwrap();
    }
    fixture.permits.acquire_alert(&pool_named("nowhere"), "full", LONG_TTL).await.unwrap();
    let names = ["Mail-2", "digest", "mjml"].map(pool_named);
    let pools = fixture.permits.pools(None).await.unwrap();
    assert_eq!(pools.iter().map(|(name, _)| name).collect::<Vec<_>>(), names.each_ref());
    for (name, listed) in pools {
        let stats = fixture.permits.stats(&name).await.unwrap().unwrap();
        for stats in [stats, listed] {
            assert_eq!((stats.in_use, stats.waiting.len()), (1, 0));
        }
    }
}

pub(super) async fn one_id_may_hold_of_several_pools(fixture: &PermitsFixture) {
    let ask = permit_request(1);
    fixture.acquire(&ask).await;
    fixture.permits.acquire(&pool_named("other"), &ask).await.unwrap();
    fixture.release(ask.id).await;
    let other = fixture.permits.stats(&pool_named("other")).await.unwrap().unwrap();
    assert_eq!((fixture.usage().await.0, other.in_use), (0, 1));
}

pub(super) async fn an_alert_is_told_again_when_its_time_has_come(fixture: &PermitsFixture) {
    let may = async |alert, every| fixture.permits.acquire_alert(&pool(), alert, every).await.unwrap();
    assert!(may("full", SHORT_TTL).await);
    fixture.advance(SHORT_TTL).await;
    assert!(may("full", LONG_TTL).await);
    assert!(!may("full", SHORT_TTL).await, "a different interval in the next request does not matter");
    assert!(may("late", LONG_TTL).await, "another alert");
    let elsewhere = fixture.permits.acquire_alert(&pool_named("other"), "full", LONG_TTL).await;
    assert!(elsewhere.unwrap(), "another pool");
}

pub(super) async fn of_many_one_may_tell_an_alert(fixture: &PermitsFixture) {
    let mut callers = JoinSet::new();
    for n in 0..16 {
        let permits = Arc::clone(if n % 2 == 0 { &fixture.permits } else { &fixture.second_process });
        callers.spawn(async move { permits.acquire_alert(&pool(), "full", LONG_TTL).await.unwrap() });
    }
    let sent = callers.join_all().await.into_iter().filter(|may| *may).count();
    assert_eq!(sent, 1);
}
