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

pub(super) async fn figures_add_up(world: &PermitsFixture) {
    assert_eq!(world.permits.stats(&pool()).await.unwrap(), None, "the pool has had no request");
    let (first, second, waiter) = (named("first", 1), named("second", 2), named("waiter", 3));
    let fences = [world.acquire(&first).await.fence, world.acquire(&second).await.fence];
    world.join_queue(&waiter).await;
    let stats = world.stats().await;
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
    assert_eq!(world.second_process.stats(&pool()).await.unwrap().unwrap().in_use, 3);
}

pub(super) async fn waits_are_measured(world: &PermitsFixture) {
    let holder = world.acquire_one(1).await;
    let waiter = world.queued_request(1).await;
    world.advance(SHORT_TTL).await;
    let stats = world.stats().await;
    assert!(stats.waiting[0].waited >= SHORT_TTL && stats.holders[0].held_for >= SHORT_TTL, "{stats:?}");
    world.release(holder).await;
    assert!(world.acquire(&waiter).await.waited >= SHORT_TTL);
    let waits = world.stats().await.waits;
    assert_eq!(waits.percentile(0.5), Some(Duration::from_millis(1)));
    assert!(waits.percentile(1.0).unwrap() >= SHORT_TTL);
}

pub(super) async fn a_wait_that_took_too_long_is_counted_once(world: &PermitsFixture) {
    world.acquire_one(1).await;
    let (late, unwanted) = (world.queued_request(1).await, world.queued_request(1).await);
    world.release(unwanted.id).await;
    world.time_out(late.id).await;
    world.time_out(late.id).await;
    let stats = world.stats().await;
    assert_eq!((stats.timeouts, stats.waiting.len(), stats.in_use), (1, 0, 1));
}

pub(super) async fn pools_are_listed_by_name_and_kept_apart(world: &PermitsFixture) {
    assert_eq!(world.permits.pools(None).await.unwrap(), []);
    for name in ["mjml", "digest", "Mail-2"] {
        world.permits.acquire(&pool_named(name), &permit_request(1)).await.unwrap();
    }
    world.permits.acquire_alert(&pool_named("nowhere"), "full", LONG_TTL).await.unwrap();
    let names = ["Mail-2", "digest", "mjml"].map(pool_named);
    let pools = world.permits.pools(None).await.unwrap();
    assert_eq!(pools.iter().map(|(name, _)| name).collect::<Vec<_>>(), names.each_ref());
    for (name, listed) in pools {
        let stats = world.permits.stats(&name).await.unwrap().unwrap();
        for stats in [stats, listed] {
            assert_eq!((stats.in_use, stats.waiting.len()), (1, 0));
        }
    }
}

pub(super) async fn one_id_may_hold_of_several_pools(world: &PermitsFixture) {
    let ask = permit_request(1);
    world.acquire(&ask).await;
    world.permits.acquire(&pool_named("other"), &ask).await.unwrap();
    world.release(ask.id).await;
    let other = world.permits.stats(&pool_named("other")).await.unwrap().unwrap();
    assert_eq!((world.usage().await.0, other.in_use), (0, 1));
}

pub(super) async fn an_alert_is_told_again_when_its_time_has_come(world: &PermitsFixture) {
    let may = async |alert, every| world.permits.acquire_alert(&pool(), alert, every).await.unwrap();
    assert!(may("full", SHORT_TTL).await);
    world.advance(SHORT_TTL).await;
    assert!(may("full", LONG_TTL).await);
    assert!(!may("full", SHORT_TTL).await, "a different interval in the next request does not matter");
    assert!(may("late", LONG_TTL).await, "another alert");
    let elsewhere = world.permits.acquire_alert(&pool_named("other"), "full", LONG_TTL).await;
    assert!(elsewhere.unwrap(), "another pool");
}

pub(super) async fn of_many_one_may_tell_an_alert(world: &PermitsFixture) {
    let mut callers = JoinSet::new();
    for n in 0..16 {
        let permits = Arc::clone(if n % 2 == 0 { &world.permits } else { &world.second_process });
        callers.spawn(async move { permits.acquire_alert(&pool(), "full", LONG_TTL).await.unwrap() });
    }
    let sent = callers.join_all().await.into_iter().filter(|may| *may).count();
    assert_eq!(sent, 1);
}
