//! Cap keys: how many units with the same key may be leased at once.

use longshore_core::batch::BatchAction;
use longshore_core::store::ClaimRequest;
use longshore_core::unit::ConcurrencyCap;
use longshore_core::{BatchId, Kind, NewBatch, NewUnit, Outcome};

use super::helpers::*;
use crate::StoreFixture;

fn capped(key: &str, limit: u32) -> NewUnit {
    NewUnit { cap: Some(ConcurrencyCap { key: key.to_owned(), limit }), ..unit() }
}

pub(super) async fn units_of_a_key_at_its_limit_are_passed_over(fixture: &StoreFixture) {
    for _ in 0..3 {
        fixture.send(capped("host", 2)).await;
    }
    let other = fixture.send(capped("elsewhere", 1)).await;
    let plain = fixture.send(unit()).await;
    let session = fixture.session().await;
    let held = fixture.claim(session, 9).await;
    assert_eq!(held.len(), 4);
    assert!(ids(&held).contains(&other) && ids(&held).contains(&plain));
    let other = fixture.session().await;
    assert!(fixture.claim(other, 9).await.is_empty(), "the limit is the store's, not a worker's");
}

pub(super) async fn every_end_of_a_lease_frees_its_key(fixture: &StoreFixture) {
    for _ in 0..5 {
        fixture.send(capped("host", 1)).await;
    }
    let session = fixture.session().await;
    for outcome in [done(), failed(), retry_after(secs(60)), Outcome::Snooze(secs(60))] {
        let held = fixture.claim_one(session).await;
        assert!(fixture.claim(session, 9).await.is_empty());
        fixture.finish(session, held.lease, outcome).await;
    }
    fixture.claim_one(session).await;
    fixture.kill(session).await;
    let session = fixture.session().await;
    fixture.claim_one(session).await;
}

pub(super) async fn capped_units_are_never_claimed_ahead(fixture: &StoreFixture) {
    let first = fixture.send(unit()).await;
    let capped = fixture.send(capped("host", 5)).await;
    let last = fixture.send(unit()).await;
    let session = fixture.session().await;
    let ahead = fixture.claim_with(ClaimRequest { prefetch: 5, ..claim(session, 0) }).await;
    assert_eq!(ids(&ahead.units), [first], "else a worker with a full buffer would pass it over for ever");
    assert!(ahead.heavy_waiting);
    let held = fixture.claim_with(ClaimRequest { prefetch: 5, ..claim(session, 1) }).await.units;
    assert_eq!((ids(&held), held[0].started, held[1].started), (vec![capped, last], true, false));
}

pub(super) async fn keys_of_tenants_and_queues_are_counted_apart(fixture: &StoreFixture) {
    fixture.send(capped("host", 1)).await;
    fixture.send(NewUnit { tenant: tenant("acme"), ..capped("host", 1) }).await;
    fixture.send(NewUnit { queue: queue("other"), ..capped("host", 1) }).await;
    let session = fixture.session().await;
    assert_eq!(fixture.claim(session, 9).await.len(), 3);
}

/// Opens a sealed batch of three units with one cap key.
async fn capped_batch(fixture: &StoreFixture, name: &str) -> BatchId {
    let id = fixture.open_batch(NewBatch::new(batch_id(name))).await.id;
    let units = (0..3).map(|_| capped("host", 1)).collect();
    fixture.add_chunk(&id, "", "end", units).await;
    fixture.store.seal_batch(&ALL, &id).await.unwrap();
    fixture.clock.advance(secs(1));
    id
}

pub(super) async fn parked_units_of_a_paused_batch_do_not_block_their_key(fixture: &StoreFixture) {
    let session = fixture.session().await;
    fixture.send(capped("host", 1)).await;
    let first = fixture.claim_one(session).await;
    let paused = capped_batch(fixture, "paused").await;
    let open = capped_batch(fixture, "open").await;
    assert!(fixture.claim(session, 9).await.is_empty(), "the key is at its limit");
    fixture.act_on_batch(&paused, BatchAction::Pause { reason: "test".to_owned() }).await;
    let mut held = first;
    for _ in 0..3 {
        fixture.finish(session, held.lease, done()).await;
        held = fixture.claim_one(session).await;
        assert_eq!(held.unit.batch.as_ref(), Some(&open));
    }
    fixture.act_on_batch(&paused, BatchAction::Resume).await;
    for _ in 0..3 {
        fixture.finish(session, held.lease, done()).await;
        held = fixture.claim_one(session).await;
        assert_eq!(held.unit.batch.as_ref(), Some(&paused));
    }
}

pub(super) async fn parked_units_of_another_kind_do_not_block_their_key(fixture: &StoreFixture) {
    let session = fixture.session().await;
    fixture.send(capped("host", 1)).await;
    let first = fixture.claim_one(session).await;
    let other = Kind::new("other").unwrap();
    let theirs = fixture.send(NewUnit { kind: other.clone(), ..capped("host", 1) }).await;
    fixture.clock.advance(secs(1));
    let ours = fixture.send(capped("host", 1)).await;
    let both = || ClaimRequest { kinds: vec![kind(), other.clone()], ..claim(session, 9) };
    assert!(fixture.claim_with(both()).await.units.is_empty(), "the key is at its limit");
    fixture.finish(session, first.lease, done()).await;
    let held = fixture.claim_one(session).await;
    assert_eq!(held.unit.id, ours, "this worker does not handle the first unit");
    fixture.finish(session, held.lease, done()).await;
    assert_eq!(ids(&fixture.claim_with(both()).await.units), [theirs]);
}
