//! Scopes: a tenant cannot see the data of another tenant.

use longshore_core::batch::BatchAction;
use longshore_core::store::{
    BatchChunk, Capacity, ClaimRequest, LaneChange, OpenBatchResult, QueueChange, Queues, SendRejection,
    SendResult, Topic, UnitAction, UnitFilter, UnitSelection,
};
use longshore_core::unit::{DedupWindow, OnDuplicate};
use longshore_core::{Callback, Dedup, Error, NewBatch, NewUnit, Payload, UnitState};

use super::helpers::*;
use crate::StoreFixture;

fn acme_unit() -> NewUnit {
    NewUnit { tenant: tenant("acme"), ..unit() }
}

fn acme_batch() -> NewBatch {
    NewBatch { tenant: tenant("acme"), ..NewBatch::new(batch_id("b")) }
}

pub(super) async fn a_tenant_sends_for_itself_only(fixture: &StoreFixture) {
    let own = fixture.store.send(&tenant_scope("acme"), vec![acme_unit()]).await;
    assert!(own.is_ok());
    let foreign = acme_unit();
    let id = foreign.id;
    assert!(fixture.store.send(&tenant_scope("other"), vec![foreign]).await.is_err());
    assert!(fixture.store.unit(&ALL, id).await.is_err(), "it was not taken");
}

pub(super) async fn a_tenant_reads_its_own_units_only(fixture: &StoreFixture) {
    let id = fixture.send(acme_unit()).await;
    assert!(fixture.store.unit(&tenant_scope("acme"), id).await.is_ok());
    let unit = fixture.store.unit(&tenant_scope("other"), id).await;
    assert!(matches!(unit, Err(Error::NotFound { .. })), "{unit:?}");
    assert!(fixture.store.failures(&tenant_scope("other"), id).await.is_err());
    let filter = UnitFilter::default();
    let page = fixture.store.units(&tenant_scope("other"), &filter, None, 10).await.unwrap();
    assert!(page.items.is_empty() && page.next.is_none());
    assert_eq!(fixture.store.units(&tenant_scope("acme"), &filter, None, 10).await.unwrap().items.len(), 1);
}

pub(super) async fn a_tenant_claims_its_own_units_only(fixture: &StoreFixture) {
    let mine = fixture.send(acme_unit()).await;
    fixture.send(unit()).await;
    let session = fixture.session().await;
    let other_tenant = ClaimRequest { scope: tenant_scope("nobody"), ..claim(session, 9) };
    assert!(fixture.claim_with(other_tenant).await.units.is_empty());
    let acme = ClaimRequest { scope: tenant_scope("acme"), ..claim(session, 9) };
    assert_eq!(ids(&fixture.claim_with(acme).await.units), [mine]);
}

pub(super) async fn a_tenant_operates_on_its_own_units_only(fixture: &StoreFixture) {
    let id = fixture.send(acme_unit()).await;
    let ids = UnitSelection::Ids(vec![id]);
    let answer = fixture.store.apply_unit_action(&tenant_scope("other"), ids, UnitAction::Cancel).await;
    assert!(matches!(answer, Err(Error::NotFound { .. })), "{answer:?}");
    let all = UnitSelection::Queue(queue("default"), UnitState::Ready);
    let answer = fixture.store.apply_unit_action(&tenant_scope("other"), all, UnitAction::Cancel).await;
    assert_eq!(answer.map_or(0, |done| done.changed), 0);
    assert_eq!(fixture.state(id).await, UnitState::Ready);
}

pub(super) async fn a_batch_belongs_to_its_tenant(fixture: &StoreFixture) {
    let id = batch_id("b");
    fixture.store.open_batch(&tenant_scope("acme"), acme_batch()).await.unwrap();
    let other = tenant_scope("other");
    assert!(fixture.store.batch(&other, &id).await.is_err());
    assert!(fixture.store.seal_batch(&other, &id).await.is_err());
    let (expected, next) = (String::new(), "1".to_owned());
    let units = vec![NewUnit { tenant: tenant("other"), ..unit() }];
    let chunk = BatchChunk { expected, next, units };
    assert!(fixture.store.add_to_batch(&other, &id, chunk).await.is_err());
    assert!(fixture.store.apply_batch_action(&other, &id, BatchAction::Cancel).await.is_err());
    assert!(fixture.store.batches(&other, None, None, 10).await.unwrap().items.is_empty());
    assert_eq!(fixture.store.batches(&tenant_scope("acme"), None, None, 10).await.unwrap().items.len(), 1);
    assert!(fixture.store.batch(&tenant_scope("acme"), &id).await.is_ok());
}

pub(super) async fn a_batch_takes_its_own_tenants_units_only(fixture: &StoreFixture) {
    let id = batch_id("acme/b");
    fixture.open_batch(acme_batch()).await;
    let (expected, next) = (String::new(), "2".to_owned());
    let chunk = BatchChunk { expected, next, units: vec![acme_unit(), unit()] };
    assert!(fixture.store.add_to_batch(&ALL, &id, chunk).await.is_err());
    assert_eq!(fixture.batch(&id).await.counts.total(), 0, "no unit of the send is stored");
}

pub(super) async fn two_tenants_may_use_the_same_batch_name(fixture: &StoreFixture) {
    let (acme, other) = (tenant_scope("acme"), tenant_scope("other"));
    fixture.store.open_batch(&acme, acme_batch()).await.unwrap();
    let theirs = || NewBatch { tenant: tenant("other"), ..acme_batch() };
    let opened = fixture.store.open_batch(&other, theirs()).await.unwrap();
    assert!(matches!(opened, OpenBatchResult::Created(_)), "{opened:?}");
    assert!(fixture.store.open_batch(&other, acme_batch()).await.is_err());
    let squatted = NewBatch { id: batch_id("acme/c"), ..theirs() };
    assert!(fixture.store.open_batch(&other, squatted).await.is_err());
    let (own, full) = (batch_id("b"), batch_id("acme/b"));
    fixture.store.seal_batch(&acme, &own).await.unwrap();
    for (scope, id, expected) in
        [(&acme, &own, true), (&acme, &full, true), (&ALL, &full, true), (&other, &own, false)]
    {
        assert_eq!(fixture.store.batch(scope, id).await.unwrap().sealed, expected, "{scope:?} {id}");
    }
    assert!(fixture.store.batch(&other, &full).await.is_err());
    assert!(fixture.store.batch(&ALL, &own).await.is_err(), "the default tenant's");
}

pub(super) async fn a_tenant_sees_its_own_lanes_and_totals_only(fixture: &StoreFixture) {
    fixture.send(acme_unit()).await;
    fixture.send_many(2).await;
    let lanes = fixture.store.queues(&tenant_scope("acme")).await.unwrap();
    assert_eq!(lanes.len(), 1);
    assert_eq!(lanes[0].tenant, tenant("acme"));
    let totals = fixture.store.totals(&tenant_scope("acme"), &Queues::All).await.unwrap();
    assert_eq!(totals.counts.total(), 1);
    assert_eq!(fixture.store.totals(&ALL, &Queues::All).await.unwrap().counts.total(), 3);
}

pub(super) async fn a_tenant_steers_its_own_queues_only(fixture: &StoreFixture) {
    let pause = QueueChange { paused: Some(true), capacity: None };
    let acme = tenant_scope("acme");
    assert!(fixture.store.change_queue(&acme, &queue("acme/mail"), pause).await.is_ok());
    assert!(fixture.store.change_queue(&acme, &queue("other/mail"), pause).await.is_err());
    assert!(fixture.store.change_queue(&acme, &queue("shared"), pause).await.is_err());
    let lane = LaneChange { paused: Some(true), ..LaneChange::default() };
    let others = tenant("other");
    assert!(fixture.store.change_lane(&acme, &queue("shared"), &others, lane).await.is_err());
}

pub(super) async fn a_tenant_cannot_wait_for_anothers_unit(fixture: &StoreFixture) {
    let theirs = fixture.send(acme_unit()).await;
    let mut mine = NewUnit { tenant: tenant("other"), ..unit() };
    mine.dependencies.units = vec![theirs];
    for scope in [tenant_scope("other"), ALL] {
        let answers = fixture.store.send(&scope, vec![mine.clone()]).await.unwrap();
        assert_eq!(answers, [SendResult::Rejected(SendRejection::UnknownDependency(theirs))]);
    }
}

pub(super) async fn a_tenant_hears_of_its_own_batches_only(fixture: &StoreFixture) {
    fixture.store.open_batch(&ALL, acme_batch()).await.unwrap();
    let heard = async |who: &str| {
        let changes = fixture.store.changes(&tenant_scope(who), 0, secs(0)).await.unwrap().changes;
        changes.iter().any(|change| change.topic == Topic::Batch(batch_id("acme/b")))
    };
    assert!(heard("acme").await);
    assert!(!heard("other").await);
}

pub(super) async fn a_callback_to_another_tenants_queue_is_refused(fixture: &StoreFixture) {
    let to = |name: &str| {
        let (queue, kind) = (queue(name), kind());
        let callback = Some(Callback::new(queue, kind, serde_json::Value::Null));
        NewBatch { callback, ..acme_batch() }
    };
    for scope in [tenant_scope("acme"), ALL] {
        let refused = fixture.store.open_batch(&scope, to("other/mail")).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    assert!(fixture.store.batch(&ALL, &batch_id("b")).await.is_err(), "nothing was written");
    assert!(fixture.store.open_batch(&tenant_scope("acme"), to("acme/mail")).await.is_ok());
}

pub(super) async fn anothers_unit_id_is_of_no_use_to_a_sender(fixture: &StoreFixture) {
    for size in [10, 5_000] {
        let bytes = |byte: u8| Payload::from(vec![byte; size]);
        let theirs = NewUnit { payload: bytes(b'a'), ..acme_unit() };
        let id = fixture.send(theirs).await;
        let before = fixture.unit(id).await;
        let forged = || {
            let (tenant, payload) = (tenant("other"), bytes(b'x'));
            NewUnit { id, tenant, payload, ..unit() }
        };
        let mut keyed = forged();
        keyed.dedup = Some(Dedup {
            key: size.to_string(),
            window: DedupWindow::WhileLive,
            on_duplicate: OnDuplicate::Existing,
        });
        for unit in [forged(), keyed] {
            let answers = fixture.store.send(&tenant_scope("other"), vec![unit]).await.unwrap();
            assert_eq!(answers, [SendResult::Rejected(SendRejection::IdTaken(id))]);
        }
        let name = format!("b{size}");
        let batch = NewBatch { tenant: tenant("other"), ..NewBatch::new(batch_id(&name)) };
        fixture.open_batch(batch).await;
        let (expected, next) = (String::new(), "1".to_owned());
        let chunk = BatchChunk { expected, next, units: vec![forged()] };
        _ = fixture.store.add_to_batch(&tenant_scope("other"), &batch_id(&name), chunk).await;
        assert_eq!(fixture.unit(id).await, before, "nothing of it was changed");
        assert!(fixture.store.unit(&tenant_scope("other"), id).await.is_err());
        assert_eq!(fixture.batch(&batch_id(&format!("other/{name}"))).await.counts.total(), 0);
    }
}

pub(super) async fn a_tenant_pauses_its_lane_but_does_not_set_its_share(fixture: &StoreFixture) {
    let (acme, shared, own) = (tenant_scope("acme"), queue("shared"), queue("acme/mail"));
    let capacity = Some(Capacity { units: Some(1), bytes: None });
    let none = LaneChange::default;
    let set = [
        LaneChange { weight: Some(9), ..none() },
        LaneChange { cap: Some(Some(9)), ..none() },
        LaneChange { capacity, ..none() },
        LaneChange { paused: Some(true), weight: Some(9), ..none() },
    ];
    for change in set {
        let refused = fixture.store.change_lane(&acme, &shared, &tenant("acme"), change).await;
        assert!(refused.is_err(), "{change:?}");
        fixture.store.change_lane(&acme, &own, &tenant("acme"), change).await.unwrap();
        fixture.store.change_lane(&ALL, &shared, &tenant("acme"), change).await.unwrap();
    }
    let id = fixture.send(NewUnit { queue: shared.clone(), ..acme_unit() }).await;
    let session = fixture.session().await;
    for paused in [true, false] {
        let change = LaneChange { paused: Some(paused), ..none() };
        fixture.store.change_lane(&acme, &shared, &tenant("acme"), change).await.unwrap();
        let expected = if paused { vec![] } else { vec![id] };
        assert_eq!(ids(&fixture.claim(session, 9).await), expected);
    }
}

pub(super) async fn a_tenant_hears_of_its_own_awaited_units_only(fixture: &StoreFixture) {
    let id = fixture.send(NewUnit { awaited: true, ..acme_unit() }).await;
    fixture.cancel(id).await;
    let heard = async |who: &str| {
        let changes = fixture.store.changes(&tenant_scope(who), 0, secs(0)).await.unwrap().changes;
        changes.iter().any(|change| change.topic == Topic::Unit(id))
    };
    assert!(heard("acme").await);
    assert!(!heard("other").await);
}

pub(super) async fn a_pause_is_heard_by_tenants_with_a_lane_only(fixture: &StoreFixture) {
    fixture.send(NewUnit { queue: queue("shared"), ..acme_unit() }).await;
    let pause = QueueChange { paused: Some(true), capacity: None };
    for name in ["shared", "acme/mail"] {
        fixture.store.change_queue(&ALL, &queue(name), pause).await.unwrap();
    }
    let heard = async |who: &str, name: &str| {
        let changes = fixture.store.changes(&tenant_scope(who), 0, secs(0)).await.unwrap().changes;
        changes.iter().any(|change| change.topic == Topic::Queue(queue(name)))
    };
    for name in ["shared", "acme/mail"] {
        assert!(heard("acme", name).await, "{name}");
        assert!(!heard("other", name).await, "{name}");
    }
}
