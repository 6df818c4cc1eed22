//! Dependencies: units that wait until others have ended.

use std::time::{Duration, Instant};

use longshore_core::store::{FinishResult, Retention, SendRejection, SendResult};
use longshore_core::unit::{Dependencies, MAX_DEPENDENCIES, MAX_SEND_DEPENDENCIES, OnDependencyFailure};
use longshore_core::{Error, NewUnit, Outcome, UnitId, UnitState};

use super::helpers::*;
use crate::StoreFixture;

fn after(units: &[UnitId], on_failure: OnDependencyFailure) -> NewUnit {
    NewUnit { dependencies: Dependencies { units: units.to_vec(), on_failure }, ..unit() }
}

fn strictly_after(units: &[UnitId]) -> NewUnit {
    after(units, OnDependencyFailure::Cancel)
}

pub(super) async fn a_blocked_unit_is_ready_when_all_it_waits_for_are_done(world: &StoreFixture) {
    let (a, b) = (world.send(unit()).await, world.send(unit()).await);
    let blocked = world.send(strictly_after(&[a, b])).await;
    let session = world.session().await;
    assert_eq!(world.state(blocked).await, UnitState::Blocked);
    let held = world.claim(session, 9).await;
    assert_eq!(ids(&held), [a, b], "a blocked unit is not claimed");
    world.finish(session, held[0].lease, done()).await;
    assert_eq!(world.state(blocked).await, UnitState::Blocked);
    world.clock.advance(secs(5));
    world.finish(session, held[1].lease, done()).await;
    let unit = world.unit(blocked).await;
    assert_eq!((unit.state, unit.since), (UnitState::Ready, world.now()));
    assert_eq!(world.claim_one(session).await.unit.id, blocked);
}

pub(super) async fn a_retry_of_a_dependency_unblocks_nothing(world: &StoreFixture) {
    let first = world.send(unit()).await;
    let blocked = world.send(strictly_after(&[first])).await;
    let session = world.session().await;
    let held = world.claim_one(session).await;
    world.finish(session, held.lease, retry_after(secs(1))).await;
    assert_eq!(world.state(blocked).await, UnitState::Blocked);
}

pub(super) async fn a_failed_dependency_cancels_down_the_chain(world: &StoreFixture) {
    let first = world.send(unit()).await;
    let second = world.send(strictly_after(&[first])).await;
    let third = world.send(strictly_after(&[second])).await;
    let session = world.session().await;
    let held = world.claim_one(session).await;
    world.finish(session, held.lease, failed()).await;
    for id in [second, third] {
        let unit = world.unit(id).await;
        assert_eq!(unit.state, UnitState::Cancelled);
        assert_eq!(unit.failure.unwrap().code, "dependency");
    }
}

/// More than one transaction of the SQL stores unblocks.
pub(super) async fn thousands_of_dependants_are_unblocked_in_the_end(world: &StoreFixture) {
    const UNITS: usize = 4_100;
    let first = world.send(unit()).await;
    let dependants = (0..UNITS).map(|_| strictly_after(&[first])).collect();
    world.store.send(&ALL, dependants).await.unwrap();
    let session = world.session().await;
    let held = world.claim_one(session).await;
    world.finish(session, held.lease, done()).await;
    while world.store.promote(100).await.unwrap().more {}
    let counts = world.store.queues(&ALL).await.unwrap()[0].counts;
    assert_eq!((counts.ready, counts.blocked, counts.done), (UNITS as u64, 0, 1));
}

pub(super) async fn a_cancelled_dependency_cancels_too(world: &StoreFixture) {
    let first = world.send(unit()).await;
    let second = world.send(strictly_after(&[first])).await;
    world.cancel(first).await;
    assert_eq!(world.state(second).await, UnitState::Cancelled);
}

pub(super) async fn a_released_unit_runs_whatever_became_of_the_others(world: &StoreFixture) {
    let (a, b) = (world.send(unit()).await, world.send(unit()).await);
    let cleanup = world.send(after(&[a, b], OnDependencyFailure::Release)).await;
    let session = world.session().await;
    let held = world.claim(session, 2).await;
    world.finish(session, held[0].lease, failed()).await;
    assert_eq!(world.state(cleanup).await, UnitState::Blocked, "one has not ended");
    world.finish(session, held[1].lease, Outcome::Cancel).await;
    assert_eq!(world.state(cleanup).await, UnitState::Ready);
}

pub(super) async fn what_has_ended_before_is_seen_at_once(world: &StoreFixture) {
    let session = world.session().await;
    let good = world.send_and_finish(session, done()).await;
    let bad = world.send_and_finish(session, failed()).await;
    let ready = world.send(strictly_after(&[good])).await;
    assert_eq!(world.state(ready).await, UnitState::Ready);
    let cancelled = world.send(strictly_after(&[good, bad])).await;
    assert_eq!(world.state(cancelled).await, UnitState::Cancelled);
    let released = world.send(after(&[bad], OnDependencyFailure::Release)).await;
    assert_eq!(world.state(released).await, UnitState::Ready);
}

pub(super) async fn an_unknown_dependency_is_refused(world: &StoreFixture) {
    let unknown = unit().id;
    let refused = SendResult::Rejected(SendRejection::UnknownDependency(unknown));
    assert_eq!(world.try_send(strictly_after(&[unknown])).await, refused);
}

pub(super) async fn a_dependency_in_the_same_send_counts(world: &StoreFixture) {
    let first = unit();
    let second = strictly_after(&[first.id]);
    let (a, b) = (first.id, second.id);
    let answers = world.store.send(&ALL, vec![first, second]).await.unwrap();
    assert_eq!(answers, [SendResult::Created(a), SendResult::Created(b)]);
    assert_eq!(world.state(b).await, UnitState::Blocked);
}

pub(super) async fn a_blocked_unit_still_waits_for_its_time(world: &StoreFixture) {
    let first = world.send(unit()).await;
    let due = world.now() + secs(60);
    let second = world.send(NewUnit { not_before: Some(due), ..strictly_after(&[first]) }).await;
    let session = world.session().await;
    let held = world.claim_one(session).await;
    world.finish(session, held.lease, done()).await;
    let unit = world.unit(second).await;
    assert_eq!((unit.state, unit.since), (UnitState::Scheduled, due));
}

pub(super) async fn a_blocked_unit_can_be_cancelled_and_is_not_woken_again(world: &StoreFixture) {
    let first = world.send(unit()).await;
    let second = world.send(strictly_after(&[first])).await;
    world.cancel(second).await;
    let session = world.session().await;
    let held = world.claim_one(session).await;
    world.finish(session, held.lease, done()).await;
    assert_eq!(world.state(second).await, UnitState::Cancelled);
}

pub(super) async fn a_pruned_dependant_does_not_hinder_what_it_waited_for(world: &StoreFixture) {
    let first = world.send(unit()).await;
    let second = world.send(strictly_after(&[first])).await;
    world.cancel(second).await;
    world.clock.advance(secs(10));
    let kept = Retention { done: secs(5), failed: secs(5), batches: secs(5), ..Retention::default() };
    world.store.prune(kept, 100).await.unwrap();
    assert!(world.store.unit(&ALL, second).await.is_err(), "it is gone");
    let session = world.session().await;
    let held = world.claim_one(session).await;
    let recorded = world.finish(session, held.lease, done()).await;
    assert_eq!(recorded, FinishResult::Recorded(UnitState::Done));
}

pub(super) async fn too_many_dependencies_are_refused(world: &StoreFixture) {
    let first = world.send(unit()).await;
    let too_many: Vec<UnitId> = (0..=MAX_DEPENDENCIES).map(|_| UnitId::new()).collect();
    let parts = MAX_SEND_DEPENDENCIES / MAX_DEPENDENCIES + 1;
    let many = vec![strictly_after(&[first; MAX_DEPENDENCIES]); parts];
    for (units, limit) in [(vec![strictly_after(&too_many)], "1000 dep"), (many, "10000 dep")] {
        let error = world.store.send(&ALL, units).await.unwrap_err();
        assert!(matches!(&error, Error::Invalid(text) if text.contains(limit)), "{error}");
    }
}

pub(super) async fn the_most_dependencies_delay_other_writers_little(world: &StoreFixture) {
    let first = units(MAX_DEPENDENCIES);
    let ids: Vec<UnitId> = first.iter().map(|unit| unit.id).collect();
    world.store.send(&ALL, first).await.unwrap();
    let blocked = |_| strictly_after(&ids);
    let blocked = (0..MAX_SEND_DEPENDENCIES / MAX_DEPENDENCIES).map(blocked).collect();
    let began = Instant::now();
    world.store.send(&ALL, blocked).await.unwrap();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "10,000 dependencies took {took:?}");
}
