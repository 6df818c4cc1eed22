//! Administration: cancel, retry and purge by id and by queue; settings of queues.

use longshore_core::store::{Capacity, LaneChange, QueueChange, UnitAction, UnitActionResult, UnitSelection};
use longshore_core::{Error, NewUnit, UnitState};

use super::helpers::*;
use crate::StoreFixture;

pub(super) async fn a_retried_unit_has_fresh_attempts(fixture: &StoreFixture) {
    let session = fixture.session_with(attempts(1)).await;
    let id = fixture.send_and_finish(session, retry_after(secs(0))).await;
    assert_eq!(fixture.state(id).await, UnitState::Failed);
    fixture.clock.advance(secs(5));
    assert_eq!(fixture.retry(id).await, UnitActionResult { changed: 1, ..UnitActionResult::default() });
    let unit = fixture.unit(id).await;
    assert_eq!((unit.state, unit.attempt, unit.lost), (UnitState::Ready, 0, 0));
    assert_eq!(unit.since, fixture.now());
    assert_eq!(fixture.claim_one(session).await.unit.attempt, 1);
}

pub(super) async fn a_retried_scheduled_unit_need_not_wait(fixture: &StoreFixture) {
    let id = fixture.send(NewUnit { not_before: Some(fixture.now() + secs(60)), ..unit() }).await;
    assert_eq!(fixture.retry(id).await.changed, 1);
    let session = fixture.session().await;
    assert_eq!(fixture.claim_one(session).await.unit.id, id);
}

pub(super) async fn a_retry_after_a_cancel_request_runs(fixture: &StoreFixture) {
    let id = fixture.send(unit()).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    fixture.cancel(id).await;
    fixture.finish(session, held.lease, longshore_core::Outcome::Cancel).await;
    fixture.retry(id).await;
    let again = fixture.claim_one(session).await;
    assert!(!again.unit.cancel_requested, "the old cancel request is cleared");
    assert!(fixture.store.heartbeat(session, Default::default()).await.unwrap().cancel.is_empty());
}

pub(super) async fn one_unknown_id_leaves_all_units_alone(fixture: &StoreFixture) {
    let known = fixture.send(unit()).await;
    let ids = UnitSelection::Ids(vec![known, unit().id]);
    let answer = fixture.store.apply_unit_action(&ALL, ids, UnitAction::Cancel).await;
    assert!(matches!(answer, Err(Error::NotFound { .. })), "{answer:?}");
    assert_eq!(fixture.state(known).await, UnitState::Ready);
}

pub(super) async fn a_queue_is_purged_by_cancelling_what_is_ready(fixture: &StoreFixture) {
    fixture.send_many(3).await;
    let elsewhere = fixture.send(NewUnit { queue: queue("other"), ..unit() }).await;
    let later = NewUnit { not_before: Some(fixture.now() + secs(60)), ..unit() };
    let later = fixture.send(later).await;
    let select = UnitSelection::Queue(queue("default"), UnitState::Ready);
    let done = fixture.store.apply_unit_action(&ALL, select, UnitAction::Cancel).await.unwrap();
    assert_eq!(done, UnitActionResult { changed: 3, ..UnitActionResult::default() });
    assert_eq!(fixture.state(elsewhere).await, UnitState::Ready);
    assert_eq!(fixture.state(later).await, UnitState::Scheduled);
}

pub(super) async fn leased_units_of_a_queue_are_asked_to_stop(fixture: &StoreFixture) {
    fixture.send_many(2).await;
    let session = fixture.session().await;
    fixture.claim(session, 2).await;
    let select = UnitSelection::Queue(queue("default"), UnitState::Leased);
    let done = fixture.store.apply_unit_action(&ALL, select, UnitAction::Cancel).await.unwrap();
    assert_eq!(done, UnitActionResult { requested: 2, ..UnitActionResult::default() });
    let beat = fixture.store.heartbeat(session, Default::default()).await.unwrap();
    assert_eq!(beat.cancel.len(), 2);
}

pub(super) async fn failed_units_of_a_queue_are_retried_together(fixture: &StoreFixture) {
    let session = fixture.session().await;
    fixture.send_many(3).await;
    let held = fixture.claim(session, 3).await;
    fixture.finish_all(session, &held, failed()).await;
    let select = UnitSelection::Queue(queue("default"), UnitState::Failed);
    let done = fixture.store.apply_unit_action(&ALL, select, UnitAction::Retry).await.unwrap();
    assert_eq!(done.changed, 3);
    assert_eq!(fixture.claim(session, 9).await.len(), 3);
}

pub(super) async fn settings_that_are_not_named_stay(fixture: &StoreFixture) {
    let (name, capacity) = (queue("default"), Capacity { units: Some(9), bytes: Some(99) });
    let change = async |change| fixture.store.change_queue(&ALL, &name, change).await.unwrap();
    change(QueueChange { paused: None, capacity: Some(capacity) }).await;
    change(QueueChange { paused: Some(true), capacity: None }).await;
    fixture.send(unit()).await;
    let lane = fixture.store.queues(&ALL).await.unwrap().remove(0);
    assert_eq!((lane.paused, lane.capacity), (true, capacity));
    change(QueueChange { paused: Some(false), capacity: None }).await;
    let lane = fixture.store.queues(&ALL).await.unwrap().remove(0);
    assert_eq!((lane.paused, lane.capacity), (false, capacity));
}

pub(super) async fn a_lane_of_no_weight_is_refused(fixture: &StoreFixture) {
    let change = LaneChange { weight: Some(0), ..LaneChange::default() };
    let (name, who) = (queue("default"), tenant("default"));
    assert!(fixture.store.change_lane(&ALL, &name, &who, change).await.is_err());
}

pub(super) async fn totals_add_up_over_the_named_queues(fixture: &StoreFixture) {
    use longshore_core::store::Queues;
    fixture.send_many(3).await;
    fixture.send(NewUnit { queue: queue("other"), ..unit() }).await;
    fixture.open_batch(longshore_core::NewBatch::new(batch_id("open"))).await;
    fixture.send_sealed_batch(longshore_core::NewBatch::new(batch_id("sealed")), 1).await;
    let given_up = batch_id("given-up");
    fixture.open_batch(longshore_core::NewBatch::new(given_up.clone())).await;
    fixture.act_on_batch(&given_up, longshore_core::batch::BatchAction::Cancel).await;
    let session = fixture.session().await;
    fixture.claim(session, 1).await;
    let all = fixture.store.totals(&ALL, &Queues::All).await.unwrap();
    assert_eq!((all.counts.live(), all.counts.leased), (5, 1));
    assert_eq!((all.open_batches, all.sessions), (1, 1));
    let named = Queues::Named(vec![queue("other")]);
    assert_eq!(fixture.store.totals(&ALL, &named).await.unwrap().counts.total(), 1);
}
