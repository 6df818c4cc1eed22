//! Permits are held under leases: expiry, renewal, release.

use longshore_core::PermitId;
use longshore_core::permits::AcquireRequest;

use super::permits_helpers::*;
use crate::PermitsFixture;

pub(super) async fn a_lease_that_runs_out_gives_its_permit_back(world: &PermitsFixture) {
    let dead = AcquireRequest { weight: 2, ..short_request(2) };
    world.acquire(&dead).await;
    world.advance(SHORT_TTL).await;
    world.acquire_one(2).await;
    let stats = world.stats().await;
    assert_eq!((stats.in_use, stats.expired), (1, 1));
    assert!(stats.holders.iter().all(|holder| holder.id != dead.id));
}

pub(super) async fn a_lease_that_is_extended_stays(world: &PermitsFixture) {
    let ask = AcquireRequest { ttl: MEDIUM_TTL, ..permit_request(1) };
    world.acquire(&ask).await;
    assert_eq!(world.extend(&[ask.id], LONG_TTL).await, []);
    world.advance(MEDIUM_TTL).await;
    world.queued_request(1).await;
}

pub(super) async fn asking_again_begins_the_lease_anew(world: &PermitsFixture) {
    let ask = AcquireRequest { ttl: MEDIUM_TTL, ..permit_request(1) };
    let grant = world.acquire(&ask).await;
    assert_eq!(world.acquire(&AcquireRequest { ttl: LONG_TTL, ..ask }).await, grant);
    world.advance(MEDIUM_TTL).await;
    world.queued_request(1).await;
}

pub(super) async fn a_lease_may_be_made_shorter(world: &PermitsFixture) {
    let holder = world.acquire_one(1).await;
    assert_eq!(world.extend(&[holder], SHORT_TTL).await, []);
    world.advance(SHORT_TTL).await;
    world.acquire_one(1).await;
}

pub(super) async fn extending_tells_which_are_lost(world: &PermitsFixture) {
    let (gone, returned, held) = (short_request(3), permit_request(3), permit_request(3));
    for ask in [&gone, &returned, &held] {
        world.acquire(ask).await;
    }
    world.release(returned.id).await;
    world.advance(SHORT_TTL).await;
    let unknown = PermitId::new();
    let mut lost = world.extend(&[gone.id, held.id, returned.id, unknown], LONG_TTL).await;
    lost.sort_unstable();
    let mut expected = [gone.id, returned.id, unknown];
    expected.sort_unstable();
    assert_eq!(lost, expected);
    assert_eq!(world.usage().await, (1, 0), "expired leases are not renewed");
    let nowhere = world.permits.renew(&pool_named("nowhere"), &[unknown], LONG_TTL).await;
    assert_eq!(nowhere.unwrap(), [unknown]);
}

pub(super) async fn one_who_waits_holds_nothing_to_extend(world: &PermitsFixture) {
    world.acquire_one(1).await;
    let waiter = world.queued_request(1).await;
    assert_eq!(world.extend(&[waiter.id], LONG_TTL).await, [waiter.id]);
    assert_eq!(world.usage().await, (1, 1), "and keeps its place");
}

pub(super) async fn nobody_gives_back_what_is_anothers(world: &PermitsFixture) {
    let holder = world.acquire_one(1).await;
    world.release(PermitId::new()).await;
    world.permits.release(&pool_named("nowhere"), &[holder], false).await.unwrap();
    world.queued_request(1).await;
    assert_eq!(world.permits.stats(&pool_named("nowhere")).await.unwrap(), None);
}

pub(super) async fn many_are_given_back_at_once(world: &PermitsFixture) {
    let ids = [world.acquire_one(3).await, world.acquire_one(3).await, PermitId::new()];
    world.acquire_one(3).await;
    world.permits.release(&pool(), &ids, false).await.unwrap();
    world.permits.release(&pool(), &[], false).await.unwrap();
    assert_eq!(world.usage().await, (1, 0));
}

pub(super) async fn leaving_gives_back_what_was_granted_meanwhile(world: &PermitsFixture) {
    let holder = world.acquire_one(1).await;
    let waiter = world.queued_request(1).await;
    world.release(holder).await;
    world.acquire(&waiter).await;
    world.release(waiter.id).await;
    assert_eq!(world.usage().await, (0, 0));
    world.acquire_one(1).await;
}

pub(super) async fn fences_grow_whatever_happens(world: &PermitsFixture) {
    let mut last = 0;
    let mut seen = async |ask: &AcquireRequest| {
        let fence = world.acquire(ask).await.fence;
        assert!(fence > last, "{fence} after {last}");
        last = fence;
    };
    let first = permit_request(3);
    seen(&first).await;
    seen(&short_request(3)).await;
    world.release(first.id).await;
    seen(&first).await;
    world.advance(SHORT_TTL).await;
    seen(&permit_request(3)).await;
    world.permits.reset(&pool()).await.unwrap();
    seen(&permit_request(3)).await;
    world.resize(9).await;
    seen(&permit_request(9)).await;
}

pub(super) async fn what_is_dropped_is_given_back(world: &PermitsFixture) {
    let holder = world.acquire_one(1).await;
    let waiter = world.queued_request(1).await;
    if !world.permits.try_release_now(&pool(), holder) {
        assert_eq!(world.usage().await, (1, 1), "false means that nothing happened");
        world.release(holder).await;
    }
    world.wait_and_acquire(&waiter).await;
    assert_eq!(world.usage().await, (1, 0));
}
