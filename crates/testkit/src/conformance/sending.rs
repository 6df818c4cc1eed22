//! Sending: accepted units are stored whole and once; invalid units are rejected.

use longshore_core::store::{SendRejection, SendResult};
use longshore_core::unit::{ConcurrencyCap, Dedup, DedupWindow, MAX_PAYLOAD, OnDuplicate, Weight};
use longshore_core::{NewUnit, Payload, Policy, Priority, UnitState};

use super::helpers::*;
use crate::StoreFixture;

pub(super) async fn a_sent_unit_is_ready_and_whole(fixture: &StoreFixture) {
    let sent = NewUnit {
        payload: Payload::from(b"hello".as_slice()),
        priority: Priority::HIGH,
        dedup: Some(dedup_key("row-1")),
        deadline: Some(fixture.now() + secs(60)),
        weight: Weight { slots: 2, resources: [("gpu".to_owned(), 1)].into() },
        cap: Some(ConcurrencyCap { key: "host".into(), limit: 3 }),
        policy: Some(Policy { max_lost: 7, ..attempts(9) }),
        trace: Some("00-abc-def-01".into()),
        ..unit()
    };
    fixture.send(sent.clone()).await;
    let unit = fixture.unit(sent.id).await;
    assert_eq!((unit.state, unit.attempt, unit.lost), (UnitState::Ready, 0, 0));
    assert_eq!((unit.created_at, unit.since), (fixture.now(), fixture.now()));
    assert_eq!(unit.payload.as_bytes(), b"hello");
    assert_eq!((unit.tenant, unit.queue, unit.kind), (sent.tenant, sent.queue, sent.kind));
    assert_eq!((unit.priority, unit.deadline), (sent.priority, sent.deadline));
    assert_eq!((unit.weight, unit.cap, unit.policy), (sent.weight, sent.cap, sent.policy));
    assert_eq!((unit.trace, unit.key.as_deref()), (sent.trace, Some("row-1")));
    assert_eq!((unit.batch, unit.session, unit.failure), (None, None, None));
    assert_eq!((unit.result, unit.checkpoint, unit.started_at), (None, None, None));
}

pub(super) async fn sending_the_same_id_again_changes_nothing(fixture: &StoreFixture) {
    let first = unit();
    let id = fixture.send(first.clone()).await;
    let other = NewUnit { payload: Payload::from(b"other".as_slice()), ..first };
    assert_eq!(fixture.try_send(other.clone()).await, SendResult::Created(id));
    assert_eq!(fixture.unit(id).await.payload.as_bytes(), b"{}");
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, done()).await;
    assert_eq!(fixture.try_send(other).await, SendResult::Created(id), "even after its end");
    assert_eq!(fixture.state(id).await, UnitState::Done);
}

pub(super) async fn answers_come_in_the_order_of_the_units(fixture: &StoreFixture) {
    let units = units(50);
    let expected: Vec<SendResult> = units.iter().map(|unit| SendResult::Created(unit.id)).collect();
    assert_eq!(fixture.store.send(&ALL, units).await.unwrap(), expected);
}

pub(super) async fn a_refused_unit_does_not_hold_up_its_neighbours(fixture: &StoreFixture) {
    let taken = NewUnit { dedup: Some(dedup_key("taken")), ..unit() };
    let first = fixture.send(taken.clone()).await;
    let mut again = NewUnit { dedup: Some(dedup_key("taken")), ..unit() };
    again.dedup.as_mut().unwrap().on_duplicate = OnDuplicate::Rejected;
    let (before, after) = (unit(), unit());
    let expected = [
        SendResult::Created(before.id),
        SendResult::Rejected(SendRejection::Duplicate(first)),
        SendResult::Created(after.id),
    ];
    let answers = fixture.store.send(&ALL, vec![before, again, after]).await.unwrap();
    assert_eq!(answers, expected);
}

pub(super) async fn an_invalid_unit_fails_the_whole_send(fixture: &StoreFixture) {
    let good = unit();
    let bad = NewUnit { weight: Weight { slots: 0, ..Weight::default() }, ..unit() };
    let id = good.id;
    assert!(fixture.store.send(&ALL, vec![good, bad]).await.is_err());
    assert!(fixture.store.unit(&ALL, id).await.is_err(), "no unit of the send is stored");
}

pub(super) async fn an_oversized_payload_is_refused(fixture: &StoreFixture) {
    let large = NewUnit { payload: Payload::from(vec![b'x'; MAX_PAYLOAD + 1]), ..unit() };
    assert!(fixture.store.send(&ALL, vec![large]).await.is_err());
}

pub(super) async fn a_unit_for_another_tenants_queue_is_refused(fixture: &StoreFixture) {
    let bad = NewUnit { tenant: tenant("acme"), queue: queue("other/mail"), ..unit() };
    assert!(fixture.store.send(&ALL, vec![bad]).await.is_err());
}

pub(super) async fn a_unit_for_later_waits_for_its_time(fixture: &StoreFixture) {
    let due = fixture.now() + secs(60);
    let id = fixture.send(NewUnit { not_before: Some(due), ..unit() }).await;
    let session = fixture.session().await;
    let waiting = fixture.unit(id).await;
    assert_eq!((waiting.state, waiting.since), (UnitState::Scheduled, due));
    fixture.promote().await;
    assert!(fixture.claim(session, 1).await.is_empty());
    fixture.clock.set(due);
    fixture.promote().await;
    assert_eq!(fixture.claim_one(session).await.unit.id, id);
}

pub(super) async fn a_unit_for_the_past_is_ready_at_once(fixture: &StoreFixture) {
    let id = fixture.send(NewUnit { not_before: Some(fixture.now()), ..unit() }).await;
    assert_eq!(fixture.state(id).await, UnitState::Ready);
}

pub(super) async fn bytes_survive_whatever_they_are(fixture: &StoreFixture) {
    for bytes in [vec![], vec![0, 255, 254, 0], "ünïcode \u{1f600}'\"\\".as_bytes().to_vec()] {
        let id = fixture.send(NewUnit { payload: Payload::from(bytes.clone()), ..unit() }).await;
        assert_eq!(fixture.unit(id).await.payload.as_bytes(), bytes);
    }
}

pub(super) async fn an_empty_send_is_harmless(fixture: &StoreFixture) {
    assert_eq!(fixture.store.send(&ALL, vec![]).await.unwrap(), []);
}

fn dedup_key(key: &str) -> Dedup {
    let (window, on_duplicate) = (DedupWindow::WhileLive, OnDuplicate::Existing);
    Dedup { key: key.to_owned(), window, on_duplicate }
}
