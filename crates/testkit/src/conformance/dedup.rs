//! Dedup keys: how long a key is taken, and the answer to a second send.

use longshore_core::store::{Retention, SendRejection, SendResult};
use longshore_core::unit::{Dedup, DedupWindow, OnDuplicate};
use longshore_core::{NewUnit, UnitState};

use super::helpers::*;
use crate::StoreFixture;

fn keyed(key: &str, window: DedupWindow) -> NewUnit {
    let on_duplicate = OnDuplicate::Existing;
    NewUnit { dedup: Some(Dedup { key: key.to_owned(), window, on_duplicate }), ..unit() }
}

fn live(key: &str) -> NewUnit {
    keyed(key, DedupWindow::WhileLive)
}

pub(super) async fn a_taken_key_answers_with_the_first(fixture: &StoreFixture) {
    let first = fixture.send(live("row")).await;
    let second = live("row");
    let id = second.id;
    assert_eq!(fixture.try_send(second).await, SendResult::Existing(first));
    assert!(fixture.store.unit(&ALL, id).await.is_err(), "the second is not in");
}

pub(super) async fn a_taken_key_is_refused_if_the_sender_wants_it(fixture: &StoreFixture) {
    let first = fixture.send(live("row")).await;
    let mut second = live("row");
    second.dedup.as_mut().unwrap().on_duplicate = OnDuplicate::Rejected;
    assert_eq!(fixture.try_send(second).await, SendResult::Rejected(SendRejection::Duplicate(first)));
}

pub(super) async fn a_key_is_taken_as_long_as_its_unit_lives(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let first = fixture.send(live("row")).await;
    let held = fixture.claim_one(session).await;
    assert_eq!(fixture.try_send(live("row")).await, SendResult::Existing(first), "leased");
    fixture.finish(session, held.lease, retry_after(secs(60))).await;
    assert_eq!(fixture.try_send(live("row")).await, SendResult::Existing(first), "scheduled");
}

pub(super) async fn a_key_is_free_again_when_its_unit_ended(fixture: &StoreFixture) {
    let session = fixture.session().await;
    for outcome in [done(), failed(), longshore_core::Outcome::Cancel] {
        fixture.send(live("row")).await;
        let held = fixture.claim_one(session).await;
        fixture.finish(session, held.lease, outcome).await;
    }
    let cancelled = fixture.send(live("row")).await;
    fixture.cancel(cancelled).await;
    fixture.send(live("row")).await;
}

pub(super) async fn a_kept_key_is_taken_until_its_unit_is_pruned(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let first = fixture.send(keyed("request", DedupWindow::WhileKept)).await;
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, done()).await;
    let again = keyed("request", DedupWindow::WhileKept);
    assert_eq!(fixture.try_send(again).await, SendResult::Existing(first));
    fixture.clock.advance(secs(100_000));
    fixture.store.prune(Retention::default(), 100).await.unwrap();
    fixture.send(keyed("request", DedupWindow::WhileKept)).await;
}

pub(super) async fn keys_of_tenants_and_queues_do_not_meet(fixture: &StoreFixture) {
    fixture.send(live("row")).await;
    fixture.send(NewUnit { tenant: tenant("acme"), ..live("row") }).await;
    fixture.send(NewUnit { queue: queue("other"), ..live("row") }).await;
}

pub(super) async fn two_units_with_one_key_in_one_send_become_one(fixture: &StoreFixture) {
    let (first, second) = (live("row"), live("row"));
    let id = first.id;
    let answers = fixture.store.send(&ALL, vec![first, second]).await.unwrap();
    assert_eq!(answers, [SendResult::Created(id), SendResult::Existing(id)]);
}

pub(super) async fn a_retry_never_makes_two_live_units_with_one_key(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let first = fixture.send(live("row")).await;
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, failed()).await;
    let second = fixture.send(live("row")).await;
    let operated = fixture.retry(first).await;
    assert_eq!((operated.changed, operated.skipped), (0, 1));
    assert_eq!(fixture.state(first).await, UnitState::Failed);
    assert_eq!(fixture.state(second).await, UnitState::Ready);
}

pub(super) async fn a_retried_unit_takes_its_key_again(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let first = fixture.send(live("row")).await;
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, failed()).await;
    assert_eq!(fixture.retry(first).await.changed, 1);
    assert_eq!(fixture.try_send(live("row")).await, SendResult::Existing(first));
}

pub(super) async fn a_key_is_taken_by_what_ended_since_the_named_time(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let opened = fixture.now();
    let since = |at| keyed("row", DedupWindow::Since(at));
    let first = fixture.send(since(opened)).await;
    assert_eq!(fixture.try_send(since(opened)).await, SendResult::Existing(first), "live");
    let held = fixture.claim_one(session).await;
    fixture.clock.advance(secs(10));
    fixture.finish(session, held.lease, done()).await;
    let ended = fixture.now();
    assert_eq!(
        fixture.try_send(since(opened)).await,
        SendResult::Existing(first),
        "it ended after that time"
    );
    assert_eq!(fixture.try_send(since(ended)).await, SendResult::Existing(first), "it ended at that time");
    let second = fixture.send(since(ended + secs(1))).await;
    assert_eq!(fixture.try_send(since(opened)).await, SendResult::Existing(second));
}

pub(super) async fn a_key_that_was_taken_over_does_not_come_back(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let since = |at| keyed("row", DedupWindow::Since(at));
    let first = fixture.send(since(fixture.now())).await;
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, failed()).await;
    fixture.clock.advance(secs(10));
    let second = fixture.send(since(fixture.now())).await;
    assert_eq!(fixture.retry(first).await.skipped, 1, "the second has its key");
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, done()).await;
    assert_eq!(fixture.retry(first).await.skipped, 1, "and keeps it after its end");
    assert_eq!(fixture.try_send(since(fixture.now())).await, SendResult::Existing(second));
}

pub(super) async fn one_that_asks_for_live_units_only_takes_the_key_of_an_ended_one(fixture: &StoreFixture) {
    let session = fixture.session().await;
    fixture.send(keyed("row", DedupWindow::Since(fixture.now()))).await;
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, done()).await;
    fixture.send(live("row")).await;
}
