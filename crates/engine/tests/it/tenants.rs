//! Senders and batches of tenants that are at capacity or suspended.

use longshore::store::{Capacity, Queries, SendRejection, TenantChange, UnitFilter};
use longshore::{
    BatchId, Client, Enqueue, NewBatch, NewUnit, QueueName, Rights, Scope, SendError, TenantId, Tenants,
    UnitState, WhenFull,
};
use serde_json::json;

use crate::harness::{Harness, Script, unit};

fn acme() -> TenantId {
    TenantId::new("acme").unwrap()
}

fn theirs(on: &str) -> NewUnit {
    let queue = QueueName::new(on).unwrap();
    NewUnit { tenant: acme(), queue, ..unit(&Script::Ok(json!(1))) }
}

async fn put(harness: &Harness, change: TenantChange) {
    harness.store.put_tenant(&Scope::All, &acme(), change).await.unwrap();
}

fn bound(units: u64) -> TenantChange {
    let capacity = Some(Capacity { units: Some(units), bytes: None });
    TenantChange { capacity, ..TenantChange::default() }
}

fn suspended(suspended: bool) -> TenantChange {
    TenantChange { suspended: Some(suspended), ..TenantChange::default() }
}

#[tokio::test(start_paused = true)]
async fn a_sender_waits_until_any_queue_of_its_tenant_makes_room() {
    let harness = Harness::new();
    put(&harness, bound(2)).await;
    let here: Vec<NewUnit> = (0..2).map(|_| theirs("one")).collect();
    harness.store.send(&Scope::All, here).await.unwrap();
    let worker = harness.worker(1).until_idle(true).build().unwrap();
    let there: Vec<NewUnit> = (0..9).map(|_| theirs("two")).collect();
    let (sent, report) = tokio::join!(harness.client.send_many(there, WhenFull::Wait), worker.run());
    assert_eq!(sent.unwrap().len(), 9);
    // The last units may have arrived after the worker found nothing more.
    let rest = harness.worker(1).until_idle(true).build().unwrap().run().await.unwrap();
    assert_eq!(report.unwrap().done + rest.done, 11);
}

#[tokio::test(start_paused = true)]
async fn a_sender_goes_on_when_its_tenants_bound_is_lifted() {
    let harness = Harness::new();
    put(&harness, bound(1)).await;
    harness.client.send(theirs("one")).await.unwrap();
    let lift = async {
        tokio::task::yield_now().await;
        put(&harness, bound(5)).await;
    };
    let (sent, ()) = tokio::join!(harness.client.send(theirs("two")), lift);
    assert!(sent.is_ok(), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn the_sender_of_a_suspended_tenant_hears_of_it_and_does_not_wait() {
    let harness = Harness::new();
    put(&harness, suspended(true)).await;
    let scoped = Client::scoped(harness.store.clone(), Scope::Tenant(acme()));
    for client in [&harness.client, &scoped] {
        let error = client.send(theirs("one")).await.unwrap_err();
        assert!(matches!(error, SendError::Rejected(SendRejection::Suspended(_))), "{error}");
        assert!(error.to_string().contains("`acme` is suspended"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_goes_on_where_its_tenant_was_suspended() {
    let harness = Harness::new();
    let new = NewBatch { tenant: acme(), ..NewBatch::new(BatchId::new("b").unwrap()) };
    let mut writer = harness.client.open_batch(new).await.unwrap();
    writer.add(vec![theirs("one")], "1".into()).await.unwrap();
    put(&harness, suspended(true)).await;
    let error = writer.add(vec![theirs("one")], "2".into()).await.unwrap_err();
    assert!(matches!(error, SendError::Rejected(SendRejection::Suspended(_))), "{error}");
    assert_eq!(writer.cursor(), "1");
    put(&harness, suspended(false)).await;
    writer.add(vec![theirs("one")], "2".into()).await.unwrap();
    assert_eq!(writer.seal().await.unwrap().counts.total(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_larger_than_its_tenants_bound_is_refused_instead_of_waited_for() {
    let harness = Harness::new();
    put(&harness, bound(2)).await;
    let new = NewBatch { tenant: acme(), ..NewBatch::new(BatchId::new("b").unwrap()) };
    let mut writer = harness.client.open_batch(new).await.unwrap();
    let chunk = (0..3).map(|_| theirs("one")).collect();
    let error = writer.add(chunk, "3".into()).await.unwrap_err();
    assert!(matches!(error, SendError::Rejected(SendRejection::Full { .. })), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_sender_does_not_wait_is_refused_at_once() {
    let harness = Harness::new();
    put(&harness, bound(2)).await;
    harness.client.send(theirs("one")).await.unwrap();
    let new = NewBatch { tenant: acme(), ..NewBatch::new(BatchId::new("b").unwrap()) };
    let writer = harness.client.open_batch(new).await.unwrap();
    let mut writer = writer.when_full(WhenFull::Reject);
    let chunk = (0..2).map(|_| theirs("one")).collect();
    let error = writer.add(chunk, "2".into()).await.unwrap_err();
    assert!(matches!(error, SendError::Rejected(SendRejection::Full { .. })), "{error}");
    writer.add(vec![theirs("one")], "1".into()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_runs_a_tenants_unit_of_a_closed_kind_only_while_the_kind_is_allowed() {
    let harness = Harness::new();
    let by_tenant = || NewUnit { rights: Rights::Tenant, ..theirs("one") };
    let run = async |unit: NewUnit| {
        let id = unit.id;
        harness.store.send(&Scope::All, vec![unit]).await.unwrap();
        harness.worker(1).until_idle(true).build().unwrap().run().await.unwrap();
        (harness.log.runs_of(id), harness.unit(id).await)
    };
    assert!(crate::harness::kind().needs_operator());
    assert_eq!(run(theirs("one")).await.0, 1, "the operator's own");
    let (runs, unit) = run(by_tenant()).await;
    assert_eq!((runs, unit.state), (0, UnitState::Failed));
    assert_eq!(unit.failure.unwrap().code, "kind-closed");
    let allow = |kinds: &[_]| TenantChange {
        allowed_kinds: Some(kinds.iter().cloned().collect()),
        ..TenantChange::default()
    };
    put(&harness, allow(&[crate::harness::kind()])).await;
    assert_eq!(run(by_tenant()).await.0, 1);
    put(&harness, allow(&[])).await;
    assert_eq!(run(by_tenant()).await.0, 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_tenants_unit_sends_has_no_more_rights_than_the_unit() {
    let harness = Harness::new();
    put(
        &harness,
        TenantChange { allowed_kinds: Some([crate::harness::kind()].into()), ..TenantChange::default() },
    )
    .await;
    for (rights, queue) in [(Rights::Tenant, "sent-by-tenant"), (Rights::Operator, "sent-by-operator")] {
        let unit = NewUnit { rights, tenant: acme(), ..unit(&Script::Send(queue.to_owned())) };
        harness.store.send(&Scope::All, vec![unit]).await.unwrap();
        harness.worker(1).until_idle(true).build().unwrap().run().await.unwrap();
        let filter = UnitFilter { queue: Some(QueueName::new(queue).unwrap()), ..UnitFilter::default() };
        let sent = harness.store.units(&Scope::All, &filter, None, 10).await.unwrap().items;
        assert_eq!(sent.iter().map(|unit| unit.rights).collect::<Vec<_>>(), [rights]);
    }
}
