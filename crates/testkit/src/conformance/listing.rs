//! Listing by pages: newest first, complete, without large fields.

use longshore_core::batch::BatchAction;
use longshore_core::store::UnitFilter;
use longshore_core::{BatchStatus, Callback, Kind, NewBatch, NewUnit, Payload, TenantId, UnitId, UnitState};

use super::helpers::*;
use crate::StoreFixture;

async fn list_all_pages(fixture: &StoreFixture, filter: &UnitFilter, limit: u32) -> Vec<UnitId> {
    let (mut found, mut after) = (vec![], None::<String>);
    loop {
        let page = fixture.store.units(&ALL, filter, after.as_deref(), limit).await.unwrap();
        assert!(page.items.len() <= limit as usize);
        found.extend(page.items.iter().map(|unit| unit.id));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

pub(super) async fn units_are_listed_newest_first_without_gap_or_repeat(fixture: &StoreFixture) {
    let mut sent = fixture.send_many(25).await;
    sent.reverse();
    assert_eq!(list_all_pages(fixture, &UnitFilter::default(), 10).await, sent);
    assert_eq!(list_all_pages(fixture, &UnitFilter::default(), 25).await, sent);
    assert_eq!(list_all_pages(fixture, &UnitFilter::default(), 1).await, sent);
}

pub(super) async fn new_units_do_not_disturb_a_walk(fixture: &StoreFixture) {
    let sent = fixture.send_many(4).await;
    let filter = UnitFilter::default();
    let first = fixture.store.units(&ALL, &filter, None, 2).await.unwrap();
    fixture.send_many(3).await;
    let next = first.next.unwrap();
    let second = fixture.store.units(&ALL, &filter, Some(&next), 10).await.unwrap();
    let ids: Vec<UnitId> = second.items.iter().map(|unit| unit.id).collect();
    assert_eq!(ids, [sent[1], sent[0]]);
}

pub(super) async fn filters_choose_by_state_queue_kind_and_batch(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let ended = fixture.send_and_finish(session, failed()).await;
    let mail = fixture.send(NewUnit { queue: queue("mail"), ..unit() }).await;
    let other = Kind::new("other").unwrap();
    let odd = fixture.send(NewUnit { kind: other.clone(), ..unit() }).await;
    let batched = fixture.send_sealed_batch(NewBatch::new(batch_id("b")), 1).await;
    let state = UnitFilter { state: Some(UnitState::Failed), ..UnitFilter::default() };
    assert_eq!(list_all_pages(fixture, &state, 10).await, [ended]);
    let queued = UnitFilter { queue: Some(queue("mail")), ..UnitFilter::default() };
    assert_eq!(list_all_pages(fixture, &queued, 10).await, [mail]);
    let kinds = UnitFilter { kind: Some(other), ..UnitFilter::default() };
    assert_eq!(list_all_pages(fixture, &kinds, 10).await, [odd]);
    let batch = UnitFilter { batch: Some(batch_id("b")), ..UnitFilter::default() };
    assert_eq!(list_all_pages(fixture, &batch, 10).await, batched);
    let both = UnitFilter { state: Some(UnitState::Done), ..batch };
    assert!(list_all_pages(fixture, &both, 10).await.is_empty());
}

pub(super) async fn lists_leave_out_what_may_be_large(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let result = Payload::from(b"\"answer\"".as_slice());
    fixture.send_and_finish(session, longshore_core::Outcome::Done(Some(result))).await;
    let page = fixture.store.units(&ALL, &UnitFilter::default(), None, 10).await.unwrap();
    let unit = &page.items[0];
    assert!(unit.payload.is_empty() && unit.result.is_none() && unit.checkpoint.is_none());
    assert_eq!((unit.state, unit.attempt), (UnitState::Done, 1));
}

pub(super) async fn a_page_of_large_batches_ends_early(fixture: &StoreFixture) {
    let data = serde_json::Value::String("x".repeat(60_000));
    let callback = Callback::new(queue("default"), kind(), data);
    for n in 0..80 {
        let name = batch_id(&format!("b{n:02}"));
        fixture.open_batch(NewBatch { callback: Some(callback.clone()), ..NewBatch::new(name) }).await;
    }
    let first = fixture.store.batches(&ALL, None, None, 100).await.unwrap();
    assert!((60..80).contains(&first.items.len()), "{}", first.items.len());
    let rest = fixture.store.batches(&ALL, None, first.next.as_deref(), 100).await.unwrap();
    assert_eq!((first.items.len() + rest.items.len(), rest.next), (80, None));
    let data = serde_json::Value::String("x".repeat(70_000));
    let large = NewBatch { callback: Some(Callback { data, ..callback }), ..NewBatch::new(batch_id("c")) };
    assert!(fixture.store.open_batch(&ALL, large).await.is_err());
}

pub(super) async fn batches_are_listed_newest_first(fixture: &StoreFixture) {
    for name in ["c", "a", "b"] {
        fixture.open_batch(NewBatch::new(batch_id(name))).await;
        fixture.clock.advance(secs(1));
    }
    fixture.act_on_batch(&batch_id("a"), BatchAction::Pause { reason: String::new() }).await;
    let first = fixture.store.batches(&ALL, None, None, 2).await.unwrap();
    let names = |items: &[longshore_core::Batch]| -> Vec<String> {
        items.iter().map(|batch| batch.id.to_string()).collect()
    };
    assert_eq!(names(&first.items), ["b", "a"]);
    let rest = fixture.store.batches(&ALL, None, first.next.as_deref(), 2).await.unwrap();
    assert_eq!((names(&rest.items), rest.next), (vec!["c".to_owned()], None));
    let paused = fixture.store.batches(&ALL, Some(BatchStatus::Paused), None, 9).await.unwrap();
    assert_eq!(names(&paused.items), ["a"]);
}

pub(super) async fn a_cursor_of_batches_tells_nothing_of_other_tenants(fixture: &StoreFixture) {
    for id in ["acme/one", "other", "another", "acme/two", "last", "acme/three"] {
        let owner = if id.starts_with("acme/") { tenant("acme") } else { TenantId::default() };
        fixture.open_batch(NewBatch { tenant: owner, ..NewBatch::new(batch_id(id)) }).await;
        fixture.clock.advance(secs(1));
    }
    let (acme, mut after, mut seen) = (tenant_scope("acme"), None, Vec::new());
    loop {
        let page = fixture.store.batches(&acme, None, after.as_deref(), 1).await.unwrap();
        seen.extend(page.items.iter().map(|batch| batch.id.to_string()));
        after = page.next;
        let Some(next) = &after else { break };
        let own = page.items[0].initiated_at.as_micros();
        assert_eq!(*next, format!("{own}/{}", page.items[0].id));
    }
    assert_eq!(seen, ["acme/three", "acme/two", "acme/one"]);
}

pub(super) async fn a_cursor_that_is_none_is_refused(fixture: &StoreFixture) {
    fixture.send(unit()).await;
    let filter = UnitFilter::default();
    assert!(fixture.store.units(&ALL, &filter, Some("no cursor"), 9).await.is_err());
    assert!(fixture.store.batches(&ALL, None, Some("no cursor"), 9).await.is_err());
}
