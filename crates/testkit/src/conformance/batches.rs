//! Batches: cursor, seal, exact counts, pauses and completion.

use longshore_core::batch::{BatchAction, FailureLimit, OnThreshold};
use longshore_core::store::{
    AddChunkResult, BatchChunk, ClaimRequest, OpenBatchResult, SendRejection, SendResult,
};
use longshore_core::unit::Dedup;
use longshore_core::{
    Batch, BatchId, BatchStatus, Callback, Counts, Error, FailureThreshold, NewBatch, NewUnit, Outcome,
    Scope, TenantId, UnitState,
};

use super::helpers::*;
use crate::StoreFixture;

fn named(name: &str) -> (BatchId, NewBatch) {
    (batch_id(name), NewBatch::new(batch_id(name)))
}

fn chunk(expected: &str, next: &str, units: Vec<NewUnit>) -> BatchChunk {
    BatchChunk { expected: expected.to_owned(), next: next.to_owned(), units }
}

pub(super) async fn an_opened_batch_is_kept_whole(fixture: &StoreFixture) {
    let callback = Callback::new(queue("after"), kind(), 7.into());
    let limit = FailureLimit::Percent(12.5);
    let new = NewBatch {
        kind: "rows".into(),
        initiated_by: "ada".into(),
        workers: Some(4),
        notes: "nightly".into(),
        threshold: Some(FailureThreshold { limit, then: OnThreshold::Fail }),
        callback: Some(callback),
        ..NewBatch::new(batch_id("b"))
    };
    fixture.open_batch(new.clone()).await;
    let batch = fixture.batch(&new.id).await;
    assert_eq!((batch.id, batch.tenant, batch.kind), (new.id, new.tenant, new.kind));
    assert_eq!((batch.initiated_by, batch.workers), (new.initiated_by, new.workers));
    assert_eq!((batch.notes, batch.threshold), (new.notes, new.threshold));
    assert_eq!((batch.callback, batch.initiated_at), (new.callback, fixture.now()));
    assert_eq!((batch.status, batch.generation, batch.sealed), (BatchStatus::Queued, 1, false));
    assert_eq!((batch.cursor.as_str(), batch.counts), ("", Counts::default()));
}

pub(super) async fn a_batch_is_found_by_its_number(fixture: &StoreFixture) {
    let open = async |name: &str| {
        fixture.open_batch(NewBatch::new(batch_id(name))).await;
        fixture.batch(&batch_id(name)).await
    };
    let (first, second) = (open("first").await, open("second").await);
    assert!(0 < first.number && first.number < second.number);
    let by_number = |number: u64| batch_id(&number.to_string());
    assert_eq!(fixture.batch(&by_number(first.number)).await, first);
    assert_eq!(fixture.batch(&by_number(second.number)).await, second);
    // A batch with such a name is found first.
    let namesake = open(&first.number.to_string()).await;
    assert_eq!(fixture.batch(&by_number(first.number)).await, namesake);
    for unknown in ["99999", "0", "01", "-1"] {
        let found = fixture.store.batch(&ALL, &batch_id(unknown)).await;
        assert!(matches!(found, Err(Error::NotFound { .. })), "{unknown}: {found:?}");
    }
    // Another tenant's number says nothing.
    let foreign = Scope::Tenant(TenantId::new("other").unwrap());
    let found = fixture.store.batch(&foreign, &by_number(second.number)).await;
    assert!(matches!(found, Err(Error::NotFound { .. })), "{found:?}");
    let page = fixture.store.batches(&ALL, None, None, 10).await.unwrap();
    assert!(page.items.iter().any(|batch| batch.number == second.number));
}

pub(super) async fn opening_again_finds_the_batch_and_its_cursor(fixture: &StoreFixture) {
    let (id, new) = named("b");
    fixture.open_batch(new.clone()).await;
    fixture.add_chunk(&id, "", "line 10", units(10)).await;
    let OpenBatchResult::Existing(batch) = fixture.store.open_batch(&ALL, new).await.unwrap() else {
        unreachable!("it was there")
    };
    assert_eq!((batch.cursor.as_str(), batch.counts.ready), ("line 10", 10));
}

pub(super) async fn a_chunk_and_its_cursor_go_in_together(fixture: &StoreFixture) {
    let (id, new) = named("b");
    fixture.open_batch(new).await;
    let first = units(3);
    let expected: Vec<SendResult> = first.iter().map(|unit| SendResult::Created(unit.id)).collect();
    let unit_id = first[0].id;
    let added = fixture.store.add_to_batch(&ALL, &id, chunk("", "3", first)).await.unwrap();
    assert_eq!(added, AddChunkResult::Committed(expected));
    assert_eq!(fixture.unit(unit_id).await.batch, Some(id.clone()));
    let batch = fixture.batch(&id).await;
    assert_eq!((batch.cursor.as_str(), batch.counts.ready, batch.counts.total()), ("3", 3, 3));
}

pub(super) async fn a_chunk_sent_twice_is_taken_once(fixture: &StoreFixture) {
    let (id, new) = named("b");
    fixture.open_batch(new).await;
    let part = chunk("", "3", units(3));
    fixture.store.add_to_batch(&ALL, &id, part.clone()).await.unwrap();
    let again = fixture.store.add_to_batch(&ALL, &id, part).await.unwrap();
    assert_eq!(again, AddChunkResult::CursorMoved("3".into()));
    let late = fixture.store.add_to_batch(&ALL, &id, chunk("1", "2", units(1))).await.unwrap();
    assert_eq!(late, AddChunkResult::CursorMoved("3".into()));
    assert_eq!(fixture.batch(&id).await.counts.total(), 3);
}

pub(super) async fn a_duplicate_in_a_chunk_is_not_counted_twice(fixture: &StoreFixture) {
    let (id, new) = named("b");
    fixture.open_batch(new).await;
    let dedup = || {
        let key = "row".to_owned();
        Some(Dedup { key, window: Default::default(), on_duplicate: Default::default() })
    };
    let first = NewUnit { dedup: dedup(), ..unit() };
    let (taken, again) = (first.id, NewUnit { dedup: dedup(), ..unit() });
    let part = chunk("", "2", vec![first, again]);
    let added = fixture.store.add_to_batch(&ALL, &id, part).await.unwrap();
    assert_eq!(
        added,
        AddChunkResult::Committed(vec![SendResult::Created(taken), SendResult::Existing(taken)])
    );
    assert_eq!(fixture.batch(&id).await.counts.total(), 1);
}

pub(super) async fn a_chunk_that_finds_no_room_leaves_nothing_behind(fixture: &StoreFixture) {
    let (id, new) = named("b");
    fixture.open_batch(new).await;
    let capacity = longshore_core::store::Capacity { units: Some(2), bytes: None };
    let change = longshore_core::store::QueueChange { paused: None, capacity: Some(capacity) };
    fixture.store.change_queue(&ALL, &queue("default"), change).await.unwrap();
    let part = chunk("", "3", units(3));
    let AddChunkResult::Committed(answers) =
        fixture.store.add_to_batch(&ALL, &id, part.clone()).await.unwrap()
    else {
        unreachable!("the cursor was right")
    };
    assert!(matches!(answers[2], SendResult::Rejected(SendRejection::Full { .. })), "{answers:?}");
    let batch = fixture.batch(&id).await;
    assert_eq!((batch.cursor.as_str(), batch.counts.total()), ("", 0));
    for unit in &part.units {
        assert!(fixture.store.unit(&ALL, unit.id).await.is_err());
    }
    fixture.add_chunk(&id, "", "2", part.units[..2].to_vec()).await;
}

pub(super) async fn a_sealed_batch_takes_no_more(fixture: &StoreFixture) {
    let (id, new) = named("b");
    fixture.send_sealed_batch(new, 1).await;
    let added = fixture.store.add_to_batch(&ALL, &id, chunk("end", "more", units(1))).await;
    assert!(added.is_err(), "{added:?}");
    assert!(fixture.store.seal_batch(&ALL, &id).await.unwrap().sealed, "sealing is idempotent");
    assert_eq!(fixture.batch(&id).await.counts.total(), 1);
}

pub(super) async fn an_unknown_batch_is_not_found(fixture: &StoreFixture) {
    let id = batch_id("nothing");
    assert!(fixture.store.batch(&ALL, &id).await.is_err());
    assert!(fixture.store.seal_batch(&ALL, &id).await.is_err());
    assert!(fixture.store.add_to_batch(&ALL, &id, chunk("", "1", units(1))).await.is_err());
    assert!(fixture.store.apply_batch_action(&ALL, &id, BatchAction::Cancel).await.is_err());
}

pub(super) async fn an_empty_batch_is_complete_when_sealed(fixture: &StoreFixture) {
    let (id, new) = named("b");
    fixture.open_batch(new).await;
    let batch = fixture.store.seal_batch(&ALL, &id).await.unwrap();
    assert_eq!((batch.status, batch.completed_at), (BatchStatus::Complete, Some(fixture.now())));
}

pub(super) async fn a_batch_goes_from_queued_to_running_to_complete(fixture: &StoreFixture) {
    let (id, new) = named("b");
    fixture.send_sealed_batch(new, 2).await;
    assert_eq!(fixture.batch(&id).await.status, BatchStatus::Queued);
    let session = fixture.session().await;
    fixture.clock.advance(secs(1));
    let started = fixture.now();
    fixture.claim_and_finish(session, 1, done()).await;
    let batch = fixture.batch(&id).await;
    assert_eq!((batch.status, batch.started_at), (BatchStatus::Running, Some(started)));
    fixture.clock.advance(secs(1));
    fixture.claim_and_finish(session, 1, done()).await;
    let batch = fixture.batch(&id).await;
    assert_eq!((batch.status, batch.started_at), (BatchStatus::Complete, Some(started)));
    assert_eq!(batch.completed_at, Some(fixture.now()));
}

pub(super) async fn a_batch_does_not_end_before_it_is_sealed(fixture: &StoreFixture) {
    let (id, new) = named("b");
    fixture.open_batch(new).await;
    fixture.add_chunk(&id, "", "1", units(1)).await;
    let session = fixture.session().await;
    fixture.claim_and_finish(session, 1, done()).await;
    assert_eq!(fixture.batch(&id).await.status, BatchStatus::Running);
    assert_eq!(fixture.store.seal_batch(&ALL, &id).await.unwrap().status, BatchStatus::Complete);
}

pub(super) async fn tally_is_exact(fixture: &StoreFixture) {
    let (id, new) = named("b");
    let sent = fixture.send_sealed_batch(new, 12).await;
    let session = fixture.session_with(attempts(2)).await;
    fixture.cancel(sent[11]).await;
    fixture.claim_and_finish(session, 3, done()).await;
    fixture.claim_and_finish(session, 2, failed()).await;
    fixture.claim_and_finish(session, 1, Outcome::Cancel).await;
    fixture.claim_and_finish(session, 2, retry_after(secs(60))).await;
    let held = fixture.claim(session, 2).await;
    let batch = fixture.batch(&id).await;
    let expected = Counts { blocked: 0, scheduled: 2, ready: 1, leased: 2, done: 3, failed: 2, cancelled: 2 };
    assert_eq!(batch.counts, expected, "a retried unit does not count as done");
    fixture.finish_all(session, &held, done()).await;
    fixture.clock.advance(secs(60));
    fixture.promote().await;
    let last = fixture.claim(session, 10).await;
    fixture.finish_all(session, &last, retry_after(secs(0))).await;
    let last = fixture.claim(session, 10).await;
    fixture.finish_all(session, &last, done()).await;
    let batch = fixture.batch(&id).await;
    assert_eq!(batch.status, BatchStatus::Complete);
    let (counts, total) = (batch.counts, batch.counts.total());
    assert_eq!((counts.done, counts.failed, counts.cancelled, total), (6, 4, 2, 12));
}

pub(super) async fn a_paused_batch_gives_nothing_until_resumed(fixture: &StoreFixture) {
    let (id, new) = named("b");
    fixture.send_sealed_batch(new, 2).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    let paused = fixture.act_on_batch(&id, BatchAction::Pause { reason: "lunch".into() }).await;
    assert_eq!((paused.status, paused.reason.as_deref()), (BatchStatus::Paused, Some("lunch")));
    assert!(fixture.claim(session, 9).await.is_empty());
    fixture.finish(session, held.lease, done()).await;
    assert_eq!(fixture.batch(&id).await.status, BatchStatus::Paused, "running units may end");
    assert_eq!(fixture.act_on_batch(&id, BatchAction::Resume).await.status, BatchStatus::Running);
    fixture.claim_and_finish(session, 1, done()).await;
    assert_eq!(fixture.batch(&id).await.status, BatchStatus::Complete);
}

pub(super) async fn a_cancelled_batch_ends_what_waits_and_asks_what_runs(fixture: &StoreFixture) {
    let (id, new) = named("b");
    let sent = fixture.send_sealed_batch(new, 5).await;
    let session = fixture.session().await;
    let held = fixture.claim(session, 2).await;
    assert_eq!(fixture.act_on_batch(&id, BatchAction::Cancel).await.status, BatchStatus::Cancelled);
    assert!(fixture.claim(session, 9).await.is_empty(), "at once");
    fixture.promote().await;
    assert_eq!(fixture.batch(&id).await.counts.cancelled, 3);
    assert_eq!(fixture.state(sent[4]).await, UnitState::Cancelled);
    let beat = fixture.store.heartbeat(session, Default::default()).await.unwrap();
    assert_eq!(beat.cancel.len(), 2);
    assert_eq!(fixture.batch(&id).await.completed_at, None, "two still run");
    fixture.finish(session, held[0].lease, done()).await;
    fixture.finish(session, held[1].lease, Outcome::Interrupted).await;
    let batch = fixture.batch(&id).await;
    assert_eq!((batch.status, batch.completed_at), (BatchStatus::Cancelled, Some(fixture.now())));
    assert_eq!((batch.counts.done, batch.counts.cancelled), (1, 4));
}

pub(super) async fn a_batch_given_up_takes_no_more(fixture: &StoreFixture) {
    let (id, new) = named("b");
    fixture.open_batch(new).await;
    fixture.add_chunk(&id, "", "1", units(1)).await;
    let failed = fixture.act_on_batch(&id, BatchAction::Fail { reason: "wrong file".into() }).await;
    assert_eq!((failed.status, failed.reason.as_deref()), (BatchStatus::Failed, Some("wrong file")));
    let added = fixture.store.add_to_batch(&ALL, &id, chunk("1", "2", units(1))).await;
    assert!(added.is_err(), "{added:?}");
    fixture.promote().await;
    assert_eq!(fixture.batch(&id).await.counts.cancelled, 1);
}

pub(super) async fn an_ended_batch_refuses_what_makes_no_sense(fixture: &StoreFixture) {
    let (id, new) = named("b");
    fixture.send_sealed_batch(new, 0).await;
    let refused = async |action| fixture.store.apply_batch_action(&ALL, &id, action).await.is_err();
    assert!(refused(BatchAction::Pause { reason: String::new() }).await);
    assert!(refused(BatchAction::Resume).await);
    assert!(refused(BatchAction::Cancel).await);
    assert_eq!(fixture.batch(&id).await.status, BatchStatus::Complete);
}

pub(super) async fn claims_ahead_start_a_batch_too(fixture: &StoreFixture) {
    let (id, new) = named("b");
    fixture.send_sealed_batch(new, 1).await;
    let session = fixture.session().await;
    let ahead = ClaimRequest { prefetch: 1, ..claim(session, 0) };
    let held = fixture.claim_with(ahead).await.units;
    let batch: Batch = fixture.batch(&id).await;
    assert_eq!((batch.status, batch.counts.leased), (BatchStatus::Running, 1));
    fixture.act_on_batch(&id, BatchAction::Pause { reason: String::new() }).await;
    assert_eq!(fixture.store.start(session, &leases(&held)).await.unwrap(), [None], "paused");
    let beat = fixture.store.heartbeat(session, Default::default()).await.unwrap();
    assert_eq!(beat.to_release, ids(&held));
    fixture.store.release(session, &leases(&held)).await.unwrap();
    assert_eq!(fixture.batch(&id).await.counts.ready, 1);
}
