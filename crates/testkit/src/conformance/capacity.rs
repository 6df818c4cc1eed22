//! Capacity: a queue never holds more than its bound.

use longshore_core::admission::{MAX_QUEUES, MAX_STREAMS};
use longshore_core::store::{
    AddChunkResult, BatchChunk, Capacity, LaneChange, QueueChange, Retention, SendRejection, SendResult,
    TenantChange,
};
use longshore_core::unit::{ConcurrencyCap, DedupWindow, OnDuplicate, Weight};
use longshore_core::{Dedup, Kind, NewBatch, NewUnit, Outcome, Payload, TenantId, UnitId};

use super::helpers::*;
use crate::StoreFixture;

async fn bound(fixture: &StoreFixture, units: Option<u64>, bytes: Option<u64>) {
    let capacity = Some(Capacity { units, bytes });
    let change = QueueChange { paused: None, capacity };
    fixture.store.change_queue(&ALL, &queue("default"), change).await.unwrap();
}

fn is_full(sent: &SendResult) -> bool {
    matches!(sent, SendResult::Rejected(SendRejection::Full { .. }))
}

pub(super) async fn bounded(fixture: &StoreFixture) {
    bound(fixture, Some(3), None).await;
    let answers = fixture.store.send(&ALL, units(5)).await.unwrap();
    assert_eq!(answers.iter().filter(|sent| is_full(sent)).count(), 2);
    assert!(answers[..3].iter().all(|sent| !is_full(sent)), "in order: {answers:?}");
    let SendResult::Rejected(SendRejection::Full { live, .. }) = &answers[4] else { unreachable!() };
    assert_eq!(*live, 3);
    let lane = fixture.store.queues(&ALL).await.unwrap().remove(0);
    assert_eq!((lane.counts.live(), lane.capacity.units), (3, Some(3)));
}

pub(super) async fn leased_and_scheduled_units_take_up_room(fixture: &StoreFixture) {
    bound(fixture, Some(2), None).await;
    fixture.send_many(2).await;
    let session = fixture.session().await;
    let held = fixture.claim(session, 2).await;
    assert!(is_full(&fixture.try_send(unit()).await), "leased");
    fixture.finish(session, held[0].lease, retry_after(secs(60))).await;
    assert!(is_full(&fixture.try_send(unit()).await), "scheduled");
    fixture.finish(session, held[1].lease, Outcome::Interrupted).await;
    assert!(is_full(&fixture.try_send(unit()).await), "ready again");
}

pub(super) async fn an_ended_unit_makes_room(fixture: &StoreFixture) {
    bound(fixture, Some(1), None).await;
    let session = fixture.session().await;
    for outcome in [done(), failed(), Outcome::Cancel] {
        fixture.send_and_finish(session, outcome).await;
    }
    let id = fixture.send(unit()).await;
    fixture.cancel(id).await;
    fixture.send(unit()).await;
}

pub(super) async fn bytes_are_bounded_too(fixture: &StoreFixture) {
    bound(fixture, None, Some(10)).await;
    let of = |bytes: usize| NewUnit { payload: Payload::from(vec![b'x'; bytes]), ..unit() };
    fixture.send(of(6)).await;
    assert!(is_full(&fixture.try_send(of(5)).await));
    fixture.send(of(4)).await;
    assert!(is_full(&fixture.try_send(of(1)).await));
    assert_eq!(fixture.store.queues(&ALL).await.unwrap()[0].bytes, 10);
}

pub(super) async fn every_part_of_a_unit_counts_towards_the_bytes(fixture: &StoreFixture) {
    bound(fixture, None, Some(1_000)).await;
    let first = fixture.send(unit()).await;
    let mut large = NewUnit { trace: Some("t".repeat(200)), ..unit() };
    large.dedup = Some(Dedup {
        key: "k".repeat(200),
        window: DedupWindow::WhileLive,
        on_duplicate: OnDuplicate::Existing,
    });
    large.cap = Some(ConcurrencyCap { key: "c".repeat(200), limit: 1 });
    large.weight.resources.insert("r".repeat(100), 1);
    large.dependencies.units = vec![first];
    let bytes = large.stored_bytes();
    assert_eq!(bytes, large.payload.len() as u64 + 200 + 200 + 200 + 100 + 16);
    fixture.send(large.clone()).await;
    let live = unit().stored_bytes() + bytes;
    assert_eq!(fixture.store.queues(&ALL).await.unwrap()[0].bytes, live);
    large.id = UnitId::new();
    large.dedup = None;
    assert!(is_full(&fixture.try_send(large).await));
    for too_large in [
        NewUnit { trace: Some("t".repeat(300)), ..unit() },
        NewUnit { weight: resources((0..33).map(|n| n.to_string())), ..unit() },
        NewUnit { weight: resources(["r".repeat(129)]), ..unit() },
    ] {
        assert!(fixture.store.send(&ALL, vec![too_large]).await.is_err());
    }
}

fn resources(names: impl IntoIterator<Item = String>) -> Weight {
    Weight { slots: 1, resources: names.into_iter().map(|name| (name, 1)).collect() }
}

pub(super) async fn a_refused_unit_leaves_no_queue(fixture: &StoreFixture) {
    let capacity = Some(Capacity { units: Some(1), bytes: None });
    let change = TenantChange { capacity, ..TenantChange::default() };
    fixture.store.put_tenant(&ALL, &tenant("acme"), change).await.unwrap();
    let of = |name: &str, kind: &str| NewUnit {
        tenant: tenant("acme"),
        queue: queue(name),
        kind: Kind::new(kind).unwrap(),
        ..unit()
    };
    fixture.send(of("kept", "a")).await;
    for name in ["one", "two", "acme/three"] {
        assert!(is_full(&fixture.try_send(of(name, "a")).await));
    }
    assert!(is_full(&fixture.try_send(of("kept", "b")).await));
    let mut unknown = NewUnit { queue: queue("four"), ..unit() };
    unknown.dependencies.units = vec![UnitId::new()];
    let answer = fixture.try_send(unknown).await;
    assert!(matches!(answer, SendResult::Rejected(SendRejection::UnknownDependency(_))), "{answer:?}");
    let queues = fixture.store.queues(&ALL).await.unwrap();
    let names: Vec<&str> = queues.iter().map(|lane| lane.queue.as_str()).collect();
    assert_eq!(names, ["kept"]);
}

pub(super) async fn a_tenant_has_a_bounded_number_of_queues(fixture: &StoreFixture) {
    let of = |n: u64| NewUnit { tenant: tenant("acme"), queue: queue(&format!("q{n}")), ..unit() };
    let all: Vec<NewUnit> = (0..=MAX_QUEUES).map(of).collect();
    let acme = tenant_scope("acme");
    let answers = fixture.store.send(&acme, all).await.unwrap();
    let refused: Vec<_> = answers.iter().filter(|answer| !matches!(answer, SendResult::Created(_))).collect();
    assert!(matches!(refused[..], [SendResult::Rejected(SendRejection::TooMany { .. })]), "{refused:?}");
    assert_eq!(fixture.store.queues(&ALL).await.unwrap().len() as u64, MAX_QUEUES);
    let again = fixture.store.send(&acme, vec![of(0)]).await.unwrap();
    assert!(matches!(again[..], [SendResult::Created(_)]), "a queue it has: {again:?}");
    fixture.send(of(MAX_QUEUES)).await;
}

pub(super) async fn a_tenant_has_a_bounded_number_of_streams(fixture: &StoreFixture) {
    let of = |n: u64| {
        let kind = Kind::new(format!("k{}", n / 2)).unwrap();
        NewUnit { tenant: tenant("acme"), queue: queue(&format!("q{}", n % 2)), kind, ..unit() }
    };
    let acme = tenant_scope("acme");
    let answers = fixture.store.send(&acme, (0..=MAX_STREAMS).map(of).collect()).await.unwrap();
    let is_refused = |answer: &SendResult| matches!(answer.rejection(), Some(SendRejection::TooMany { .. }));
    let refused: Vec<usize> = (0..answers.len()).filter(|at| is_refused(&answers[*at])).collect();
    let [one_too_many] = refused[..] else { panic!("{refused:?}") };
    let of_refused = || of(one_too_many as u64);
    let again = fixture.store.send(&acme, vec![of_refused(), of_refused(), of(0)]).await.unwrap();
    assert!(is_refused(&again[0]) && is_refused(&again[1]), "also the second of a send: {again:?}");
    assert!(matches!(again[2], SendResult::Created(_)), "a stream it has: {again:?}");
    // A batch allows a few more, and not any number.
    let id = batch_id("acme/rows");
    fixture.open_batch(NewBatch { tenant: tenant("acme"), ..NewBatch::new(id.clone()) }).await;
    let add = |from: u64, to: u64| {
        let units = (from..to).map(of).collect();
        let chunk = BatchChunk { expected: String::new(), next: String::new(), units };
        fixture.store.add_to_batch(&acme, &id, chunk)
    };
    let AddChunkResult::Committed(some) = add(0, 5).await.unwrap() else { unreachable!() };
    assert!(!some.iter().any(is_refused), "{some:?}");
    let AddChunkResult::Committed(many) = add(100, 120).await.unwrap() else { unreachable!() };
    assert!(many.iter().any(is_refused), "{many:?}");
    fixture.send(of_refused()).await;
}

pub(super) async fn ended_units_are_bounded_in_bytes_until_they_are_pruned(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let failed = fixture.send_and_finish(session, failed()).await;
    let doomed = || {
        let mut doomed = NewUnit { payload: Payload::from(vec![b'x'; 80]), ..unit() };
        doomed.dependencies.units = vec![failed];
        doomed
    };
    let send = async || fixture.store.send(&ALL, (0..50).map(|_| doomed()).collect()).await.unwrap();
    bound(fixture, None, Some(100)).await;
    assert!(!send().await.iter().any(is_full), "a queue's bound is for live units");
    fixture.clock.advance(secs(10));
    let keep = Retention { done: secs(1), ..Retention::default() };
    fixture.store.prune(keep, 1_000).await.unwrap();
    let capacity = Some(Capacity { units: None, bytes: Some(100) });
    let change = TenantChange { capacity, ..TenantChange::default() };
    fixture.store.put_tenant(&ALL, &TenantId::default(), change).await.unwrap();
    let answers = send().await;
    let stored = answers.iter().filter(|sent| !is_full(sent)).count();
    assert!((10..40).contains(&stored), "{stored} units of 352 bytes fit into 100 times 100 bytes");
    assert!(is_full(&fixture.try_send(doomed()).await), "in a later send too");
    assert!(is_full(&fixture.try_send(unit()).await), "and a unit that would run");
    fixture.clock.advance(secs(10));
    fixture.store.prune(keep, 1_000).await.unwrap();
    fixture.send(doomed()).await;
    assert_eq!(fixture.store.verify().await.unwrap(), []);
}

pub(super) async fn a_lanes_bound_leaves_the_others_alone(fixture: &StoreFixture) {
    let capacity = Some(Capacity { units: Some(1), bytes: None });
    let change = LaneChange { capacity, ..LaneChange::default() };
    let (queue, acme) = (queue("default"), tenant("acme"));
    fixture.store.change_lane(&ALL, &queue, &acme, change).await.unwrap();
    let theirs = || NewUnit { tenant: tenant("acme"), ..unit() };
    fixture.send(theirs()).await;
    assert!(is_full(&fixture.try_send(theirs()).await));
    fixture.send_many(3).await;
}

pub(super) async fn a_queues_bound_is_for_all_its_lanes(fixture: &StoreFixture) {
    bound(fixture, Some(2), None).await;
    fixture.send(unit()).await;
    fixture.send(NewUnit { tenant: tenant("acme"), ..unit() }).await;
    assert!(is_full(&fixture.try_send(unit()).await));
    assert!(is_full(&fixture.try_send(NewUnit { tenant: tenant("acme"), ..unit() }).await));
    fixture.send(NewUnit { queue: queue("other"), ..unit() }).await;
}

pub(super) async fn one_send_into_two_lanes_keeps_to_the_queues_bound(fixture: &StoreFixture) {
    bound(fixture, Some(3), None).await;
    let theirs = || NewUnit { tenant: tenant("acme"), ..unit() };
    let both = vec![theirs(), unit(), theirs(), unit(), theirs()];
    let answers = fixture.store.send(&ALL, both).await.unwrap();
    assert_eq!(answers.iter().filter(|sent| is_full(sent)).count(), 2, "{answers:?}");
    let lanes = fixture.store.queues(&ALL).await.unwrap();
    assert_eq!(lanes.iter().map(|lane| lane.counts.live()).sum::<u64>(), 3);
}

pub(super) async fn lifting_the_bound_lets_units_in_again(fixture: &StoreFixture) {
    bound(fixture, Some(1), None).await;
    fixture.send(unit()).await;
    assert!(is_full(&fixture.try_send(unit()).await));
    bound(fixture, None, None).await;
    fixture.send_many(5).await;
    bound(fixture, Some(2), None).await;
    assert!(is_full(&fixture.try_send(unit()).await), "more than fit are already in");
}

pub(super) async fn sending_the_same_id_again_needs_no_room(fixture: &StoreFixture) {
    bound(fixture, Some(1), None).await;
    let only = unit();
    let id = fixture.send(only.clone()).await;
    assert_eq!(fixture.try_send(only).await, SendResult::Created(id));
}

pub(super) async fn a_unit_that_ends_as_soon_as_it_is_in_leaves_its_room(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let failed = fixture.send_and_finish(session, failed()).await;
    bound(fixture, Some(1), None).await;
    let mut doomed = unit();
    doomed.dependencies.units = vec![failed];
    let answers = fixture.store.send(&ALL, vec![doomed, unit(), unit()]).await.unwrap();
    let full: Vec<bool> = answers.iter().map(is_full).collect();
    assert_eq!(full, [false, false, true], "{answers:?}");
}
