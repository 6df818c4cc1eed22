//! The typed client against real servers: it parses all responses.

use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::{Role, UsageBy, UsageFilter};
use longshore::batch::BatchAction;
use longshore::store::{
    Admin, Capacity, Enqueue, Queries, QueueChange, ScheduleFilter, Schedules, SendRejection, SendResult,
    UnitAction, UnitFilter, UnitSelection,
};
use longshore::unit::{Dedup, DedupWindow, OnDuplicate};
use longshore::worker_session::WorkerCommand;
use longshore::{
    BatchStatus, Client, Clock, Error, NewUnit, Permits, QueueName, RetryPolicy, Scope, Store, SystemClock,
    UnitState, WhenFull,
};
use longshore_web::AuthMode;
use longshore_web::client::{ApiClient, ApiError, ApiServer, ROUTES, RemotePermits, RemoteStore};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::fixture::{TestSite, kind, tenant};

/// A test site on a listener.
struct TestServer {
    url: String,
    end: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

#[expect(clippy::disallowed_methods, reason = "the test waits for it")]
async fn serve(site: &TestSite, lock: AuthMode) -> TestServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (end, ended) = oneshot::channel();
    let pools = site.permits.pools(None).await.unwrap().into_iter().map(|(name, _)| (name, 3)).collect();
    let web = site.web(lock).pools(site.permits.clone(), pools);
    let serving = tokio::spawn(web.serve(listener, None, async {
        let _ = ended.await;
    }));
    TestServer { url, end, serving }
}

impl TestServer {
    fn api(&self, token: Option<String>) -> ApiClient {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = ApiServer::new(self.url.parse().unwrap());
        ApiClient::new(ApiServer { token: token.map(Into::into), ..server }).unwrap()
    }

    async fn stop(self) {
        self.end.send(()).unwrap();
        self.serving.await.unwrap();
    }
}

#[tokio::test]
async fn the_document_has_every_path_that_the_client_asks() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    let document = site.get("/openapi.json", None).await;
    let mut written = Vec::new();
    for methods in document["paths"].as_object().unwrap().values() {
        let ids = methods.as_object().unwrap().values().map(|one| one["operationId"].to_string());
        written.extend(ids);
    }
    for route in ROUTES {
        assert!(written.contains(&format!("\"{route}\"")), "{route}");
    }
}

/// Queries over HTTP return what the store returns.
async fn looks_the_same(site: TestSite) {
    let data = site.populate("acme").await;
    let server = serve(&site, AuthMode::NoAuth).await;
    let (far, near) = (RemoteStore::new(server.api(None)), &site.store);
    for scope in [Scope::All, Scope::Tenant(tenant("acme"))] {
        assert_eq!(far.queues(&scope).await.unwrap(), near.queues(&scope).await.unwrap());
        let batch = &data.batch;
        assert_eq!(far.batch(&scope, batch).await.unwrap(), near.batch(&scope, batch).await.unwrap());
        let status = Some(BatchStatus::Running);
        let (one, other) =
            (far.batches(&scope, status, None, 9).await, near.batches(&scope, status, None, 9).await);
        assert_eq!(one.unwrap(), other.unwrap());
        let all = ScheduleFilter::All;
        let (one, other) =
            (far.schedules(&scope, &all, None, 9).await, near.schedules(&scope, &all, None, 9).await);
        assert_eq!(one.unwrap().page, other.unwrap().page);
        let filter = UnitFilter { batch: Some(batch.clone()), ..UnitFilter::default() };
        let (one, other) =
            (far.units(&scope, &filter, None, 9).await, near.units(&scope, &filter, None, 9).await);
        let ids = |page: longshore::store::Page<longshore::Unit>| {
            page.items.into_iter().map(|unit| (unit.id, unit.state, unit.failure)).collect::<Vec<_>>()
        };
        let (one, other) = (ids(one.unwrap()), ids(other.unwrap()));
        assert_eq!((one.len(), &one), (3, &other));
        for (id, _, _) in one {
            assert_eq!(far.unit(&scope, id).await.unwrap(), near.unit(&scope, id).await.unwrap());
            let response = far.failures(&scope, id).await.unwrap();
            assert_eq!(response, near.failures(&scope, id).await.unwrap());
        }
    }
    let (one, other) = (far.sessions().await.unwrap(), near.sessions().await.unwrap());
    assert_eq!((one.len(), &one), (1, &other));
    let pools: &dyn Permits = &RemotePermits::new(server.api(None));
    for (pool, _) in site.permits.pools(None).await.unwrap() {
        let (one, other) = (pools.stats(&pool).await.unwrap(), site.permits.stats(&pool).await.unwrap());
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!((one.max, one.in_use, one.waits), (other.max, other.in_use, other.waits));
        assert_eq!((&one.holders[0].id, one.holders.len()), (&other.holders[0].id, 1));
    }
    let filter = UsageFilter::default();
    let response = server.api(None).usage(&filter, UsageBy::Model).await.unwrap();
    let response: Vec<_> = response.into_iter().map(|shown| shown.usage).collect();
    assert_eq!(response, site.ledger.usage(&Scope::All, &filter, UsageBy::Model).await.unwrap());
    let rows = server.api(None).rows(&data.batch, None, None, 9).await.unwrap();
    assert_eq!(rows.items.len(), 3);
    drop(far);
    server.stop().await;
}

#[tokio::test]
async fn a_store_looks_the_same_through_a_server() {
    for site in TestSite::everywhere(AuthMode::NoAuth).await {
        Box::pin(looks_the_same(site)).await;
    }
}

#[tokio::test]
async fn what_is_steered_through_a_server_is_steered() {
    let site = TestSite::on_disk(AuthMode::NoAuth);
    let data = site.populate("acme").await;
    let server = serve(&site, AuthMode::NoAuth).await;
    let far = RemoteStore::new(server.api(None));
    let (all, batch) = (Scope::All, &data.batch);
    let why = BatchAction::Pause { reason: "lunch".to_owned() };
    let paused = far.apply_batch_action(&all, batch, why).await.unwrap();
    assert_eq!((paused.status, paused.reason.as_deref()), (BatchStatus::Paused, Some("lunch")));
    far.apply_batch_action(&all, batch, BatchAction::Resume).await.unwrap();
    far.apply_batch_action(&all, batch, BatchAction::RetryFailed).await.unwrap();
    assert_eq!(site.store.batch(&all, batch).await.unwrap().counts.failed, 0);
    far.apply_batch_action(&all, batch, BatchAction::Cancel).await.unwrap();
    assert_eq!(site.store.batch(&all, batch).await.unwrap().status, BatchStatus::Cancelled);
    let one = || UnitSelection::Ids(vec![data.unit]);
    assert_eq!(far.apply_unit_action(&all, one(), UnitAction::Cancel).await.unwrap().changed, 1);
    assert_eq!(far.apply_unit_action(&all, one(), UnitAction::Retry).await.unwrap().changed, 1);
    assert_eq!(site.store.unit(&all, data.unit).await.unwrap().state, UnitState::Ready);
    let change = |paused| QueueChange { paused: Some(paused), ..QueueChange::default() };
    for paused in [true, false] {
        (&far as &dyn longshore::Store).change_queue(&all, &data.queue, change(paused)).await.unwrap();
        let queues = site.store.queues(&all).await.unwrap();
        assert_eq!(queues.iter().find(|q| q.queue == data.queue).unwrap().paused, paused);
    }
    for order in [WorkerCommand::Quiet, WorkerCommand::Work, WorkerCommand::Drain, WorkerCommand::Stop] {
        far.command_worker(data.worker, order).await.unwrap();
        assert_eq!(site.store.sessions().await.unwrap()[0].command, order);
    }
    let pool = "acme/pool".parse().unwrap();
    let pools: &dyn Permits = &RemotePermits::new(server.api(None));
    pools.resize(&pool, 7).await.unwrap();
    assert_eq!(site.permits.stats(&pool).await.unwrap().unwrap().max, 7);
    drop(far);
    server.stop().await;
}

fn unit(n: u64, key: Option<&str>) -> NewUnit {
    let dedup = key.map(|key| Dedup {
        key: format!("{key}/{n}"),
        window: DedupWindow::WhileKept,
        on_duplicate: OnDuplicate::Existing,
    });
    NewUnit { dedup, ..NewUnit::new(kind("k"), json!({ "n": n })) }
}

#[tokio::test]
async fn every_unit_has_its_own_answer_and_a_second_sending_is_recognised() {
    let site = TestSite::on_disk(AuthMode::NoAuth);
    let server = serve(&site, AuthMode::NoAuth).await;
    let far = RemoteStore::new(server.api(None));
    let first: Vec<NewUnit> = (1..=700).map(|n| unit(n, Some("nightly"))).collect();
    let policy = longshore::Policy { retry: RetryPolicy::never(), ..Default::default() };
    let mut first = first;
    first[0] = NewUnit { policy: Some(policy.clone()), awaited: true, ..first[0].clone() };
    let created: Vec<SendResult> = first.iter().map(|unit| SendResult::Created(unit.id)).collect();
    assert_eq!(far.send(&Scope::All, first.clone()).await.unwrap(), created);
    assert_eq!(far.send(&Scope::All, first.clone()).await.unwrap(), created, "known by their ids");
    let again: Vec<NewUnit> = (1..=701).map(|n| unit(n, Some("nightly"))).collect();
    let mut wanted: Vec<SendResult> = first.iter().map(|unit| SendResult::Existing(unit.id)).collect();
    wanted.push(SendResult::Created(again[700].id));
    assert_eq!(far.send(&Scope::All, again).await.unwrap(), wanted, "known by their keys");
    let kept = site.store.unit(&Scope::All, first[0].id).await.unwrap();
    assert_eq!(kept.policy, Some(policy));
    let dangling = NewUnit {
        dependencies: longshore::unit::Dependencies {
            units: vec![longshore::UnitId::new()],
            ..Default::default()
        },
        ..unit(1, None)
    };
    let mixed = vec![unit(2, None), dangling, unit(3, None)];
    let response = far.send(&Scope::All, mixed.clone()).await.unwrap();
    assert_eq!(
        (&response[0], &response[2]),
        (&SendResult::Created(mixed[0].id), &SendResult::Created(mixed[2].id))
    );
    assert!(matches!(response[1], SendResult::Rejected(SendRejection::UnknownDependency(_))), "{response:?}");
    drop(far);
    server.stop().await;
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_who_waits_gets_in_when_there_is_room() {
    let site = TestSite::on_disk(AuthMode::NoAuth);
    let queue = QueueName::default();
    let bound = |units| QueueChange {
        capacity: Some(Capacity { units: Some(units), bytes: None }),
        ..QueueChange::default()
    };
    site.store.change_queue(&Scope::All, &queue, bound(3)).await.unwrap();
    let server = serve(&site, AuthMode::NoAuth).await;
    let far: Arc<dyn Store> = Arc::new(RemoteStore::new(server.api(None)));
    let client = Client::new(far);
    let units: Vec<NewUnit> = (1..=5).map(|n| unit(n, None)).collect();
    let response = client.send_many(units.clone(), WhenFull::Reject).await.unwrap();
    let full = |sent: &&SendResult| matches!(sent, SendResult::Rejected(SendRejection::Full { .. }));
    assert_eq!(response.iter().filter(full).count(), 2, "{response:?}");
    let now = SystemClock.now();
    let time = client.store_time().await.unwrap();
    assert!(time.since(now).max(now.since(time)) < Duration::from_secs(60), "{time}");
    let lone = client.send_many(vec![unit(6, None)], WhenFull::Reject).await.unwrap();
    assert_eq!(lone.iter().filter(full).count(), 1, "{lone:?}");
    let make_room = site.store.change_queue(&Scope::All, &queue, bound(10));
    let (sent, made) = tokio::join!(client.send_many(units, WhenFull::Wait), make_room);
    made.unwrap();
    assert!(sent.unwrap().iter().all(|sent| matches!(sent, SendResult::Created(_))));
    drop(client);
    server.stop().await;
}

#[tokio::test]
async fn who_waits_through_a_server_hears_of_the_end() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    let server = serve(&site, AuthMode::NoAuth).await;
    let client = Client::new(Arc::new(RemoteStore::new(server.api(None))));
    let unit = NewUnit { awaited: true, ..unit(1, None) };
    let id = client.send(unit).await.unwrap();
    let ends = site.store.apply_unit_action(&Scope::All, UnitSelection::Ids(vec![id]), UnitAction::Cancel);
    let (ended, cancelled) = tokio::join!(client.wait(id, Some(Duration::from_secs(60))), ends);
    cancelled.unwrap();
    assert_eq!(ended.unwrap().state, UnitState::Cancelled);
    drop(client);
    server.stop().await;
}

#[tokio::test]
async fn a_tenants_token_reaches_its_own_things_only() {
    let site = TestSite::on_disk(AuthMode::TokenRequired);
    let (acme, zebra) = (site.populate("acme").await, site.populate("zebra").await);
    let server = serve(&site, AuthMode::TokenRequired).await;
    let token = site.token("acme", Role::Operate).await;
    let far = RemoteStore::new(server.api(Some(token)));
    assert_eq!(far.check().await.unwrap().tenant, Some(tenant("acme")));
    far.unit(&Scope::All, acme.unit).await.unwrap();
    let hidden = far.unit(&Scope::All, zebra.unit).await.unwrap_err();
    assert!(matches!(hidden, Error::NotFound { what: "unit", .. }), "{hidden}");
    let hidden = far.batch(&Scope::All, &zebra.batch).await.unwrap_err();
    assert!(matches!(hidden, Error::NotFound { what: "batch", .. }), "{hidden}");
    let queues = far.queues(&Scope::All).await.unwrap();
    assert!(!queues.is_empty() && queues.iter().all(|lane| lane.tenant == tenant("acme")));
    let denied = far.sessions().await.unwrap_err();
    assert!(matches!(denied, Error::PermissionDenied { .. }) && !denied.is_retryable(), "{denied}");
    // A unit without a tenant belongs to the token's tenant.
    let sent = far.send(&Scope::All, vec![unit(1, None)]).await.unwrap();
    let [SendResult::Created(id)] = sent[..] else { panic!("{sent:?}") };
    assert_eq!(site.store.unit(&Scope::All, id).await.unwrap().tenant, tenant("acme"));
    // An admin with a tenant's scope sees no other tenant.
    let admin = RemoteStore::new(server.api(Some(site.token("zebra", Role::Admin).await)));
    let hidden = admin.unit(&Scope::Tenant(tenant("zebra")), acme.unit).await.unwrap_err();
    assert!(matches!(hidden, Error::NotFound { .. }), "{hidden}");
    drop((far, admin));
    server.stop().await;
}

#[tokio::test]
async fn every_way_to_miss_a_server_has_its_own_words_and_a_hint() {
    let site = TestSite::in_memory(AuthMode::TokenRequired);
    let server = serve(&site, AuthMode::TokenRequired).await;
    for token in [None, Some("lsh_wrong".to_owned())] {
        let error = server.api(token).whoami().await.unwrap_err();
        assert_eq!(error.kind(), Some("unauthorized"), "{error}");
        assert!(error.hint().unwrap().contains("LONGSHORE_TOKEN"), "{error}");
    }
    let below = ApiServer::new(format!("{}/elsewhere", server.url).parse().unwrap());
    let error = ApiClient::new(below).unwrap().whoami().await.unwrap_err();
    assert!(error.hint().is_some(), "{error}");
    let secure = ApiServer::new(server.url.replace("http:", "https:").parse().unwrap());
    let error = ApiClient::new(secure).unwrap().whoami().await.unwrap_err();
    assert!(matches!(error, ApiError::Tls { .. }), "{error:?}");
    let gone = server.api(None);
    server.stop().await;
    let error = gone.whoami().await.unwrap_err();
    assert!(matches!(error, ApiError::Unreachable { .. }), "{error:?}");
    assert!(error.retry_delay().is_some());
}
