//! The definition of a batch, and the sums that the checkpoints of its units add to.

use longshore_core::batch::Sums;
use longshore_core::store::CheckpointRequest;
use longshore_core::store::Retention;
use longshore_core::{NewBatch, NewUnit, Payload, Scope, SessionId};

use super::helpers::*;
use crate::StoreFixture;

fn state(text: &str) -> Payload {
    Payload::from(text.as_bytes())
}

fn sums(tokens: i64) -> Sums {
    Sums::from([("answers".to_owned(), 1), ("tokens".to_owned(), tokens)])
}

async fn save_checkpoint(fixture: &StoreFixture, session: SessionId, at: &str, tokens: i64) -> bool {
    let leases = fixture.store.leases_of(session).await.unwrap();
    fixture
        .store
        .checkpoint(
            session,
            leases[0],
            CheckpointRequest { sums: sums(tokens), ..CheckpointRequest::new(state(at)) },
        )
        .await
        .unwrap()
}

pub(super) async fn a_definition_is_kept_with_its_batch(fixture: &StoreFixture) {
    let (plain, described) = (batch_id("plain"), batch_id("described"));
    fixture.open_batch(NewBatch::new(plain.clone())).await;
    let definition = Some(state("{\"a\":1}"));
    fixture.open_batch(NewBatch { definition: definition.clone(), ..NewBatch::new(described.clone()) }).await;
    assert_eq!(fixture.store.definition(&ALL, &plain).await.unwrap(), None);
    assert_eq!(fixture.store.definition(&ALL, &described).await.unwrap(), definition);
    let change = async |scope: &Scope, from: &str, to: &str| {
        fixture.store.change_definition(scope, &described, state(from), state(to)).await
    };
    change(&ALL, "{\"a\":1}", "{\"a\":2}").await.unwrap();
    change(&ALL, "{\"a\":1}", "{\"a\":2}").await.unwrap();
    assert!(change(&ALL, "{\"a\":1}", "{\"a\":3}").await.is_err(), "it was changed meanwhile");
    assert!(change(&tenant_scope("acme"), "{\"a\":2}", "{\"a\":3}").await.is_err(), "another tenant's");
    assert_eq!(fixture.store.definition(&ALL, &described).await.unwrap(), Some(state("{\"a\":2}")));
    let other = fixture.store.definition(&tenant_scope("acme"), &described).await;
    assert!(other.is_err(), "another tenant's batch does not exist");
    assert!(fixture.store.definition(&ALL, &batch_id("none")).await.is_err());
}

pub(super) async fn a_checkpoint_moves_the_sums_of_its_batch(fixture: &StoreFixture) {
    let id = batch_id("b");
    fixture.send_sealed_batch(NewBatch::new(id.clone()), 2).await;
    let session = fixture.session().await;
    for (at, tokens) in [("first", 10), ("second", 32)] {
        let held = fixture.claim_one(session).await;
        assert!(save_checkpoint(fixture, session, at, tokens).await);
        assert_eq!(fixture.batch(&id).await.sums["tokens"], if at == "first" { 10 } else { 42 });
        fixture.finish(session, held.lease, done()).await;
    }
    assert_eq!(fixture.batch(&id).await.sums, Sums::from([("answers".into(), 2), ("tokens".into(), 42)]));
    let listed = fixture.store.batches(&ALL, None, None, 10).await.unwrap().items;
    assert_eq!(listed[0].sums["tokens"], 42);
}

pub(super) async fn a_state_kept_twice_is_summed_once(fixture: &StoreFixture) {
    let id = batch_id("b");
    fixture.send_sealed_batch(NewBatch::new(id.clone()), 1).await;
    let session = fixture.session().await;
    fixture.claim_one(session).await;
    let large = "x".repeat(5_000);
    for at in ["here", "here", &large, &large] {
        assert!(save_checkpoint(fixture, session, at, 5).await);
    }
    assert_eq!(fixture.batch(&id).await.sums["tokens"], 10, "two checkpoints, each sent twice");
}

pub(super) async fn a_lost_lease_adds_nothing(fixture: &StoreFixture) {
    let id = batch_id("b");
    fixture.send_sealed_batch(NewBatch::new(id.clone()), 1).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    fixture.kill(session).await;
    let kept = fixture
        .store
        .checkpoint(
            session,
            held.lease,
            CheckpointRequest { sums: sums(5), ..CheckpointRequest::new(state("here")) },
        )
        .await
        .unwrap();
    assert!(!kept);
    assert!(fixture.batch(&id).await.sums.is_empty());
}

pub(super) async fn a_sum_stops_at_the_largest_number(fixture: &StoreFixture) {
    let id = batch_id("b");
    fixture.send_sealed_batch(NewBatch::new(id.clone()), 1).await;
    let session = fixture.session().await;
    let lease = fixture.claim_one(session).await.lease;
    for (at, amount) in [("first", i64::MAX - 1), ("second", 7), ("third", 7)] {
        let sums = Sums::from([("most".to_owned(), amount), ("least".to_owned(), -amount - 1)]);
        assert!(
            fixture
                .store
                .checkpoint(session, lease, CheckpointRequest { sums, ..CheckpointRequest::new(state(at)) })
                .await
                .unwrap()
        );
    }
    let bounds = Sums::from([("most".to_owned(), i64::MAX), ("least".to_owned(), i64::MIN)]);
    assert_eq!(fixture.batch(&id).await.sums, bounds);
    let listed = fixture.store.batches(&ALL, None, None, 10).await.unwrap().items;
    assert_eq!(listed[0].sums, bounds, "it can still be listed");
}

pub(super) async fn a_unit_of_no_batch_has_nothing_to_add_to(fixture: &StoreFixture) {
    fixture.send(NewUnit { ..unit() }).await;
    let session = fixture.session().await;
    fixture.claim_one(session).await;
    assert!(save_checkpoint(fixture, session, "here", 5).await);
}

pub(super) async fn a_pruned_batch_leaves_no_sums_to_its_namesake(fixture: &StoreFixture) {
    let id = batch_id("b");
    fixture.send_sealed_batch(NewBatch::new(id.clone()), 1).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    save_checkpoint(fixture, session, "here", 5).await;
    fixture.finish(session, held.lease, done()).await;
    fixture.clock.advance(secs(100 * 24 * 3600));
    for _ in 0..3 {
        fixture.store.prune(Retention::default(), 100).await.unwrap();
    }
    assert!(fixture.store.batch(&ALL, &id).await.is_err(), "it was kept long enough");
    fixture.open_batch(NewBatch::new(id.clone())).await;
    assert!(fixture.batch(&id).await.sums.is_empty());
}
