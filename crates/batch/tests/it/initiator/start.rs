//! The batch's record, written before its first row is read.

use std::sync::atomic::Ordering;

use longshore::batch::{FailureLimit, FailureThreshold, OnThreshold};
use longshore::{BatchId, BatchStatus, Client, NewBatch, Scope, TenantId};
use longshore_batch::definition::{COMPLETION_KIND, QUEUE, RowConcurrency};
use longshore_batch::row_enqueuer::{FillError, RowEnqueuer, definition_of};
use longshore_testkit::Fault;

use super::{FillFixture, fill, numbers, options};
use crate::support::definition;

#[tokio::test]
async fn the_record_is_there_before_any_row_is_read() {
    let fixture = FillFixture::new(3);
    let mut wanted = definition();
    wanted.workers = RowConcurrency::Fixed(7);
    let (limit, then) = (FailureLimit::Percent(10.0), OnThreshold::Pause);
    wanted.threshold = Some(FailureThreshold { limit, then });
    let initiation = fixture.start_with(wanted.clone()).await;
    let batch = fixture.store.batch(&Scope::All, &initiation.batch().id).await.unwrap();
    assert_eq!((batch.id.as_str(), batch.kind.as_str()), ("20261115-071502-001", "review"));
    assert_eq!((batch.status, batch.sealed, batch.workers), (BatchStatus::Queued, false, Some(7)));
    assert_eq!((batch.initiated_by.as_str(), batch.threshold), ("a test", wanted.threshold));
    let callback = batch.callback.unwrap();
    assert_eq!((callback.queue.as_str(), callback.kind.as_str()), (QUEUE, COMPLETION_KIND));
    assert_eq!(definition_of(&fixture.client(), &batch.id).await.unwrap(), wanted);
    assert_eq!(fixture.table.reads.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn batches_of_one_second_are_numbered_for_each_tenant() {
    let fixture = FillFixture::new(0);
    let mut others = definition();
    others.tenant = TenantId::new("acme").unwrap();
    let mut ids = Vec::new();
    for definition in [definition(), others.clone(), definition(), others] {
        ids.push(fixture.start_with(definition).await.batch().id.to_string());
    }
    let expected = [("", 1), ("acme/", 1), ("", 2), ("acme/", 2)];
    assert_eq!(ids, expected.map(|(owner, number)| format!("{owner}20261115-071502-{number:03}")));
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_answer_was_lost_leaves_no_second_batch() {
    let fixture = FillFixture::breaking(2, &[("open_batch", 1, Fault::FailAfter)]);
    let initiator = RowEnqueuer::new(Client::new(fixture.store.clone()), fixture.table.clone());
    let mut initiation = initiator.start(definition(), options()).await.unwrap();
    assert_eq!(initiation.batch().id.as_str(), "20261115-071502-001");
    fill(&initiator, &mut initiation).await.unwrap();
    let batches = fixture.store.batches(&Scope::All, None, None, 10).await.unwrap();
    assert_eq!(batches.items.len(), 1);
    assert_eq!(fixture.keys(&initiation.batch().id).await, numbers(1..=2));
}

#[tokio::test]
async fn only_a_batch_of_rows_can_be_resumed() {
    let fixture = FillFixture::new(0);
    let id = BatchId::new("plain").unwrap();
    let missing = fixture.initiator().resume(&id).await.unwrap_err();
    assert!(matches!(missing, FillError::Store(longshore::Error::NotFound { .. })));
    fixture.client().open_batch(NewBatch::new(id.clone())).await.unwrap();
    let plain = fixture.initiator().resume(&id).await.unwrap_err();
    assert!(matches!(plain, FillError::Data(_)) && !plain.is_retryable(), "{plain}");
}
