//! Changes and wake-ups: waiting clients and workers are notified once and soon.

use std::time::{Duration, Instant};

use longshore_core::store::{BatchChunk, Capacity, LaneChange, QueueChange, Topic};
use longshore_core::worker_session::WorkerCommand;
use longshore_core::{NewBatch, NewUnit, Outcome};

use super::helpers::*;
use crate::StoreFixture;

/// Longer than any case should take: a call that waits this long was not woken.
const WAKE_TIMEOUT: Duration = Duration::from_secs(60);

async fn topics(world: &StoreFixture, since: u64) -> (Vec<Topic>, u64) {
    let set = world.store.changes(&ALL, since, secs(0)).await.unwrap();
    assert!(!set.missed);
    (set.changes.into_iter().map(|change| change.topic).collect(), set.cursor)
}

pub(super) async fn a_change_is_told_once_per_topic_and_call(world: &StoreFixture) {
    let (_, start) = topics(world, 0).await;
    world.send_many(20).await;
    let (changed, cursor) = topics(world, start).await;
    assert_eq!(changed, [Topic::Queue(queue("default"))], "coalesced");
    assert_eq!(topics(world, cursor).await, (vec![], cursor), "no change is reported twice");
}

pub(super) async fn changes_come_in_order(world: &StoreFixture) {
    world.send(unit()).await;
    world.send(NewUnit { queue: queue("mail"), ..unit() }).await;
    let set = world.store.changes(&ALL, 0, secs(0)).await.unwrap();
    assert!(set.changes.is_sorted_by_key(|change| change.seq));
    assert_eq!(set.changes.last().map(|change| change.seq), Some(set.cursor));
    let order = [Topic::Queue(queue("default")), Topic::Queue(queue("mail"))];
    let changed: Vec<Topic> = set.changes.into_iter().map(|change| change.topic).collect();
    assert_eq!(changed, order);
}

pub(super) async fn batches_queues_and_sessions_are_topics(world: &StoreFixture) {
    let id = batch_id("b");
    let (_, cursor) = topics(world, 0).await;
    world.send_sealed_batch(NewBatch::new(id.clone()), 1).await;
    let (changed, cursor) = topics(world, cursor).await;
    assert!(changed.contains(&Topic::Batch(id.clone())), "{changed:?}");
    let session = world.session().await;
    let (changed, cursor) = topics(world, cursor).await;
    assert!(changed.contains(&Topic::Session(session)), "{changed:?}");
    world.store.command_worker(session, WorkerCommand::Quiet).await.unwrap();
    let (changed, cursor) = topics(world, cursor).await;
    assert!(changed.contains(&Topic::Session(session)), "{changed:?}");
    let held = world.claim_one(session).await;
    let (changed, cursor) = topics(world, cursor).await;
    assert!(changed.contains(&Topic::Batch(id.clone())), "it runs now: {changed:?}");
    world.finish(session, held.lease, done()).await;
    let (changed, cursor) = topics(world, cursor).await;
    assert!(changed.contains(&Topic::Batch(id)), "{changed:?}");
    assert!(changed.contains(&Topic::Queue(queue("default"))), "room appeared: {changed:?}");
    let pause = QueueChange { paused: Some(true), capacity: None };
    world.store.change_queue(&ALL, &queue("default"), pause).await.unwrap();
    let (changed, _) = topics(world, cursor).await;
    assert!(changed.contains(&Topic::Queue(queue("default"))), "{changed:?}");
}

pub(super) async fn who_waits_for_a_change_is_woken_by_it(world: &StoreFixture) {
    let start = Instant::now();
    let wait = world.store.changes(&ALL, u64::MAX, WAKE_TIMEOUT);
    let (set, _) = tokio::join!(wait, world.send(unit()));
    let changed: Vec<Topic> = set.unwrap().changes.into_iter().map(|change| change.topic).collect();
    assert_eq!(changed, [Topic::Queue(queue("default"))]);
    assert!(start.elapsed() < WAKE_TIMEOUT / 2);
}

pub(super) async fn from_now_on_leaves_out_what_was(world: &StoreFixture) {
    world.send(unit()).await;
    let set = world.store.changes(&ALL, u64::MAX, secs(0)).await.unwrap();
    assert!(set.changes.is_empty() && !set.missed);
    world.send(unit()).await;
    assert_eq!(topics(world, set.cursor).await.0.len(), 1);
}

pub(super) async fn waiting_for_changes_ends_in_time(world: &StoreFixture) {
    let start = Instant::now();
    let wait = Duration::from_millis(50);
    let set = world.store.changes(&ALL, u64::MAX, wait).await.unwrap();
    assert!(set.changes.is_empty());
    assert!(start.elapsed() >= wait && start.elapsed() < WAKE_TIMEOUT / 2);
}

/// Reads the wake counter until it stops changing.
async fn settle_wake_counter(world: &StoreFixture) -> u64 {
    let mut version = world.store.wait_for_ready(0, secs(0)).await;
    loop {
        let next = world.store.wait_for_ready(version, Duration::from_millis(20)).await;
        if next == version {
            return version;
        }
        version = next;
    }
}

pub(super) async fn a_worker_is_woken_by_a_send(world: &StoreFixture) {
    let version = settle_wake_counter(world).await;
    let start = Instant::now();
    let (next, _) = tokio::join!(world.store.wait_for_ready(version, WAKE_TIMEOUT), world.send(unit()));
    assert!(start.elapsed() < WAKE_TIMEOUT / 2);
    assert_ne!(next, version);
}

pub(super) async fn a_send_before_the_wait_is_not_missed(world: &StoreFixture) {
    let version = settle_wake_counter(world).await;
    world.send(unit()).await;
    let start = Instant::now();
    world.store.wait_for_ready(version, WAKE_TIMEOUT).await;
    assert!(start.elapsed() < WAKE_TIMEOUT / 2);
}

pub(super) async fn whatever_makes_a_unit_claimable_wakes(world: &StoreFixture) {
    let pause = |paused| QueueChange { paused: Some(paused), capacity: None };
    let default = queue("default");
    world.store.change_queue(&ALL, &default, pause(true)).await.unwrap();
    world.send(unit()).await;
    world.send(NewUnit { not_before: Some(world.now() + secs(5)), ..unit() }).await;
    let start = Instant::now();
    let version = settle_wake_counter(world).await;
    world.store.change_queue(&ALL, &default, pause(false)).await.unwrap();
    world.store.wait_for_ready(version, WAKE_TIMEOUT).await;
    let version = settle_wake_counter(world).await;
    world.clock.advance(secs(5));
    world.promote().await;
    world.store.wait_for_ready(version, WAKE_TIMEOUT).await;
    let session = world.session().await;
    let held = world.claim(session, 1).await;
    let version = settle_wake_counter(world).await;
    world.finish_all(session, &held, retry_after(secs(0))).await;
    world.store.wait_for_ready(version, WAKE_TIMEOUT).await;
    world.claim(session, 9).await;
    let version = settle_wake_counter(world).await;
    world.kill(session).await;
    world.store.wait_for_ready(version, WAKE_TIMEOUT).await;
    assert!(start.elapsed() < WAKE_TIMEOUT / 2);
}

pub(super) async fn waiting_for_work_ends_in_time(world: &StoreFixture) {
    let version = settle_wake_counter(world).await;
    let start = Instant::now();
    world.store.wait_for_ready(version, Duration::from_millis(50)).await;
    assert!(start.elapsed() < WAKE_TIMEOUT / 2);
}

pub(super) async fn the_end_of_an_awaited_unit_is_a_topic(world: &StoreFixture) {
    let awaited = || NewUnit { awaited: true, ..unit() };
    let session = world.session().await;
    let plain = world.send(unit()).await;
    world.claim_and_finish(session, 1, done()).await;
    let first = world.send(awaited()).await;
    let mut waiting = awaited();
    waiting.dependencies.units = vec![first];
    let waiting = world.send(waiting).await;
    let cancelled = world.send(awaited()).await;
    let (_, cursor) = topics(world, 0).await;
    let units = |changed: &[Topic]| -> Vec<Topic> {
        changed.iter().filter(|topic| matches!(topic, Topic::Unit(_))).cloned().collect()
    };
    world.cancel(cancelled).await;
    let (changed, cursor) = topics(world, cursor).await;
    assert_eq!(units(&changed), [Topic::Unit(cancelled)]);
    let held = world.claim_one(session).await;
    world.finish(session, held.lease, retry_after(secs(0))).await;
    let (changed, cursor) = topics(world, cursor).await;
    assert_eq!(units(&changed), [], "it has not ended");
    let held = world.claim_one(session).await;
    world.finish(session, held.lease, failed()).await;
    let (changed, _) = topics(world, cursor).await;
    let units = units(&changed);
    assert!(units.contains(&Topic::Unit(first)) && units.contains(&Topic::Unit(waiting)), "{units:?}");
    let (all, _) = topics(world, 0).await;
    assert!(!all.contains(&Topic::Unit(plain)), "no unit depends on it");
}

pub(super) async fn the_end_of_a_unit_of_a_capped_lane_wakes(world: &StoreFixture) {
    let cap = LaneChange { cap: Some(Some(1)), ..LaneChange::default() };
    world.store.change_lane(&ALL, &queue("default"), &tenant("default"), cap).await.unwrap();
    world.send_many(3).await;
    let session = world.session().await;
    for end in [done(), Outcome::Snooze(secs(60))] {
        let held = world.claim_one(session).await;
        let (start, version) = (Instant::now(), settle_wake_counter(world).await);
        world.finish(session, held.lease, end).await;
        world.store.wait_for_ready(version, WAKE_TIMEOUT).await;
        assert!(start.elapsed() < WAKE_TIMEOUT / 2);
    }
    assert_eq!(world.claim(session, 9).await.len(), 1);
}

pub(super) async fn a_chunk_that_found_no_room_is_not_announced(world: &StoreFixture) {
    let capacity = Some(Capacity { units: Some(2), bytes: None });
    let change = QueueChange { paused: None, capacity };
    world.store.change_queue(&ALL, &queue("default"), change).await.unwrap();
    let id = world.open_batch(NewBatch::new(batch_id("b"))).await.id;
    let (_, cursor) = topics(world, 0).await;
    let version = settle_wake_counter(world).await;
    let chunk = BatchChunk { expected: String::new(), next: "3".into(), units: units(3) };
    world.store.add_to_batch(&ALL, &id, chunk).await.unwrap();
    assert_eq!(topics(world, cursor).await.0, [], "a client that waits for room would wake itself");
    assert_eq!(settle_wake_counter(world).await, version);
}
