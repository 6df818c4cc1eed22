//! Thresholds, callbacks and generations: the end of a batch, and retries after it.

use longshore_core::batch::{BatchAction, FailureLimit, OnThreshold, stopped_by_threshold};
use longshore_core::store::{Retention, UnitAction, UnitFilter};
use longshore_core::{
    BatchId, BatchStatus, Callback, FailureThreshold, Kind, NewBatch, Outcome, Unit, UnitState,
};

use super::helpers::*;
use crate::StoreFixture;

fn named(name: &str) -> (BatchId, NewBatch) {
    (batch_id(name), NewBatch::new(batch_id(name)))
}

fn failing_at(name: &str, units: u64, then: OnThreshold) -> (BatchId, NewBatch) {
    let (id, new) = named(name);
    let limit = FailureLimit::Units(units);
    (id, NewBatch { threshold: Some(FailureThreshold { limit, then }), ..new })
}

pub(super) async fn a_threshold_pauses_its_batch(world: &StoreFixture) {
    let (id, new) = failing_at("b", 2, OnThreshold::Pause);
    world.send_sealed_batch(new, 6).await;
    let session = world.session().await;
    world.claim_and_finish(session, 1, failed()).await;
    assert_eq!(world.batch(&id).await.status, BatchStatus::Running);
    world.claim_and_finish(session, 1, failed()).await;
    let batch = world.batch(&id).await;
    assert!(batch.status == BatchStatus::Paused && batch.reason.is_some());
    assert!(world.claim(session, 9).await.is_empty());
    let resumed = world.act_on_batch(&id, BatchAction::Resume).await;
    assert_eq!((resumed.status, resumed.forgiven), (BatchStatus::Running, 2));
    world.claim_and_finish(session, 1, failed()).await;
    assert_eq!(world.batch(&id).await.status, BatchStatus::Running, "two failures no longer count");
    world.claim_and_finish(session, 1, failed()).await;
    assert_eq!(world.batch(&id).await.status, BatchStatus::Paused);
}

pub(super) async fn a_batch_stopped_by_its_threshold_says_so_when_its_last_units_have_ended(
    world: &StoreFixture,
) {
    let (id, new) = named("b");
    let (limit, then) = (FailureLimit::Percent(2.0), OnThreshold::Pause);
    let new = NewBatch { threshold: Some(FailureThreshold { limit, then }), ..new };
    world.open_batch(new).await;
    // The batch is not sealed: the failed share refers to ended units, and falls with every success.
    world.add_chunk(&id, "", "more", units(200)).await;
    let session = world.session().await;
    let held = world.claim(session, 150).await;
    world.finish_all(session, &held[..2], failed()).await;
    assert!(stopped_by_threshold(&world.batch(&id).await));
    world.finish_all(session, &held[2..], done()).await;
    let batch = world.batch(&id).await;
    assert_eq!((batch.status, batch.counts.done), (BatchStatus::Paused, 148));
    assert!(stopped_by_threshold(&batch), "{:?}", batch.reason);
    world.act_on_batch(&id, BatchAction::Resume).await;
    world.act_on_batch(&id, BatchAction::Pause { reason: "lunch".to_owned() }).await;
    assert!(!stopped_by_threshold(&world.batch(&id).await));
}

pub(super) async fn a_threshold_fails_its_batch_and_ends_what_waits(world: &StoreFixture) {
    let (id, new) = failing_at("b", 1, OnThreshold::Fail);
    world.send_sealed_batch(new, 4).await;
    let session = world.session().await;
    let held = world.claim(session, 2).await;
    world.finish(session, held[0].lease, failed()).await;
    assert_eq!(world.batch(&id).await.status, BatchStatus::Failed);
    assert!(world.claim(session, 9).await.is_empty());
    world.promote().await;
    let beat = world.store.heartbeat(session, Default::default()).await.unwrap();
    assert_eq!(beat.cancel, [held[1].unit.id]);
    world.finish(session, held[1].lease, Outcome::Cancel).await;
    let batch = world.batch(&id).await;
    assert_eq!((batch.counts.failed, batch.counts.cancelled), (1, 3));
    assert!(batch.status == BatchStatus::Failed && batch.completed_at.is_some());
}

async fn callbacks(world: &StoreFixture) -> Vec<Unit> {
    let filter = UnitFilter { queue: Some(queue("after")), ..UnitFilter::default() };
    world.store.units(&ALL, &filter, None, 100).await.unwrap().items
}

fn calling_back(name: &str) -> (BatchId, NewBatch) {
    let (id, new) = named(name);
    let (queue, kind) = (queue("after"), Kind::new("report").unwrap());
    let data = serde_json::json!({"to": "ada"});
    (id, NewBatch { callback: Some(Callback::new(queue, kind, data)), ..new })
}

pub(super) async fn the_callback_is_sent_once_when_the_batch_ends(world: &StoreFixture) {
    let (id, new) = calling_back("b");
    let bound = longshore_core::store::Capacity { units: Some(0), bytes: None };
    let change = longshore_core::store::QueueChange { paused: None, capacity: Some(bound) };
    world.store.change_queue(&ALL, &queue("after"), change).await.unwrap();
    world.send_sealed_batch(new, 2).await;
    let session = world.session().await;
    world.claim_and_finish(session, 1, done()).await;
    assert!(callbacks(world).await.is_empty());
    world.claim_and_finish(session, 1, failed()).await;
    let sent = callbacks(world).await;
    assert_eq!(sent.len(), 1, "even into a full queue");
    assert_eq!((sent[0].state, sent[0].batch.clone()), (UnitState::Ready, None));
    world.store.seal_batch(&ALL, &id).await.unwrap();
    world.promote().await;
    assert_eq!(callbacks(world).await.len(), 1);
    let payload: serde_json::Value = world.unit(sent[0].id).await.payload.parse().unwrap();
    assert_eq!((&payload["batch"], &payload["status"]), (&"b".into(), &"complete".into()));
    assert_eq!((&payload["generation"], &payload["data"]["to"]), (&1.into(), &"ada".into()));
    assert_eq!((&payload["counts"]["done"], &payload["counts"]["failed"]), (&1.into(), &1.into()));
}

pub(super) async fn a_cancelled_batch_calls_back_too(world: &StoreFixture) {
    let (id, new) = calling_back("b");
    world.send_sealed_batch(new, 3).await;
    world.act_on_batch(&id, BatchAction::Cancel).await;
    world.promote().await;
    assert_eq!(callbacks(world).await.len(), 1);
}

pub(super) async fn retrying_failures_opens_a_new_generation(world: &StoreFixture) {
    let (id, new) = calling_back("b");
    world.send_sealed_batch(new, 3).await;
    let session = world.session().await;
    world.claim_and_finish(session, 1, done()).await;
    world.claim_and_finish(session, 2, failed()).await;
    let batch = world.act_on_batch(&id, BatchAction::RetryFailed).await;
    assert_eq!((batch.status, batch.generation), (BatchStatus::Running, 2));
    assert_eq!((batch.counts.ready, batch.counts.failed, batch.completed_at), (2, 0, None));
    let again = world.claim(session, 9).await;
    assert!(again.iter().all(|held| held.unit.attempt == 1), "with fresh attempts");
    world.finish_all(session, &again, done()).await;
    let batch = world.batch(&id).await;
    assert_eq!((batch.status, batch.counts.done), (BatchStatus::Complete, 3));
    assert_eq!(callbacks(world).await.len(), 2, "once per generation");
}

pub(super) async fn retrying_failures_before_the_end_opens_none(world: &StoreFixture) {
    let (id, new) = named("b");
    world.send_sealed_batch(new, 2).await;
    let session = world.session().await;
    world.claim_and_finish(session, 1, failed()).await;
    let batch = world.act_on_batch(&id, BatchAction::RetryFailed).await;
    assert_eq!((batch.status, batch.generation), (BatchStatus::Running, 1));
    assert_eq!((batch.counts.ready, batch.counts.failed), (2, 0));
}

pub(super) async fn retrying_one_unit_of_an_ended_batch_opens_a_new_generation(world: &StoreFixture) {
    let (id, new) = calling_back("b");
    let sent = world.send_sealed_batch(new, 2).await;
    let session = world.session().await;
    world.claim_and_finish(session, 2, failed()).await;
    assert_eq!(world.retry(sent[0]).await.changed, 1);
    let batch = world.batch(&id).await;
    assert_eq!((batch.status, batch.generation), (BatchStatus::Running, 2));
    assert_eq!((batch.counts.ready, batch.counts.failed), (1, 1));
    world.claim_and_finish(session, 1, done()).await;
    assert_eq!(world.batch(&id).await.status, BatchStatus::Complete);
    assert_eq!(callbacks(world).await.len(), 2);
}

pub(super) async fn retrying_a_cancelled_unit_reopens_its_ended_batch(world: &StoreFixture) {
    let (id, new) = calling_back("b");
    let sent = world.send_sealed_batch(new, 1).await;
    world.cancel(sent[0]).await;
    assert_eq!(world.batch(&id).await.status, BatchStatus::Complete);
    assert_eq!(world.retry(sent[0]).await.changed, 1);
    let batch = world.batch(&id).await;
    assert_eq!((batch.status, batch.generation), (BatchStatus::Running, 2));
    let session = world.session().await;
    world.claim_and_finish(session, 1, done()).await;
    assert_eq!(world.batch(&id).await.status, BatchStatus::Complete);
    assert_eq!(callbacks(world).await.len(), 2);
}

pub(super) async fn a_batch_given_up_is_not_retried_while_its_last_units_run(world: &StoreFixture) {
    let (id, new) = failing_at("b", 1, OnThreshold::Fail);
    let sent = world.send_sealed_batch(new, 2).await;
    let session = world.session().await;
    let held = world.claim(session, 2).await;
    world.finish(session, held[0].lease, failed()).await;
    let refused = world.store.apply_batch_action(&ALL, &id, BatchAction::RetryFailed).await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(world.state(sent[0]).await, UnitState::Failed, "nothing was changed");
    world.finish(session, held[1].lease, Outcome::Cancel).await;
    assert_eq!(world.act_on_batch(&id, BatchAction::RetryFailed).await.generation, 2);
}

pub(super) async fn retrying_one_unit_after_the_threshold_lets_it_run(world: &StoreFixture) {
    let (id, new) = failing_at("b", 2, OnThreshold::Fail);
    let sent = world.send_sealed_batch(new, 3).await;
    let session = world.session().await;
    world.claim_and_finish(session, 2, failed()).await;
    world.promote().await;
    assert_eq!(world.batch(&id).await.status, BatchStatus::Failed);
    assert_eq!(world.retry(sent[0]).await.changed, 1);
    let batch = world.batch(&id).await;
    assert_eq!((batch.status, batch.generation), (BatchStatus::Running, 2));
    let held = world.claim_one(session).await;
    assert_eq!(held.unit.id, sent[0]);
    world.finish(session, held.lease, done()).await;
    let batch = world.batch(&id).await;
    assert_eq!((batch.status, batch.counts.failed), (BatchStatus::Complete, 1));
}

pub(super) async fn new_failures_count_although_old_ones_were_forgiven(world: &StoreFixture) {
    let (id, new) = failing_at("b", 1, OnThreshold::Fail);
    let sent = world.send_sealed_batch(new, 2).await;
    let session = world.session().await;
    world.claim_and_finish(session, 1, failed()).await;
    world.promote().await;
    world.retry(sent[0]).await;
    world.claim_and_finish(session, 1, failed()).await;
    assert_eq!(world.batch(&id).await.status, BatchStatus::Failed, "it failed again");
}

pub(super) async fn two_units_are_retried_at_once(world: &StoreFixture) {
    let (id, new) = named("b");
    let sent = world.send_sealed_batch(new, 3).await;
    let session = world.session().await;
    world.claim_and_finish(session, 2, failed()).await;
    world.claim_and_finish(session, 1, done()).await;
    let operated = world.act_on_units(&sent[..2], UnitAction::Retry).await;
    assert_eq!((operated.changed, operated.skipped), (2, 0));
    let batch = world.batch(&id).await;
    assert_eq!((batch.generation, batch.counts.ready, batch.counts.failed), (2, 2, 0));
    world.claim_and_finish(session, 2, done()).await;
    assert_eq!(world.batch(&id).await.status, BatchStatus::Complete);
}

pub(super) async fn a_batch_whose_failures_are_gone_is_not_retried(world: &StoreFixture) {
    let (id, new) = calling_back("b");
    world.send_sealed_batch(new, 1).await;
    let session = world.session().await;
    world.claim_and_finish(session, 1, failed()).await;
    world.clock.advance(secs(20 * 24 * 3600));
    let (done, failed) = (secs(1), secs(1));
    let retention = Retention { done, failed, batches: secs(90 * 24 * 3600), ..Retention::default() };
    world.store.prune(retention, 100).await.unwrap();
    let before = world.batch(&id).await;
    let refused = world.store.apply_batch_action(&ALL, &id, BatchAction::RetryFailed).await;
    assert!(refused.unwrap_err().to_string().contains("none of its failed units"));
    assert_eq!(world.batch(&id).await, before);
}
