//! Thresholds, callbacks and generations: the end of a batch, and retries after it.

use longshore_core::batch::{BatchAction, BatchRevision, FailureLimit, OnThreshold, stopped_by_threshold};
use longshore_core::store::{Retention, UnitAction, UnitFilter};
use longshore_core::{
    BatchId, BatchStatus, Callback, Error, FailureThreshold, Kind, NewBatch, Outcome, Payload, Unit,
    UnitState,
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

pub(super) async fn a_threshold_pauses_its_batch(fixture: &StoreFixture) {
    let (id, new) = failing_at("b", 2, OnThreshold::Pause);
    fixture.send_sealed_batch(new, 6).await;
    let session = fixture.session().await;
    fixture.claim_and_finish(session, 1, failed()).await;
    assert_eq!(fixture.batch(&id).await.status, BatchStatus::Running);
    fixture.claim_and_finish(session, 1, failed()).await;
    let batch = fixture.batch(&id).await;
    assert!(batch.status == BatchStatus::Paused && batch.reason.is_some());
    assert!(fixture.claim(session, 9).await.is_empty());
    let resumed = fixture.act_on_batch(&id, BatchAction::Resume).await;
    assert_eq!((resumed.status, resumed.forgiven), (BatchStatus::Running, 2));
    fixture.claim_and_finish(session, 1, failed()).await;
    assert_eq!(fixture.batch(&id).await.status, BatchStatus::Running, "two failures no longer count");
    fixture.claim_and_finish(session, 1, failed()).await;
    assert_eq!(fixture.batch(&id).await.status, BatchStatus::Paused);
}

pub(super) async fn a_batch_stopped_by_its_threshold_says_so_when_its_last_units_have_ended(
    fixture: &StoreFixture,
) {
    let (id, new) = named("b");
    let (limit, then) = (FailureLimit::Percent(2.0), OnThreshold::Pause);
    let new = NewBatch { threshold: Some(FailureThreshold { limit, then }), ..new };
    fixture.open_batch(new).await;
    // The batch is not sealed: the failed share refers to ended units, and falls with every success.
    fixture.add_chunk(&id, "", "more", units(200)).await;
    let session = fixture.session().await;
    let held = fixture.claim(session, 150).await;
    fixture.finish_all(session, &held[..2], failed()).await;
    assert!(stopped_by_threshold(&fixture.batch(&id).await));
    fixture.finish_all(session, &held[2..], done()).await;
    let batch = fixture.batch(&id).await;
    assert_eq!((batch.status, batch.counts.done), (BatchStatus::Paused, 148));
    assert!(stopped_by_threshold(&batch), "{:?}", batch.reason);
    fixture.act_on_batch(&id, BatchAction::Resume).await;
    fixture.act_on_batch(&id, BatchAction::Pause { reason: "lunch".to_owned() }).await;
    assert!(!stopped_by_threshold(&fixture.batch(&id).await));
}

pub(super) async fn a_threshold_fails_its_batch_and_ends_what_waits(fixture: &StoreFixture) {
    let (id, new) = failing_at("b", 1, OnThreshold::Fail);
    fixture.send_sealed_batch(new, 4).await;
    let session = fixture.session().await;
    let held = fixture.claim(session, 2).await;
    fixture.finish(session, held[0].lease, failed()).await;
    assert_eq!(fixture.batch(&id).await.status, BatchStatus::Failed);
    assert!(fixture.claim(session, 9).await.is_empty());
    fixture.promote().await;
    let beat = fixture.store.heartbeat(session, Default::default()).await.unwrap();
    assert_eq!(beat.cancel, [held[1].unit.id]);
    fixture.finish(session, held[1].lease, Outcome::Cancel).await;
    let batch = fixture.batch(&id).await;
    assert_eq!((batch.counts.failed, batch.counts.cancelled), (1, 3));
    assert!(batch.status == BatchStatus::Failed && batch.completed_at.is_some());
}

async fn callbacks(fixture: &StoreFixture) -> Vec<Unit> {
    let filter = UnitFilter { queue: Some(queue("after")), ..UnitFilter::default() };
    fixture.store.units(&ALL, &filter, None, 100).await.unwrap().items
}

fn calling_back(name: &str) -> (BatchId, NewBatch) {
    let (id, new) = named(name);
    let (queue, kind) = (queue("after"), Kind::new("report").unwrap());
    let data = serde_json::json!({"to": "ada"});
    (id, NewBatch { callback: Some(Callback::new(queue, kind, data)), ..new })
}

pub(super) async fn the_callback_is_sent_once_when_the_batch_ends(fixture: &StoreFixture) {
    let (id, new) = calling_back("b");
    let bound = longshore_core::store::Capacity { units: Some(0), bytes: None };
    let change = longshore_core::store::QueueChange { paused: None, capacity: Some(bound) };
    fixture.store.change_queue(&ALL, &queue("after"), change).await.unwrap();
    fixture.send_sealed_batch(new, 2).await;
    let session = fixture.session().await;
    fixture.claim_and_finish(session, 1, done()).await;
    assert!(callbacks(fixture).await.is_empty());
    fixture.claim_and_finish(session, 1, failed()).await;
    let sent = callbacks(fixture).await;
    assert_eq!(sent.len(), 1, "even into a full queue");
    assert_eq!((sent[0].state, sent[0].batch.clone()), (UnitState::Ready, None));
    fixture.store.seal_batch(&ALL, &id).await.unwrap();
    fixture.promote().await;
    assert_eq!(callbacks(fixture).await.len(), 1);
    let payload: serde_json::Value = fixture.unit(sent[0].id).await.payload.parse().unwrap();
    assert_eq!((&payload["batch"], &payload["status"]), (&"b".into(), &"complete".into()));
    assert_eq!((&payload["generation"], &payload["data"]["to"]), (&1.into(), &"ada".into()));
    assert_eq!((&payload["counts"]["done"], &payload["counts"]["failed"]), (&1.into(), &1.into()));
}

pub(super) async fn a_cancelled_batch_calls_back_too(fixture: &StoreFixture) {
    let (id, new) = calling_back("b");
    fixture.send_sealed_batch(new, 3).await;
    fixture.act_on_batch(&id, BatchAction::Cancel).await;
    fixture.promote().await;
    assert_eq!(callbacks(fixture).await.len(), 1);
}

pub(super) async fn retrying_failures_opens_a_new_generation(fixture: &StoreFixture) {
    let (id, new) = calling_back("b");
    fixture.send_sealed_batch(new, 3).await;
    let session = fixture.session().await;
    fixture.claim_and_finish(session, 1, done()).await;
    fixture.claim_and_finish(session, 2, failed()).await;
    let batch = fixture.act_on_batch(&id, BatchAction::RetryFailed).await;
    assert_eq!((batch.status, batch.generation), (BatchStatus::Running, 2));
    assert_eq!((batch.counts.ready, batch.counts.failed, batch.completed_at), (2, 0, None));
    let again = fixture.claim(session, 9).await;
    assert!(again.iter().all(|held| held.unit.attempt == 1), "with fresh attempts");
    fixture.finish_all(session, &again, done()).await;
    let batch = fixture.batch(&id).await;
    assert_eq!((batch.status, batch.counts.done), (BatchStatus::Complete, 3));
    assert_eq!(callbacks(fixture).await.len(), 2, "once per generation");
}

pub(super) async fn retrying_failures_before_the_end_opens_none(fixture: &StoreFixture) {
    let (id, new) = named("b");
    fixture.send_sealed_batch(new, 2).await;
    let session = fixture.session().await;
    fixture.claim_and_finish(session, 1, failed()).await;
    let batch = fixture.act_on_batch(&id, BatchAction::RetryFailed).await;
    assert_eq!((batch.status, batch.generation), (BatchStatus::Running, 1));
    assert_eq!((batch.counts.ready, batch.counts.failed), (2, 0));
}

pub(super) async fn each_retry_of_a_unit_has_a_generation_of_its_own(fixture: &StoreFixture) {
    let (id, new) = named("b");
    let sent = fixture.send_sealed_batch(new, 2).await;
    let session = fixture.session().await;
    let generations = async |id| {
        let unit = fixture.unit(id).await;
        (unit.generation, unit.batch_generation)
    };
    fixture.claim_and_finish(session, 1, failed()).await;
    fixture.act_on_batch(&id, BatchAction::RetryFailed).await;
    let mut first = [generations(sent[0]).await, generations(sent[1]).await];
    first.sort_unstable();
    assert_eq!(first, [(1, 1), (2, 1)], "the batch has not ended, but the attempts are counted anew");
    fixture.claim_and_finish(session, 2, failed()).await;
    fixture.act_on_batch(&id, BatchAction::RetryFailed).await;
    let mut second = [generations(sent[0]).await, generations(sent[1]).await];
    second.sort_unstable();
    assert_eq!(second, [(2, 2), (3, 2)]);
    fixture.claim_and_finish(session, 2, failed()).await;
    let before = generations(sent[0]).await.0;
    fixture.retry(sent[0]).await;
    assert_eq!(generations(sent[0]).await, (before + 1, 3));
    assert_eq!(generations(sent[1]).await.1, 2, "the other unit ended in generation 2");
}

pub(super) async fn a_running_batch_takes_a_corrected_definition_once(fixture: &StoreFixture) {
    let (id, new) = named("b");
    let payload = |text: &str| Payload::from(text.as_bytes());
    let new = NewBatch { definition: Some(payload("one")), workers: Some(3), ..new };
    fixture.send_sealed_batch(new, 1).await;
    let (limit, then) = (FailureLimit::Units(7), OnThreshold::Fail);
    let threshold = Some(FailureThreshold { limit, then });
    let revise = |expected: &str, definition: &str| {
        let (expected, definition) = (payload(expected), payload(definition));
        let revision = BatchRevision { expected, definition, threshold, workers: Some(9) };
        fixture.store.apply_batch_action(&ALL, &id, BatchAction::Revise(Box::new(revision)))
    };
    let batch = revise("one", "two").await.unwrap();
    assert_eq!((batch.threshold, batch.workers), (threshold, Some(9)));
    assert_eq!(fixture.store.definition(&ALL, &id).await.unwrap(), Some(payload("two")));
    let late = revise("one", "three").await;
    assert!(matches!(late, Err(Error::Invalid(_))), "another client was first: {late:?}");
    let session = fixture.session().await;
    fixture.claim_and_finish(session, 1, done()).await;
    assert!(matches!(revise("two", "three").await, Err(Error::BatchStatus(_))), "it has ended");
    assert_eq!(fixture.store.definition(&ALL, &id).await.unwrap(), Some(payload("two")));
}

pub(super) async fn retrying_one_unit_of_an_ended_batch_opens_a_new_generation(fixture: &StoreFixture) {
    let (id, new) = calling_back("b");
    let sent = fixture.send_sealed_batch(new, 2).await;
    let session = fixture.session().await;
    fixture.claim_and_finish(session, 2, failed()).await;
    assert_eq!(fixture.retry(sent[0]).await.changed, 1);
    let batch = fixture.batch(&id).await;
    assert_eq!((batch.status, batch.generation), (BatchStatus::Running, 2));
    assert_eq!((batch.counts.ready, batch.counts.failed), (1, 1));
    fixture.claim_and_finish(session, 1, done()).await;
    assert_eq!(fixture.batch(&id).await.status, BatchStatus::Complete);
    assert_eq!(callbacks(fixture).await.len(), 2);
}

pub(super) async fn retrying_a_cancelled_unit_reopens_its_ended_batch(fixture: &StoreFixture) {
    let (id, new) = calling_back("b");
    let sent = fixture.send_sealed_batch(new, 1).await;
    fixture.cancel(sent[0]).await;
    assert_eq!(fixture.batch(&id).await.status, BatchStatus::Complete);
    assert_eq!(fixture.retry(sent[0]).await.changed, 1);
    let batch = fixture.batch(&id).await;
    assert_eq!((batch.status, batch.generation), (BatchStatus::Running, 2));
    let session = fixture.session().await;
    fixture.claim_and_finish(session, 1, done()).await;
    assert_eq!(fixture.batch(&id).await.status, BatchStatus::Complete);
    assert_eq!(callbacks(fixture).await.len(), 2);
}

pub(super) async fn a_batch_given_up_is_not_retried_while_its_last_units_run(fixture: &StoreFixture) {
    let (id, new) = failing_at("b", 1, OnThreshold::Fail);
    let sent = fixture.send_sealed_batch(new, 2).await;
    let session = fixture.session().await;
    let held = fixture.claim(session, 2).await;
    fixture.finish(session, held[0].lease, failed()).await;
    let refused = fixture.store.apply_batch_action(&ALL, &id, BatchAction::RetryFailed).await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(fixture.state(sent[0]).await, UnitState::Failed, "nothing was changed");
    fixture.finish(session, held[1].lease, Outcome::Cancel).await;
    assert_eq!(fixture.act_on_batch(&id, BatchAction::RetryFailed).await.generation, 2);
}

pub(super) async fn retrying_one_unit_after_the_threshold_lets_it_run(fixture: &StoreFixture) {
    let (id, new) = failing_at("b", 2, OnThreshold::Fail);
    let sent = fixture.send_sealed_batch(new, 3).await;
    let session = fixture.session().await;
    fixture.claim_and_finish(session, 2, failed()).await;
    fixture.promote().await;
    assert_eq!(fixture.batch(&id).await.status, BatchStatus::Failed);
    assert_eq!(fixture.retry(sent[0]).await.changed, 1);
    let batch = fixture.batch(&id).await;
    assert_eq!((batch.status, batch.generation), (BatchStatus::Running, 2));
    let held = fixture.claim_one(session).await;
    assert_eq!(held.unit.id, sent[0]);
    fixture.finish(session, held.lease, done()).await;
    let batch = fixture.batch(&id).await;
    assert_eq!((batch.status, batch.counts.failed), (BatchStatus::Complete, 1));
}

pub(super) async fn new_failures_count_although_old_ones_were_forgiven(fixture: &StoreFixture) {
    let (id, new) = failing_at("b", 1, OnThreshold::Fail);
    let sent = fixture.send_sealed_batch(new, 2).await;
    let session = fixture.session().await;
    fixture.claim_and_finish(session, 1, failed()).await;
    fixture.promote().await;
    fixture.retry(sent[0]).await;
    fixture.claim_and_finish(session, 1, failed()).await;
    assert_eq!(fixture.batch(&id).await.status, BatchStatus::Failed, "it failed again");
}

pub(super) async fn two_units_are_retried_at_once(fixture: &StoreFixture) {
    let (id, new) = named("b");
    let sent = fixture.send_sealed_batch(new, 3).await;
    let session = fixture.session().await;
    fixture.claim_and_finish(session, 2, failed()).await;
    fixture.claim_and_finish(session, 1, done()).await;
    let operated = fixture.act_on_units(&sent[..2], UnitAction::Retry).await;
    assert_eq!((operated.changed, operated.skipped), (2, 0));
    let batch = fixture.batch(&id).await;
    assert_eq!((batch.generation, batch.counts.ready, batch.counts.failed), (2, 2, 0));
    fixture.claim_and_finish(session, 2, done()).await;
    assert_eq!(fixture.batch(&id).await.status, BatchStatus::Complete);
}

pub(super) async fn a_batch_whose_failures_are_gone_is_not_retried(fixture: &StoreFixture) {
    let (id, new) = calling_back("b");
    fixture.send_sealed_batch(new, 1).await;
    let session = fixture.session().await;
    fixture.claim_and_finish(session, 1, failed()).await;
    fixture.clock.advance(secs(20 * 24 * 3600));
    let (done, failed) = (secs(1), secs(1));
    let retention = Retention { done, failed, batches: secs(90 * 24 * 3600), ..Retention::default() };
    fixture.store.prune(retention, 100).await.unwrap();
    let before = fixture.batch(&id).await;
    let refused = fixture.store.apply_batch_action(&ALL, &id, BatchAction::RetryFailed).await;
    assert!(refused.unwrap_err().to_string().contains("none of its failed units"));
    assert_eq!(fixture.batch(&id).await, before);
}
