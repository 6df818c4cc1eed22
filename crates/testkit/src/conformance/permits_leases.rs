//! Permits are held under leases: expiry, renewal, release.

use longshore_core::PermitId;
use longshore_core::permits::AcquireRequest;

use super::permits_helpers::*;
use crate::PermitsFixture;

pub(super) async fn a_lease_that_runs_out_gives_its_permit_back(fixture: &PermitsFixture) {
    let dead = AcquireRequest { weight: 2, ..short_request(2) };
    fixture.acquire(&dead).await;
    fixture.advance(SHORT_TTL).await;
    fixture.acquire_one(2).await;
    let stats = fixture.stats().await;
    assert_eq!((stats.in_use, stats.expired), (1, 1));
    assert!(stats.holders.iter().all(|holder| holder.id != dead.id));
}

pub(super) async fn a_lease_that_is_extended_stays(fixture: &PermitsFixture) {
    let ask = AcquireRequest { ttl: MEDIUM_TTL, ..permit_request(1) };
    fixture.acquire(&ask).await;
    assert_eq!(fixture.extend(&[ask.id], LONG_TTL).await, []);
    fixture.advance(MEDIUM_TTL).await;
    fixture.queued_request(1).await;
}

pub(super) async fn asking_again_begins_the_lease_anew(fixture: &PermitsFixture) {
    let ask = AcquireRequest { ttl: MEDIUM_TTL, ..permit_request(1) };
    let grant = fixture.acquire(&ask).await;
    assert_eq!(fixture.acquire(&AcquireRequest { ttl: LONG_TTL, ..ask }).await, grant);
    fixture.advance(MEDIUM_TTL).await;
    fixture.queued_request(1).await;
}

pub(super) async fn a_lease_may_be_made_shorter(fixture: &PermitsFixture) {
    let holder = fixture.acquire_one(1).await;
    assert_eq!(fixture.extend(&[holder], SHORT_TTL).await, []);
    fixture.advance(SHORT_TTL).await;
    fixture.acquire_one(1).await;
}

pub(super) async fn extending_tells_which_are_lost(fixture: &PermitsFixture) {
    let (gone, returned, held) = (short_request(3), permit_request(3), permit_request(3));
    for ask in [&gone, &returned, &held] {
        fixture.acquire(ask).await;
    }
    fixture.release(returned.id).await;
    fixture.advance(SHORT_TTL).await;
    let unknown = PermitId::new();
    let mut lost = fixture.extend(&[gone.id, held.id, returned.id, unknown], LONG_TTL).await;
    lost.sort_unstable();
    let mut expected = [gone.id, returned.id, unknown];
    expected.sort_unstable();
    assert_eq!(lost, expected);
    assert_eq!(fixture.usage().await, (1, 0), "expired leases are not renewed");
    let nowhere = fixture.permits.renew(&pool_named("nowhere"), &[unknown], LONG_TTL).await;
    assert_eq!(nowhere.unwrap(), [unknown]);
}

pub(super) async fn one_who_waits_holds_nothing_to_extend(fixture: &PermitsFixture) {
    fixture.acquire_one(1).await;
    let waiter = fixture.queued_request(1).await;
    assert_eq!(fixture.extend(&[waiter.id], LONG_TTL).await, [waiter.id]);
    assert_eq!(fixture.usage().await, (1, 1), "and keeps its place");
}

pub(super) async fn nobody_gives_back_what_is_anothers(fixture: &PermitsFixture) {
    let holder = fixture.acquire_one(1).await;
    fixture.release(PermitId::new()).await;
    fixture.permits.release(&pool_named("nowhere"), &[holder], false).await.unwrap();
    fixture.queued_request(1).await;
    assert_eq!(fixture.permits.stats(&pool_named("nowhere")).await.unwrap(), None);
}

pub(super) async fn many_are_given_back_at_once(fixture: &PermitsFixture) {
    let ids = [fixture.acquire_one(3).await, fixture.acquire_one(3).await, PermitId::new()];
    fixture.acquire_one(3).await;
    fixture.permits.release(&pool(), &ids, false).await.unwrap();
    fixture.permits.release(&pool(), &[], false).await.unwrap();
    assert_eq!(fixture.usage().await, (1, 0));
}

pub(super) async fn leaving_gives_back_what_was_granted_meanwhile(fixture: &PermitsFixture) {
    let holder = fixture.acquire_one(1).await;
    let waiter = fixture.queued_request(1).await;
    fixture.release(holder).await;
    fixture.acquire(&waiter).await;
    fixture.release(waiter.id).await;
    assert_eq!(fixture.usage().await, (0, 0));
    fixture.acquire_one(1).await;
}

pub(super) async fn fences_grow_whatever_happens(fixture: &PermitsFixture) {
    let mut last = 0;
    let mut seen = async |ask: &AcquireRequest| {
        let fence = fixture.acquire(ask).await.fence;
        assert!(fence > last, "{fence} after {last}");
        last = fence;
    };
    let first = permit_request(3);
    seen(&first).await;
    seen(&short_request(3)).await;
    fixture.release(first.id).await;
    seen(&first).await;
    fixture.advance(SHORT_TTL).await;
    seen(&permit_request(3)).await;
    fixture.permits.reset(&pool()).await.unwrap();
    seen(&permit_request(3)).await;
    fixture.resize(9).await;
    seen(&permit_request(9)).await;
}

pub(super) async fn what_is_dropped_is_given_back(fixture: &PermitsFixture) {
    let holder = fixture.acquire_one(1).await;
    let waiter = fixture.queued_request(1).await;
    if !fixture.permits.try_release_now(&pool(), holder) {
        assert_eq!(fixture.usage().await, (1, 1), "false means that nothing happened");
        fixture.release(holder).await;
    }
    fixture.wait_and_acquire(&waiter).await;
    assert_eq!(fixture.usage().await, (1, 0));
}
