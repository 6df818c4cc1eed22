//! Listing by pages: newest first, complete, without large fields.

use longshore_core::batch::BatchAction;
use longshore_core::store::UnitFilter;
use longshore_core::{BatchStatus, Callback, Kind, NewBatch, NewUnit, Payload, TenantId, UnitId, UnitState};

use super::helpers::*;
use crate::StoreFixture;

async fn list_all_pages(world: &StoreFixture, filter: &UnitFilter, limit: u32) -> Vec<UnitId> {
    let (mut found, mut after) = (vec![], None::<String>);
    loop {
        let page = world.store.units(&ALL, filter, after.as_deref(), limit).await.unwrap();
        assert!(page.items.len() <= limit as usize);
        found.extend(page.items.iter().map(|unit| unit.id));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

pub(super) async fn units_are_listed_newest_first_without_gap_or_repeat(world: &StoreFixture) {
    let mut sent = world.send_many(25).await;
    sent.reverse();
    assert_eq!(list_all_pages(world, &UnitFilter::default(), 10).await, sent);
    assert_eq!(list_all_pages(world, &UnitFilter::default(), 25).await, sent);
    assert_eq!(list_all_pages(world, &UnitFilter::default(), 1).await, sent);
}

pub(super) async fn new_units_do_not_disturb_a_walk(world: &StoreFixture) {
    let sent = world.send_many(4).await;
    let filter = UnitFilter::default();
    let first = world.store.units(&ALL, &filter, None, 2).await.unwrap();
    world.send_many(3).await;
    let next = first.next.unwrap();
    let second = world.store.units(&ALL, &filter, Some(&next), 10).await.unwrap();
    let ids: Vec<UnitId> = second.items.iter().map(|unit| unit.id).collect();
    assert_eq!(ids, [sent[1], sent[0]]);
}

pub(super) async fn filters_choose_by_state_queue_kind_and_batch(world: &StoreFixture) {
    let session = world.session().await;
    let ended = world.send_and_finish(session, failed()).await;
    let mail = world.send(NewUnit { queue: queue("mail"), ..unit() }).await;
    let other = Kind::new("other").unwrap();
    let odd = world.send(NewUnit { kind: other.clone(), ..unit() }).await;
    let batched = world.send_sealed_batch(NewBatch::new(batch_id("b")), 1).await;
    let state = UnitFilter { state: Some(UnitState::Failed), ..UnitFilter::default() };
    assert_eq!(list_all_pages(world, &state, 10).await, [ended]);
    let queued = UnitFilter { queue: Some(queue("mail")), ..UnitFilter::default() };
    assert_eq!(list_all_pages(world, &queued, 10).await, [mail]);
    let kinds = UnitFilter { kind: Some(other), ..UnitFilter::default() };
    assert_eq!(list_all_pages(world, &kinds, 10).await, [odd]);
    let batch = UnitFilter { batch: Some(batch_id("b")), ..UnitFilter::default() };
    assert_eq!(list_all_pages(world, &batch, 10).await, batched);
    let both = UnitFilter { state: Some(UnitState::Done), ..batch };
    assert!(list_all_pages(world, &both, 10).await.is_empty());
}

pub(super) async fn lists_leave_out_what_may_be_large(world: &StoreFixture) {
    let session = world.session().await;
    let result = Payload::from(b"\"answer\"".as_slice());
    world.send_and_finish(session, longshore_core::Outcome::Done(Some(result))).await;
    let page = world.store.units(&ALL, &UnitFilter::default(), None, 10).await.unwrap();
    let unit = &page.items[0];
    assert!(unit.payload.is_empty() && unit.result.is_none() && unit.checkpoint.is_none());
    assert_eq!((unit.state, unit.attempt), (UnitState::Done, 1));
}

pub(super) async fn a_page_of_large_batches_ends_early(world: &StoreFixture) {
    let data = serde_json::Value::String("x".repeat(60_000));
    let callback = Callback::new(queue("default"), kind(), data);
    for n in 0..80 {
        let name = batch_id(&format!("b{n:02}"));
        world.open_batch(NewBatch { callback: Some(callback.clone()), ..NewBatch::new(name) }).await;
    }
    let first = world.store.batches(&ALL, None, None, 100).await.unwrap();
    assert!((60..80).contains(&first.items.len()), "{}", first.items.len());
    let rest = world.store.batches(&ALL, None, first.next.as_deref(), 100).await.unwrap();
    assert_eq!((first.items.len() + rest.items.len(), rest.next), (80, None));
    let data = serde_json::Value::String("x".repeat(70_000));
    let large = NewBatch { callback: Some(Callback { data, ..callback }), ..NewBatch::new(batch_id("c")) };
    assert!(world.store.open_batch(&ALL, large).await.is_err());
}

pub(super) async fn batches_are_listed_newest_first(world: &StoreFixture) {
    for name in ["c", "a", "b"] {
        world.open_batch(NewBatch::new(batch_id(name))).await;
        world.clock.advance(secs(1));
    }
    world.act_on_batch(&batch_id("a"), BatchAction::Pause { reason: String::new() }).await;
    let first = world.store.batches(&ALL, None, None, 2).await.unwrap();
    let names = |items: &[longshore_core::Batch]| -> Vec<String> {
        items.iter().map(|batch| batch.id.to_string()).collect()
    };
    assert_eq!(names(&first.items), ["b", "a"]);
    let rest = world.store.batches(&ALL, None, first.next.as_deref(), 2).await.unwrap();
    assert_eq!((names(&rest.items), rest.next), (vec!["c".to_owned()], None));
    let paused = world.store.batches(&ALL, Some(BatchStatus::Paused), None, 9).await.unwrap();
    assert_eq!(names(&paused.items), ["a"]);
}

pub(super) async fn a_cursor_of_batches_tells_nothing_of_other_tenants(world: &StoreFixture) {
    for id in ["acme/one", "other", "another", "acme/two", "last", "acme/three"] {
        let owner = if id.starts_with("acme/") { tenant("acme") } else { TenantId::default() };
        world.open_batch(NewBatch { tenant: owner, ..NewBatch::new(batch_id(id)) }).await;
        world.clock.advance(secs(1));
    }
    let (acme, mut after, mut seen) = (tenant_scope("acme"), None, Vec::new());
    loop {
        let page = world.store.batches(&acme, None, after.as_deref(), 1).await.unwrap();
        seen.extend(page.items.iter().map(|batch| batch.id.to_string()));
        after = page.next;
        let Some(next) = &after else { break };
        let own = page.items[0].initiated_at.as_micros();
        assert_eq!(*next, format!("{own}/{}", page.items[0].id));
    }
    assert_eq!(seen, ["acme/three", "acme/two", "acme/one"]);
}

pub(super) async fn a_cursor_that_is_none_is_refused(world: &StoreFixture) {
    world.send(unit()).await;
    let filter = UnitFilter::default();
    assert!(world.store.units(&ALL, &filter, Some("no cursor"), 9).await.is_err());
    assert!(world.store.batches(&ALL, None, Some("no cursor"), 9).await.is_err());
}
