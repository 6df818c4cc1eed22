//! Claim order: which ready unit is claimed first, and by which claims.

use longshore_core::store::{ClaimRequest, Queues};
use longshore_core::{Kind, NewBatch, NewUnit, Outcome, Priority, UnitId};

use super::helpers::*;
use crate::StoreFixture;

fn unit_with_priority(priority: Priority) -> NewUnit {
    NewUnit { priority, ..unit() }
}

pub(super) async fn units_of_one_sender_go_in_the_order_of_sending(fixture: &StoreFixture) {
    let sent = fixture.send_many(20).await;
    let session = fixture.session().await;
    let mut got = ids(&fixture.claim(session, 7).await);
    got.extend(ids(&fixture.claim(session, 100).await));
    assert_eq!(got, sent);
}

pub(super) async fn older_units_go_before_newer_ones(fixture: &StoreFixture) {
    let mut newest_id_first = units(3);
    newest_id_first.reverse();
    let mut sent = vec![];
    for unit in newest_id_first {
        sent.push(fixture.send(unit).await);
        fixture.clock.advance(secs(1));
    }
    let session = fixture.session().await;
    assert_eq!(ids(&fixture.claim(session, 3).await), sent);
}

pub(super) async fn high_goes_before_normal_before_low(fixture: &StoreFixture) {
    let low = fixture.send(unit_with_priority(Priority::LOW)).await;
    let normal = fixture.send(unit_with_priority(Priority::NORMAL)).await;
    let high = fixture.send(unit_with_priority(Priority::HIGH)).await;
    let session = fixture.session().await;
    assert_eq!(ids(&fixture.claim(session, 3).await), [high, normal, low]);
}

pub(super) async fn a_low_unit_that_has_aged_passes_a_new_high_one(fixture: &StoreFixture) {
    let low = fixture.send(unit_with_priority(Priority::LOW)).await;
    fixture.clock.advance(secs(7 * 3600));
    let early = fixture.send(unit_with_priority(Priority::HIGH)).await;
    fixture.clock.advance(secs(2 * 3600));
    let late = fixture.send(unit_with_priority(Priority::HIGH)).await;
    let session = fixture.session().await;
    assert_eq!(ids(&fixture.claim(session, 3).await), [early, low, late]);
}

pub(super) async fn a_unit_ranks_by_when_it_became_ready(fixture: &StoreFixture) {
    let scheduled = fixture.send(NewUnit { not_before: Some(fixture.now() + secs(60)), ..unit() }).await;
    fixture.clock.advance(secs(30));
    let sent_later = fixture.send(unit()).await;
    fixture.clock.advance(secs(60));
    fixture.promote().await;
    let session = fixture.session().await;
    assert_eq!(ids(&fixture.claim(session, 2).await), [sent_later, scheduled]);
}

/// Leases all ready units, which must be `expected` in this order, and releases them.
async fn assert_order_after_release(fixture: &StoreFixture, expected: &[UnitId]) {
    let session = fixture.session().await;
    for turn in ["at first", "after the release"] {
        let held = fixture.claim_with(ClaimRequest { prefetch: 9, ..claim(session, 0) }).await.units;
        assert_eq!(ids(&held), expected, "{turn}");
        fixture.store.release(session, &leases(&held)).await.unwrap();
        fixture.clock.advance(secs(1));
    }
}

pub(super) async fn a_released_unit_keeps_its_place(fixture: &StoreFixture) {
    let mut sent = vec![];
    for _ in 0..3 {
        sent.push(fixture.send(unit()).await);
        fixture.clock.advance(secs(1));
    }
    assert_order_after_release(fixture, &sent).await;
}

pub(super) async fn a_released_unit_does_not_pass_units_that_were_ready_before_it(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let retried = fixture.send_and_finish(session, retry_after(secs(60))).await;
    let failed = fixture.send_and_finish(session, failed()).await;
    let scheduled = fixture.send(NewUnit { not_before: Some(fixture.now() + secs(90)), ..unit() }).await;
    fixture.clock.advance(secs(30));
    let sent_later = fixture.send(unit()).await;
    for _ in 0..2 {
        fixture.clock.advance(secs(40));
        fixture.promote().await;
    }
    fixture.clock.advance(secs(1));
    fixture.retry(failed).await;
    assert_order_after_release(fixture, &[sent_later, retried, scheduled, failed]).await;
}

pub(super) async fn an_interrupted_unit_keeps_its_place(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let snoozed = fixture.send_and_finish(session, Outcome::Snooze(secs(60))).await;
    fixture.clock.advance(secs(30));
    let sent_later = fixture.send(unit()).await;
    fixture.clock.advance(secs(60));
    fixture.promote().await;
    let held = fixture.claim(session, 2).await;
    assert_eq!(ids(&held), [sent_later, snoozed]);
    fixture.finish_all(session, &held, Outcome::Interrupted).await;
    assert_eq!(ids(&fixture.claim(session, 2).await), [sent_later, snoozed]);
}

pub(super) async fn only_the_asked_kinds_are_claimed(fixture: &StoreFixture) {
    let other = Kind::new("other").unwrap();
    let theirs = fixture.send(NewUnit { kind: other.clone(), ..unit() }).await;
    let ours = fixture.send(unit()).await;
    let session = fixture.session().await;
    assert_eq!(ids(&fixture.claim(session, 10).await), [ours]);
    let both = ClaimRequest { kinds: vec![kind(), other], ..claim(session, 10) };
    assert_eq!(ids(&fixture.claim_with(both).await.units), [theirs]);
}

pub(super) async fn only_the_asked_queues_are_claimed(fixture: &StoreFixture) {
    let mail = fixture.send(NewUnit { queue: queue("mail"), ..unit() }).await;
    let own = fixture.send(NewUnit { queue: queue("default/x"), ..unit() }).await;
    let plain = fixture.send(unit()).await;
    let session = fixture.session().await;
    let named = |names: &[&str]| {
        let names = names.iter().map(queue_of).collect();
        ClaimRequest { queues: Queues::Named(names), ..claim(session, 10) }
    };
    assert!(fixture.claim_with(named(&["nothing"])).await.units.is_empty());
    assert_eq!(ids(&fixture.claim_with(named(&["mail"])).await.units), [mail]);
    let rest = ids(&fixture.claim_with(named(&["default", "default/x"])).await.units);
    assert_eq!(rest.len(), 2);
    assert!(rest.contains(&own) && rest.contains(&plain));
}

fn queue_of(name: &&str) -> longshore_core::QueueName {
    queue(name)
}

pub(super) async fn only_the_asked_batch_is_claimed(fixture: &StoreFixture) {
    fixture.send(unit()).await;
    let a = fixture.send_sealed_batch(NewBatch::new(batch_id("a")), 2).await;
    fixture.send_sealed_batch(NewBatch::new(batch_id("b")), 2).await;
    let session = fixture.session().await;
    let only = ClaimRequest { batch: Some(batch_id("a")), ..claim(session, 10) };
    assert_eq!(ids(&fixture.claim_with(only).await.units), a);
}

pub(super) async fn a_claim_for_nothing_gets_nothing(fixture: &StoreFixture) {
    fixture.send_many(3).await;
    let session = fixture.session().await;
    assert!(fixture.claim(session, 0).await.is_empty());
    let no_kinds = ClaimRequest { kinds: vec![], ..claim(session, 5) };
    assert!(fixture.claim_with(no_kinds).await.units.is_empty());
}
