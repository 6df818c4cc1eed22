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

pub(super) async fn a_taken_key_answers_with_the_first(world: &StoreFixture) {
    let first = world.send(live("row")).await;
    let second = live("row");
    let id = second.id;
    assert_eq!(world.try_send(second).await, SendResult::Existing(first));
    assert!(world.store.unit(&ALL, id).await.is_err(), "the second is not in");
}

pub(super) async fn a_taken_key_is_refused_if_the_sender_wants_it(world: &StoreFixture) {
    let first = world.send(live("row")).await;
    let mut second = live("row");
    second.dedup.as_mut().unwrap().on_duplicate = OnDuplicate::Rejected;
    assert_eq!(world.try_send(second).await, SendResult::Rejected(SendRejection::Duplicate(first)));
}

pub(super) async fn a_key_is_taken_as_long_as_its_unit_lives(world: &StoreFixture) {
    let session = world.session().await;
    let first = world.send(live("row")).await;
    let held = world.claim_one(session).await;
    assert_eq!(world.try_send(live("row")).await, SendResult::Existing(first), "leased");
    world.finish(session, held.lease, retry_after(secs(60))).await;
    assert_eq!(world.try_send(live("row")).await, SendResult::Existing(first), "scheduled");
}

pub(super) async fn a_key_is_free_again_when_its_unit_ended(world: &StoreFixture) {
    let session = world.session().await;
    for outcome in [done(), failed(), longshore_core::Outcome::Cancel] {
        world.send(live("row")).await;
        let held = world.claim_one(session).await;
        world.finish(session, held.lease, outcome).await;
    }
    let cancelled = world.send(live("row")).await;
    world.cancel(cancelled).await;
    world.send(live("row")).await;
}

pub(super) async fn a_kept_key_is_taken_until_its_unit_is_pruned(world: &StoreFixture) {
    let session = world.session().await;
    let first = world.send(keyed("request", DedupWindow::WhileKept)).await;
    let held = world.claim_one(session).await;
    world.finish(session, held.lease, done()).await;
    let again = keyed("request", DedupWindow::WhileKept);
    assert_eq!(world.try_send(again).await, SendResult::Existing(first));
    world.clock.advance(secs(100_000));
    world.store.prune(Retention::default(), 100).await.unwrap();
    world.send(keyed("request", DedupWindow::WhileKept)).await;
}

pub(super) async fn keys_of_tenants_and_queues_do_not_meet(world: &StoreFixture) {
    world.send(live("row")).await;
    world.send(NewUnit { tenant: tenant("acme"), ..live("row") }).await;
    world.send(NewUnit { queue: queue("other"), ..live("row") }).await;
}

pub(super) async fn two_units_with_one_key_in_one_send_become_one(world: &StoreFixture) {
    let (first, second) = (live("row"), live("row"));
    let id = first.id;
    let answers = world.store.send(&ALL, vec![first, second]).await.unwrap();
    assert_eq!(answers, [SendResult::Created(id), SendResult::Existing(id)]);
}

pub(super) async fn a_retry_never_makes_two_live_units_with_one_key(world: &StoreFixture) {
    let session = world.session().await;
    let first = world.send(live("row")).await;
    let held = world.claim_one(session).await;
    world.finish(session, held.lease, failed()).await;
    let second = world.send(live("row")).await;
    let operated = world.retry(first).await;
    assert_eq!((operated.changed, operated.skipped), (0, 1));
    assert_eq!(world.state(first).await, UnitState::Failed);
    assert_eq!(world.state(second).await, UnitState::Ready);
}

pub(super) async fn a_retried_unit_takes_its_key_again(world: &StoreFixture) {
    let session = world.session().await;
    let first = world.send(live("row")).await;
    let held = world.claim_one(session).await;
    world.finish(session, held.lease, failed()).await;
    assert_eq!(world.retry(first).await.changed, 1);
    assert_eq!(world.try_send(live("row")).await, SendResult::Existing(first));
}

pub(super) async fn a_key_is_taken_by_what_ended_since_the_named_time(world: &StoreFixture) {
    let session = world.session().await;
    let opened = world.now();
    let since = |at| keyed("row", DedupWindow::Since(at));
    let first = world.send(since(opened)).await;
    assert_eq!(world.try_send(since(opened)).await, SendResult::Existing(first), "live");
    let held = world.claim_one(session).await;
    world.clock.advance(secs(10));
    world.finish(session, held.lease, done()).await;
    let ended = world.now();
    assert_eq!(world.try_send(since(opened)).await, SendResult::Existing(first), "it ended after that time");
    assert_eq!(world.try_send(since(ended)).await, SendResult::Existing(first), "it ended at that time");
    let second = world.send(since(ended + secs(1))).await;
    assert_eq!(world.try_send(since(opened)).await, SendResult::Existing(second));
}

pub(super) async fn a_key_that_was_taken_over_does_not_come_back(world: &StoreFixture) {
    let session = world.session().await;
    let since = |at| keyed("row", DedupWindow::Since(at));
    let first = world.send(since(world.now())).await;
    let held = world.claim_one(session).await;
    world.finish(session, held.lease, failed()).await;
    world.clock.advance(secs(10));
    let second = world.send(since(world.now())).await;
    assert_eq!(world.retry(first).await.skipped, 1, "the second has its key");
    let held = world.claim_one(session).await;
    world.finish(session, held.lease, done()).await;
    assert_eq!(world.retry(first).await.skipped, 1, "and keeps it after its end");
    assert_eq!(world.try_send(since(world.now())).await, SendResult::Existing(second));
}

pub(super) async fn one_that_asks_for_live_units_only_takes_the_key_of_an_ended_one(world: &StoreFixture) {
    let session = world.session().await;
    world.send(keyed("row", DedupWindow::Since(world.now()))).await;
    let held = world.claim_one(session).await;
    world.finish(session, held.lease, done()).await;
    world.send(live("row")).await;
}
