//! Changes and wake-ups: waiting clients and workers are notified once and soon.

use std::time::{Duration, Instant};

use longshore_core::store::{BatchChunk, Capacity, LaneChange, QueueChange, Topic};
use longshore_core::worker_session::WorkerCommand;
use longshore_core::{NewBatch, NewUnit, Outcome};

use super::helpers::*;
use crate::StoreFixture;

/// Longer than any case should take: a call that waits this long was not woken.
const WAKE_TIMEOUT: Duration = Duration::from_secs(60);

async fn topics(fixture: &StoreFixture, since: u64) -> (Vec<Topic>, u64) {
    let set = fixture.store.changes(&ALL, since, secs(0)).await.unwrap();
    assert!(!set.missed);
    (set.changes.into_iter().map(|change| change.topic).collect(), set.cursor)
}

pub(super) async fn a_change_is_told_once_per_topic_and_call(fixture: &StoreFixture) {
    let (_, start) = topics(fixture, 0).await;
    fixture.send_many(20).await;
    let (changed, cursor) = topics(fixture, start).await;
    assert_eq!(changed, [Topic::Queue(queue("default"))], "coalesced");
    assert_eq!(topics(fixture, cursor).await, (vec![], cursor), "no change is reported twice");
}

pub(super) async fn changes_come_in_order(fixture: &StoreFixture) {
    fixture.send(unit()).await;
    fixture.send(NewUnit { queue: queue("mail"), ..unit() }).await;
    let set = fixture.store.changes(&ALL, 0, secs(0)).await.unwrap();
    assert!(set.changes.is_sorted_by_key(|change| change.seq));
    assert_eq!(set.changes.last().map(|change| change.seq), Some(set.cursor));
    let order = [Topic::Queue(queue("default")), Topic::Queue(queue("mail"))];
    let changed: Vec<Topic> = set.changes.into_iter().map(|change| change.topic).collect();
    assert_eq!(changed, order);
}

pub(super) async fn batches_queues_and_sessions_are_topics(fixture: &StoreFixture) {
    let id = batch_id("b");
    let (_, cursor) = topics(fixture, 0).await;
    fixture.send_sealed_batch(NewBatch::new(id.clone()), 1).await;
    let (changed, cursor) = topics(fixture, cursor).await;
    assert!(changed.contains(&Topic::Batch(id.clone())), "{changed:?}");
    let session = fixture.session().await;
    let (changed, cursor) = topics(fixture, cursor).await;
    assert!(changed.contains(&Topic::Session(session)), "{changed:?}");
    fixture.store.command_worker(session, WorkerCommand::Quiet).await.unwrap();
    let (changed, cursor) = topics(fixture, cursor).await;
    assert!(changed.contains(&Topic::Session(session)), "{changed:?}");
    let held = fixture.claim_one(session).await;
    let (changed, cursor) = topics(fixture, cursor).await;
    assert!(changed.contains(&Topic::Batch(id.clone())), "it runs now: {changed:?}");
    fixture.finish(session, held.lease, done()).await;
    let (changed, cursor) = topics(fixture, cursor).await;
    assert!(changed.contains(&Topic::Batch(id)), "{changed:?}");
    assert!(changed.contains(&Topic::Queue(queue("default"))), "room appeared: {changed:?}");
    let pause = QueueChange { paused: Some(true), capacity: None };
    fixture.store.change_queue(&ALL, &queue("default"), pause).await.unwrap();
    let (changed, _) = topics(fixture, cursor).await;
    assert!(changed.contains(&Topic::Queue(queue("default"))), "{changed:?}");
}

pub(super) async fn who_waits_for_a_change_is_woken_by_it(fixture: &StoreFixture) {
    let start = Instant::now();
    let wait = fixture.store.changes(&ALL, u64::MAX, WAKE_TIMEOUT);
    let (set, _) = tokio::join!(wait, fixture.send(unit()));
    let changed: Vec<Topic> = set.unwrap().changes.into_iter().map(|change| change.topic).collect();
    assert_eq!(changed, [Topic::Queue(queue("default"))]);
    assert!(start.elapsed() < WAKE_TIMEOUT / 2);
}

pub(super) async fn from_now_on_leaves_out_what_was(fixture: &StoreFixture) {
    fixture.send(unit()).await;
    let set = fixture.store.changes(&ALL, u64::MAX, secs(0)).await.unwrap();
    assert!(set.changes.is_empty() && !set.missed);
    fixture.send(unit()).await;
    assert_eq!(topics(fixture, set.cursor).await.0.len(), 1);
}

pub(super) async fn waiting_for_changes_ends_in_time(fixture: &StoreFixture) {
    let start = Instant::now();
    let wait = Duration::from_millis(50);
    let set = fixture.store.changes(&ALL, u64::MAX, wait).await.unwrap();
    assert!(set.changes.is_empty());
    assert!(start.elapsed() >= wait && start.elapsed() < WAKE_TIMEOUT / 2);
}

/// Reads the wake counter until it stops changing.
async fn settle_wake_counter(fixture: &StoreFixture) -> u64 {
    let mut version = fixture.store.wait_for_ready(0, secs(0)).await;
    loop {
        let next = fixture.store.wait_for_ready(version, Duration::from_millis(20)).await;
        if next == version {
            return version;
        }
        version = next;
    }
}

pub(super) async fn a_worker_is_woken_by_a_send(fixture: &StoreFixture) {
    let version = settle_wake_counter(fixture).await;
    let start = Instant::now();
    let (next, _) = tokio::join!(fixture.store.wait_for_ready(version, WAKE_TIMEOUT), fixture.send(unit()));
    assert!(start.elapsed() < WAKE_TIMEOUT / 2);
    assert_ne!(next, version);
}

pub(super) async fn a_send_before_the_wait_is_not_missed(fixture: &StoreFixture) {
    let version = settle_wake_counter(fixture).await;
    fixture.send(unit()).await;
    let start = Instant::now();
    fixture.store.wait_for_ready(version, WAKE_TIMEOUT).await;
    assert!(start.elapsed() < WAKE_TIMEOUT / 2);
}

pub(super) async fn whatever_makes_a_unit_claimable_wakes(fixture: &StoreFixture) {
    let pause = |paused| QueueChange { paused: Some(paused), capacity: None };
    let default = queue("default");
    fixture.store.change_queue(&ALL, &default, pause(true)).await.unwrap();
    fixture.send(unit()).await;
    fixture.send(NewUnit { not_before: Some(fixture.now() + secs(5)), ..unit() }).await;
    let start = Instant::now();
    let version = settle_wake_counter(fixture).await;
    fixture.store.change_queue(&ALL, &default, pause(false)).await.unwrap();
    fixture.store.wait_for_ready(version, WAKE_TIMEOUT).await;
    let version = settle_wake_counter(fixture).await;
    fixture.clock.advance(secs(5));
    fixture.promote().await;
    fixture.store.wait_for_ready(version, WAKE_TIMEOUT).await;
    let session = fixture.session().await;
    let held = fixture.claim(session, 1).await;
    let version = settle_wake_counter(fixture).await;
    fixture.finish_all(session, &held, retry_after(secs(0))).await;
    fixture.store.wait_for_ready(version, WAKE_TIMEOUT).await;
    fixture.claim(session, 9).await;
    let version = settle_wake_counter(fixture).await;
    fixture.kill(session).await;
    fixture.store.wait_for_ready(version, WAKE_TIMEOUT).await;
    assert!(start.elapsed() < WAKE_TIMEOUT / 2);
}

pub(super) async fn waiting_for_work_ends_in_time(fixture: &StoreFixture) {
    let version = settle_wake_counter(fixture).await;
    let start = Instant::now();
    fixture.store.wait_for_ready(version, Duration::from_millis(50)).await;
    assert!(start.elapsed() < WAKE_TIMEOUT / 2);
}

pub(super) async fn the_end_of_an_awaited_unit_is_a_topic(fixture: &StoreFixture) {
    let awaited = || NewUnit { awaited: true, ..unit() };
    let session = fixture.session().await;
    let plain = fixture.send(unit()).await;
    fixture.claim_and_finish(session, 1, done()).await;
    let first = fixture.send(awaited()).await;
    let mut waiting = awaited();
    waiting.dependencies.units = vec![first];
    let waiting = fixture.send(waiting).await;
    let cancelled = fixture.send(awaited()).await;
    let (_, cursor) = topics(fixture, 0).await;
    let units = |changed: &[Topic]| -> Vec<Topic> {
        changed.iter().filter(|topic| matches!(topic, Topic::Unit(_))).cloned().collect()
    };
    fixture.cancel(cancelled).await;
    let (changed, cursor) = topics(fixture, cursor).await;
    assert_eq!(units(&changed), [Topic::Unit(cancelled)]);
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, retry_after(secs(0))).await;
    let (changed, cursor) = topics(fixture, cursor).await;
    assert_eq!(units(&changed), [], "it has not ended");
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, failed()).await;
    let (changed, _) = topics(fixture, cursor).await;
    let units = units(&changed);
    assert!(units.contains(&Topic::Unit(first)) && units.contains(&Topic::Unit(waiting)), "{units:?}");
    let (all, _) = topics(fixture, 0).await;
    assert!(!all.contains(&Topic::Unit(plain)), "no unit depends on it");
}

pub(super) async fn the_end_of_a_unit_of_a_capped_lane_wakes(fixture: &StoreFixture) {
    let cap = LaneChange { cap: Some(Some(1)), ..LaneChange::default() };
    fixture.store.change_lane(&ALL, &queue("default"), &tenant("default"), cap).await.unwrap();
    fixture.send_many(3).await;
    let session = fixture.session().await;
    for end in [done(), Outcome::Snooze(secs(60))] {
        let held = fixture.claim_one(session).await;
        let (start, version) = (Instant::now(), settle_wake_counter(fixture).await);
        fixture.finish(session, held.lease, end).await;
        fixture.store.wait_for_ready(version, WAKE_TIMEOUT).await;
        assert!(start.elapsed() < WAKE_TIMEOUT / 2);
    }
    assert_eq!(fixture.claim(session, 9).await.len(), 1);
}

pub(super) async fn a_chunk_that_found_no_room_is_not_announced(fixture: &StoreFixture) {
    let capacity = Some(Capacity { units: Some(2), bytes: None });
    let change = QueueChange { paused: None, capacity };
    fixture.store.change_queue(&ALL, &queue("default"), change).await.unwrap();
    let id = fixture.open_batch(NewBatch::new(batch_id("b"))).await.id;
    let (_, cursor) = topics(fixture, 0).await;
    let version = settle_wake_counter(fixture).await;
    let chunk = BatchChunk { expected: String::new(), next: "3".into(), units: units(3) };
    fixture.store.add_to_batch(&ALL, &id, chunk).await.unwrap();
    assert_eq!(topics(fixture, cursor).await.0, [], "a client that waits for room would wake itself");
    assert_eq!(settle_wake_counter(fixture).await, version);
}
