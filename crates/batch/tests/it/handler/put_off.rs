//! A row that did not send its question is put off without an attempt, whatever the reason.

use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::Budget;
use longshore::store::UnitFilter;
use longshore::{
    BatchId, BoundedPool, HeartbeatPlacement, MemoryPermits, MemoryStore, PoolName, PoolRegistry, Scope,
    TenantId, Unit, UnitState,
};
use longshore_ai::{AskError, Code, Retryability};
use longshore_batch::handler::RowHandlerBuilder;
use longshore_testkit::{Fault, FaultyStore};
use serde_json::{Value, json};

use super::fixture::{FakeProvider, FakeReply, Fixture, TestRoute, answer, definition};
use crate::support;

const FINE: &str = r#"{"verdict": "fine"}"#;

/// The units of a batch that wait to run again.
async fn waiting(fixture: &Fixture, batch: &BatchId) -> Vec<Unit> {
    let state = Some(UnitState::Scheduled);
    let filter = UnitFilter { batch: Some(batch.clone()), state, ..UnitFilter::default() };
    fixture.store.units(&Scope::All, &filter, None, 10).await.unwrap().items
}

/// Runs two rows until one is put off. It has used no attempt, and POST was not run for it.
async fn one_is_put_off(fixture: &Fixture, batch: &BatchId, handler: RowHandlerBuilder) -> Unit {
    let put_off = async {
        while waiting(fixture, batch).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    fixture.work_by(fixture.worker(2, handler), put_off).await;
    let unit = fixture.unit(waiting(fixture, batch).await.remove(0).id).await;
    assert_eq!((unit.attempt, unit.lost, &unit.failure), (0, 0, &None));
    assert_eq!(fixture.store.failures(&Scope::All, unit.id).await.unwrap(), vec![]);
    unit
}

/// A provider that never answers the first question.
fn silent_once() -> Arc<FakeProvider> {
    FakeProvider::new(|_, before| match before {
        0 => FakeReply::Silence,
        _ => FakeReply::Answer(answer(FINE)),
    })
}

/// Two rows with a profile of these limits.
async fn limited(limits: Value, provider: Arc<FakeProvider>) -> (Fixture, BatchId) {
    let fixture = Fixture::by(TestRoute::Local, provider).await;
    let body = json!({ "provider": "echo", "prices": { "input": 1, "output": 5 }, "limits": limits });
    fixture.inference().put(Some(body), None).await;
    let id = fixture.start(&fixture.definition(), &[json!(1), json!(2)]).await;
    (fixture, id)
}

#[tokio::test(start_paused = true)]
async fn a_row_is_put_off_by_a_rate_limit() {
    let limits = json!({ "requests": 1, "burst": 1, "when_full": "refuse" });
    let (fixture, id) = limited(limits, FakeProvider::always(FINE)).await;
    one_is_put_off(&fixture, &id, fixture.handler()).await;
    assert_eq!(fixture.provider.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_row_is_put_off_by_a_rate_limit_that_it_waited_for() {
    let limits = json!({ "requests": 1, "burst": 1 });
    let (fixture, id) = limited(limits, FakeProvider::always(FINE)).await;
    one_is_put_off(&fixture, &id, fixture.handler()).await;
    assert_eq!(fixture.provider.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_row_is_put_off_by_the_profiles_limit_of_calls_in_flight() {
    let (fixture, id) = limited(json!({ "in_flight": 1, "when_full": "refuse" }), silent_once()).await;
    one_is_put_off(&fixture, &id, fixture.handler()).await;
    assert_eq!(fixture.provider.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_row_is_put_off_while_other_calls_reserve_the_rest_of_the_budget() {
    let fixture = Fixture::by(TestRoute::Local, silent_once()).await;
    let (ledger, tenant) = (&fixture.inference().ledger, TenantId::default());
    let allow = async |tokens| {
        let budget = Some(Budget { tokens: Some(tokens), cost_picos: None, warn_at: 1.0 });
        ledger.put_budget(&Scope::All, &tenant, budget).await.unwrap();
        fixture.inference().inference.clear_cache();
    };
    allow(1_000_000).await;
    let mut slow = fixture.definition();
    support::ai(&mut slow).timeout = Duration::from_secs(500);
    fixture.start_as("b-0", &slow, &[json!(0)]).await;
    let id = BatchId::new("b-1").unwrap();
    let put_off = async {
        fixture.asked().await;
        let reserved = ledger.budget(&Scope::All, &tenant).await.unwrap().reserved_tokens;
        allow(reserved * 3 / 2).await;
        fixture.start(&fixture.definition(), &[json!(1)]).await;
        while waiting(&fixture, &id).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    Box::pin(fixture.work_by(fixture.worker(2, fixture.handler()), put_off)).await;
    let unit = fixture.only_unit(&id).await;
    assert_eq!((unit.attempt, &unit.failure, fixture.provider.count()), (0, &None, 1));
}

#[tokio::test(start_paused = true)]
async fn a_row_is_put_off_while_nothing_listens_at_its_provider() {
    let refused =
        || AskError { retry: Retryability::NotSent, ..AskError::new(Code::ProviderError, "refused") };
    let (fixture, id) = limited(json!({}), FakeProvider::new(move |_, _| FakeReply::Error(refused()))).await;
    one_is_put_off(&fixture, &id, fixture.handler()).await;
}

#[tokio::test(start_paused = true)]
async fn a_row_is_put_off_by_its_batchs_pool() {
    let fixture = Fixture::in_memory(FakeProvider::always(FINE));
    let name = PoolName::new("licence").unwrap();
    let pool = BoundedPool::builder(Arc::new(MemoryPermits::default()), name.clone(), 1)
        .wait(Duration::from_millis(50))
        .renewals(HeartbeatPlacement::Task)
        .build();
    let _held = pool.acquire().await.unwrap();
    let mut definition = definition();
    support::ai(&mut definition).pool = Some(name);
    let id = fixture.start(&definition, &[json!(1)]).await;
    let handler = fixture.handler().pools(PoolRegistry::from_iter([pool]));
    one_is_put_off(&fixture, &id, handler).await;
    assert_eq!(fixture.provider.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_waited_its_whole_time_for_the_workers_own_limit_is_put_off() {
    let fixture = Fixture::in_memory(silent_once());
    let id = fixture.start(&definition(), &[json!(1), json!(2)]).await;
    one_is_put_off(&fixture, &id, fixture.handler().max_in_flight(1)).await;
    assert_eq!(fixture.provider.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_row_is_put_off_while_the_store_does_not_return_its_definition() {
    let store = Arc::new(FaultyStore::new(Arc::new(MemoryStore::default())));
    let fixture = Fixture::new(store.clone(), FakeProvider::always(FINE));
    let id = fixture.start(&definition(), &[json!(1)]).await;
    for fault in [Fault::FailBefore, Fault::BrokenStream] {
        store.set_default_fault("definition", Some(fault));
        one_is_put_off(&fixture, &id, fixture.handler()).await;
        store.set_default_fault("definition", None);
        let wake = longshore::store::UnitAction::Wake;
        let unit = fixture.only_unit(&id).await.id;
        let selection = longshore::store::UnitSelection::Ids(vec![unit]);
        fixture.store.apply_unit_action(&Scope::All, selection, wake).await.unwrap();
    }
    fixture.work(fixture.handler()).await;
    let unit = fixture.only_unit(&id).await;
    assert_eq!((unit.state, unit.attempt, fixture.provider.count()), (UnitState::Done, 1, 1));
}
