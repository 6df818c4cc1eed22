//! Dependencies: units that wait until others have ended.

use std::time::{Duration, Instant};

use longshore_core::batch::BatchAction;
use longshore_core::store::{FinishResult, Retention, SendRejection, SendResult};
use longshore_core::unit::{Dependencies, MAX_DEPENDENCIES, MAX_SEND_DEPENDENCIES, OnDependencyFailure};
use longshore_core::{BatchStatus, Error, NewBatch, NewUnit, Outcome, UnitId, UnitState};

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

pub(super) async fn a_retried_batch_blocks_the_dependants_of_its_failures_again(fixture: &StoreFixture) {
    let other = fixture.send(unit()).await;
    let (first, good) = (unit(), unit());
    let second = strictly_after(&[first.id, good.id]);
    let third = strictly_after(&[second.id, first.id, other]);
    let (a, g, b, c) = (first.id, good.id, second.id, third.id);
    let id = batch_id("dag");
    fixture.open_batch(NewBatch::new(id.clone())).await;
    fixture.add_chunk(&id, "", "all", vec![first, good, second, third]).await;
    fixture.store.seal_batch(&ALL, &id).await.unwrap();
    let session = fixture.session().await;
    for held in fixture.claim(session, 9).await {
        let outcome = if held.unit.id == a { failed() } else { done() };
        fixture.finish(session, held.lease, outcome).await;
    }
    let ended = fixture.batch(&id).await;
    assert_eq!((ended.status, ended.counts.failed, ended.counts.cancelled), (BatchStatus::Complete, 1, 2));
    let again = fixture.act_on_batch(&id, BatchAction::RetryFailed).await;
    assert_eq!((again.counts.ready, again.counts.blocked, again.counts.cancelled), (1, 2, 0));
    assert_eq!(again.generation, 2);
    let waiting = fixture.unit(c).await;
    assert_eq!((waiting.state, waiting.attempt, waiting.generation), (UnitState::Blocked, 0, 2));
    assert_eq!(fixture.store.verify().await.unwrap(), []);
    // The second time all goes well, in the order of the dependencies.
    for expected in [a, b, c] {
        let held = fixture.claim_one(session).await;
        assert_eq!(held.unit.id, expected);
        fixture.finish(session, held.lease, done()).await;
    }
    let counts = fixture.batch(&id).await.counts;
    assert_eq!((counts.done, counts.finished()), (4, 4));
    assert_eq!(fixture.state(g).await, UnitState::Done);
}

pub(super) async fn a_retried_batch_leaves_what_an_operator_cancelled(fixture: &StoreFixture) {
    let (first, other) = (unit(), unit());
    let (second, both) = (strictly_after(&[first.id]), strictly_after(&[first.id, other.id]));
    let (a, o, b, c) = (first.id, other.id, second.id, both.id);
    let id = batch_id("dag");
    fixture.open_batch(NewBatch::new(id.clone())).await;
    fixture.add_chunk(&id, "", "all", vec![first, other, second, both]).await;
    fixture.store.seal_batch(&ALL, &id).await.unwrap();
    fixture.cancel(b).await;
    let session = fixture.session().await;
    for held in fixture.claim(session, 9).await {
        fixture.finish(session, held.lease, failed()).await;
    }
    fixture.act_on_batch(&id, BatchAction::RetryFailed).await;
    assert_eq!(fixture.state(b).await, UnitState::Cancelled, "by hand");
    assert_eq!((fixture.state(a).await, fixture.state(c).await), (UnitState::Ready, UnitState::Blocked));
    fixture.cancel(o).await;
    assert_eq!(fixture.state(c).await, UnitState::Cancelled);
    assert_eq!(fixture.store.verify().await.unwrap(), []);
}

pub(super) async fn a_dependant_that_an_operator_cancelled_after_a_retry_stays_cancelled(
    fixture: &StoreFixture,
) {
    let first = unit();
    let second = strictly_after(&[first.id]);
    let (a, b, id) = (first.id, second.id, batch_id("dag"));
    fixture.open_batch(NewBatch::new(id.clone())).await;
    fixture.add_chunk(&id, "", "all", vec![first, second]).await;
    fixture.store.seal_batch(&ALL, &id).await.unwrap();
    let session = fixture.session().await;
    let fail = async || {
        let held = fixture.claim_one(session).await;
        assert_eq!(held.unit.id, a);
        fixture.finish(session, held.lease, failed()).await;
    };
    fail().await;
    fixture.act_on_batch(&id, BatchAction::RetryFailed).await;
    fixture.cancel(b).await;
    fail().await;
    fixture.act_on_batch(&id, BatchAction::RetryFailed).await;
    assert_eq!((fixture.state(a).await, fixture.state(b).await), (UnitState::Ready, UnitState::Cancelled));
    assert_eq!(fixture.store.verify().await.unwrap(), []);
}

pub(super) async fn a_retried_batch_runs_what_its_failures_cancelled_also_if_they_ran_again(
    fixture: &StoreFixture,
) {
    let first = unit();
    let second = strictly_after(&[first.id]);
    let third = strictly_after(&[second.id]);
    let (a, b, c, id) = (first.id, second.id, third.id, batch_id("dag"));
    fixture.open_batch(NewBatch::new(id.clone())).await;
    fixture.add_chunk(&id, "", "all", vec![first, second, third]).await;
    fixture.store.seal_batch(&ALL, &id).await.unwrap();
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, failed()).await;
    // By itself, without its batch.
    fixture.retry(a).await;
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, done()).await;
    let again = fixture.act_on_batch(&id, BatchAction::RetryFailed).await;
    assert_eq!((again.counts.ready, again.counts.blocked, again.counts.cancelled), (1, 1, 0));
    for expected in [b, c] {
        let held = fixture.claim_one(session).await;
        assert_eq!(held.unit.id, expected);
        fixture.finish(session, held.lease, done()).await;
    }
    let ended = fixture.batch(&id).await;
    assert_eq!((ended.status, ended.counts.done), (BatchStatus::Complete, 3));
    let idle = fixture.act_on_batch(&id, BatchAction::RetryFailed).await;
    assert_eq!((idle.status, idle.generation), (BatchStatus::Complete, ended.generation));
    assert_eq!(fixture.store.verify().await.unwrap(), []);
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
