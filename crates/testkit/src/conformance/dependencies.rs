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

pub(super) async fn a_blocked_unit_is_ready_when_all_it_waits_for_are_done(fixture: &StoreFixture) {
    let (a, b) = (fixture.send(unit()).await, fixture.send(unit()).await);
    let blocked = fixture.send(strictly_after(&[a, b])).await;
    let session = fixture.session().await;
    assert_eq!(fixture.state(blocked).await, UnitState::Blocked);
    let held = fixture.claim(session, 9).await;
    assert_eq!(ids(&held), [a, b], "a blocked unit is not claimed");
    fixture.finish(session, held[0].lease, done()).await;
    assert_eq!(fixture.state(blocked).await, UnitState::Blocked);
    fixture.clock.advance(secs(5));
    fixture.finish(session, held[1].lease, done()).await;
    let unit = fixture.unit(blocked).await;
    assert_eq!((unit.state, unit.since), (UnitState::Ready, fixture.now()));
    assert_eq!(fixture.claim_one(session).await.unit.id, blocked);
}

pub(super) async fn a_retry_of_a_dependency_unblocks_nothing(fixture: &StoreFixture) {
    let first = fixture.send(unit()).await;
    let blocked = fixture.send(strictly_after(&[first])).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, retry_after(secs(1))).await;
    assert_eq!(fixture.state(blocked).await, UnitState::Blocked);
}

pub(super) async fn a_failed_dependency_cancels_down_the_chain(fixture: &StoreFixture) {
    let first = fixture.send(unit()).await;
    let second = fixture.send(strictly_after(&[first])).await;
    let third = fixture.send(strictly_after(&[second])).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, failed()).await;
    for id in [second, third] {
        let unit = fixture.unit(id).await;
        assert_eq!(unit.state, UnitState::Cancelled);
        assert_eq!(unit.failure.unwrap().code, "dependency");
    }
}

/// More than two transactions of the SQL stores unblock.
const MANY_DEPENDANTS: usize = 4_100;

pub(super) async fn dependants_that_exceed_a_transaction_follow_without_maintenance(fixture: &StoreFixture) {
    let first = fixture.send(unit()).await;
    let dependants = (0..MANY_DEPENDANTS).map(|_| strictly_after(&[first])).collect();
    fixture.store.send(&ALL, dependants).await.unwrap();
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, done()).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    let counts = loop {
        let counts = fixture.store.queues(&ALL).await.unwrap()[0].counts;
        if counts.blocked == 0 || Instant::now() > deadline {
            break counts;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!((counts.ready, counts.blocked, counts.done), (MANY_DEPENDANTS as u64, 0, 1));
}

pub(super) async fn a_cancelled_dependency_cancels_too(fixture: &StoreFixture) {
    let first = fixture.send(unit()).await;
    let second = fixture.send(strictly_after(&[first])).await;
    fixture.cancel(first).await;
    assert_eq!(fixture.state(second).await, UnitState::Cancelled);
}

pub(super) async fn a_released_unit_runs_whatever_became_of_the_others(fixture: &StoreFixture) {
    let (a, b) = (fixture.send(unit()).await, fixture.send(unit()).await);
    let cleanup = fixture.send(after(&[a, b], OnDependencyFailure::Release)).await;
    let session = fixture.session().await;
    let held = fixture.claim(session, 2).await;
    fixture.finish(session, held[0].lease, failed()).await;
    assert_eq!(fixture.state(cleanup).await, UnitState::Blocked, "one has not ended");
    fixture.finish(session, held[1].lease, Outcome::Cancel).await;
    assert_eq!(fixture.state(cleanup).await, UnitState::Ready);
}

pub(super) async fn what_has_ended_before_is_seen_at_once(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let good = fixture.send_and_finish(session, done()).await;
    let bad = fixture.send_and_finish(session, failed()).await;
    let ready = fixture.send(strictly_after(&[good])).await;
    assert_eq!(fixture.state(ready).await, UnitState::Ready);
    let cancelled = fixture.send(strictly_after(&[good, bad])).await;
    assert_eq!(fixture.state(cancelled).await, UnitState::Cancelled);
    let released = fixture.send(after(&[bad], OnDependencyFailure::Release)).await;
    assert_eq!(fixture.state(released).await, UnitState::Ready);
}

pub(super) async fn an_unknown_dependency_is_refused(fixture: &StoreFixture) {
    let unknown = unit().id;
    let refused = SendResult::Rejected(SendRejection::UnknownDependency(unknown));
    assert_eq!(fixture.try_send(strictly_after(&[unknown])).await, refused);
}

pub(super) async fn a_dependency_in_the_same_send_counts(fixture: &StoreFixture) {
    let first = unit();
    let second = strictly_after(&[first.id]);
    let (a, b) = (first.id, second.id);
    let answers = fixture.store.send(&ALL, vec![first, second]).await.unwrap();
    assert_eq!(answers, [SendResult::Created(a), SendResult::Created(b)]);
    assert_eq!(fixture.state(b).await, UnitState::Blocked);
}

pub(super) async fn a_blocked_unit_still_waits_for_its_time(fixture: &StoreFixture) {
    let first = fixture.send(unit()).await;
    let due = fixture.now() + secs(60);
    let second = fixture.send(NewUnit { not_before: Some(due), ..strictly_after(&[first]) }).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, done()).await;
    let unit = fixture.unit(second).await;
    assert_eq!((unit.state, unit.since), (UnitState::Scheduled, due));
}

pub(super) async fn a_blocked_unit_can_be_cancelled_and_is_not_woken_again(fixture: &StoreFixture) {
    let first = fixture.send(unit()).await;
    let second = fixture.send(strictly_after(&[first])).await;
    fixture.cancel(second).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, done()).await;
    assert_eq!(fixture.state(second).await, UnitState::Cancelled);
}

pub(super) async fn a_pruned_dependant_does_not_hinder_what_it_waited_for(fixture: &StoreFixture) {
    let first = fixture.send(unit()).await;
    let second = fixture.send(strictly_after(&[first])).await;
    fixture.cancel(second).await;
    fixture.clock.advance(secs(10));
    let kept = Retention { done: secs(5), failed: secs(5), batches: secs(5), ..Retention::default() };
    fixture.store.prune(kept, 100).await.unwrap();
    assert!(fixture.store.unit(&ALL, second).await.is_err(), "it is gone");
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    let recorded = fixture.finish(session, held.lease, done()).await;
    assert_eq!(recorded, FinishResult::Recorded(UnitState::Done));
}

pub(super) async fn too_many_dependencies_are_refused(fixture: &StoreFixture) {
    let first = fixture.send(unit()).await;
    let too_many: Vec<UnitId> = (0..=MAX_DEPENDENCIES).map(|_| UnitId::new()).collect();
    let parts = MAX_SEND_DEPENDENCIES / MAX_DEPENDENCIES + 1;
    let many = vec![strictly_after(&[first; MAX_DEPENDENCIES]); parts];
    for (units, limit) in [(vec![strictly_after(&too_many)], "1000 dep"), (many, "10000 dep")] {
        let error = fixture.store.send(&ALL, units).await.unwrap_err();
        assert!(matches!(&error, Error::Invalid(text) if text.contains(limit)), "{error}");
    }
}

pub(super) async fn the_most_dependencies_delay_other_writers_little(fixture: &StoreFixture) {
    let first = units(MAX_DEPENDENCIES);
    let ids: Vec<UnitId> = first.iter().map(|unit| unit.id).collect();
    fixture.store.send(&ALL, first).await.unwrap();
    let blocked = |_| strictly_after(&ids);
    let blocked = (0..MAX_SEND_DEPENDENCIES / MAX_DEPENDENCIES).map(blocked).collect();
    let began = Instant::now();
    fixture.store.send(&ALL, blocked).await.unwrap();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "10,000 dependencies took {took:?}");
}
