//! A test site with two tenants' data, and helpers to send requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use longshore::accounts::{
    Budget, CallEnd, CallMode, CallRecord, CallStatus, NewCall, NewToken, PutProfile, Role,
};
use longshore::permits::{AcquireRequest, IfFull};
use longshore::schedule::{NewSchedule, SchedulePlan, UnitTemplate};
use longshore::store::{BatchChunk, ClaimRequest, FinishRequest, IfExists, LeasedUnit, TenantChange};
use longshore::worker_session::NewSession;
use longshore::{
    BatchId, Clock, Failure, Kind, Ledger, MemoryPermits, MemoryStore, NewBatch, NewUnit, Outcome, PermitId,
    Permits, Policy, PoolName, Priority, QueueName, Scope, SessionId, Store, SystemClock, TenantId,
    Timestamp, TokenId, UnitId,
};
use longshore_ai::worker::{Inbox, REPLY_KIND, REPLY_QUEUE_TTL};
use longshore_ai::{Http, Inference, Vault};
use longshore_postgres::{PostgresOptions, PostgresStore};
use longshore_sqlite::{SqliteOptions, SqliteStore};
use longshore_testkit::servers::PrivatePostgres;
use longshore_web::endpoints::{BASE, Endpoint};
use longshore_web::{AuthMode, FreshToken, ScriptNode, ScriptPool, ScriptPoolStatus, ScriptPools, Web};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

/// A router with its store, and the folder or server of the store.
pub(crate) struct TestSite {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) permits: Arc<dyn Permits>,
    pub(crate) router: Router,
    _folder: Option<TempDir>,
    _server: Option<PrivatePostgres>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl TestResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}", self.text))
    }

    /// The JSON of a successful response.
    #[track_caller]
    pub(crate) fn good(&self) -> Value {
        assert!(self.status.is_success(), "{} {}", self.status, self.text);
        self.json()
    }
}

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

pub(crate) fn kind(name: &str) -> Kind {
    Kind::new(name).unwrap()
}

impl TestSite {
    pub(crate) fn in_memory(lock: AuthMode) -> Self {
        let store = Arc::new(MemoryStore::default());
        Self::new(store.clone(), store, lock, None)
    }

    pub(crate) fn on_disk(lock: AuthMode) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("longshore.db");
        let store = Arc::new(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
        Self::new(store.clone(), store, lock, Some(folder))
    }

    pub(crate) async fn on_postgres(lock: AuthMode) -> Self {
        let server = PrivatePostgres::start().unwrap();
        let options = PostgresOptions::default();
        let store = Arc::new(PostgresStore::open(&server.url(), options).await.unwrap());
        Self { _server: Some(server), ..Self::new(store.clone(), store, lock, None) }
    }

    /// One site per store.
    pub(crate) async fn everywhere(lock: AuthMode) -> [Self; 3] {
        [Self::in_memory(lock), Self::on_disk(lock), Self::on_postgres(lock).await]
    }

    fn new(store: Arc<dyn Store>, ledger: Arc<dyn Ledger>, lock: AuthMode, folder: Option<TempDir>) -> Self {
        let permits = Arc::new(MemoryPermits::default());
        let router = Router::new();
        let mut site = Self { store, ledger, permits, router, _folder: folder, _server: None };
        site.router = site.whole_web(lock).router();
        site
    }

    /// With pools, scripts and the gateway.
    fn whole_web(&self, lock: AuthMode) -> Web {
        let vault = Arc::new(Vault::new(self.ledger.clone(), None));
        let inference = Inference::new(self.ledger.clone(), vault, Http::new(), "test site".to_owned());
        self.web(lock)
            .pools(self.permits.clone(), BTreeMap::new())
            .shared_pools(BTreeSet::from([PoolName::new("shared").unwrap()]))
            .scripts(Arc::new(FixedScriptPools))
            .gateway(Arc::new(inference))
    }

    /// Stops the clock of the router, so that equal requests have equal responses.
    pub(crate) fn stop_clock(&mut self, lock: AuthMode) {
        self.router = self.whole_web(lock).clock(Arc::new(StoppedClock(now()))).router();
    }

    pub(crate) fn web(&self, lock: AuthMode) -> Web {
        Web::new(self.store.clone(), self.ledger.clone(), lock)
    }

    /// Creates a token.
    pub(crate) async fn token(&self, of: &str, role: Role) -> String {
        let fresh = FreshToken::new();
        let new = NewToken {
            id: TokenId::new(),
            tenant: tenant(of),
            role,
            label: format!("{of}'s {role}"),
            hash: fresh.hash(),
            expires_at: None,
        };
        self.ledger.add_token(&Scope::All, new).await.unwrap();
        fresh.expose().to_owned()
    }

    /// Sends a request.
    pub(crate) async fn send(&self, request: Request<Body>) -> TestResponse {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        TestResponse { status: head.status, headers: head.headers, text }
    }

    /// Sends an API request, with a token or as localhost.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Option<Value>,
    ) -> TestResponse {
        let uri = format!("{BASE}{path}");
        let mut request = Request::builder().method(method).uri(uri).header("host", "localhost");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = match body {
            Some(body) => {
                request = request.header("content-type", "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        self.send(request.body(body).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str, token: Option<&str>) -> Value {
        self.ask("GET", path, token, None).await.good()
    }

    pub(crate) async fn post(&self, path: &str, token: Option<&str>) -> TestResponse {
        self.ask("POST", path, token, None).await
    }
}

/// A tenant's data: one of every resource, with `mark` in every name.
pub(crate) struct TenantData {
    pub(crate) mark: &'static str,
    pub(crate) unit: UnitId,
    pub(crate) worker: SessionId,
    pub(crate) batch: BatchId,
    pub(crate) queue: QueueName,
    pub(crate) permit: PermitId,
}

impl TestSite {
    pub(crate) async fn populate(&self, mark: &'static str) -> TenantData {
        let (tenant, scope) = (tenant(mark), Scope::Tenant(tenant(mark)));
        let queue = QueueName::new(format!("{mark}/mail")).unwrap();
        let batch = BatchId::new(format!("{mark}-batch")).unwrap();
        let unit = |n: u32| NewUnit {
            tenant: tenant.clone(),
            queue: queue.clone(),
            ..NewUnit::new(kind(&format!("{mark}-kind")), json!({ "words": format!("{mark} {n}") }))
        };
        let lone = unit(0);
        let id = lone.id;
        self.store.send(&scope, vec![lone]).await.unwrap();
        let shared = NewUnit { queue: QueueName::new("shared").unwrap(), ..unit(9) };
        self.store.send(&scope, vec![shared]).await.unwrap();
        let new = NewBatch {
            tenant: tenant.clone(),
            notes: format!("{mark} notes"),
            ..NewBatch::new(batch.clone())
        };
        self.store.open_batch(&scope, new).await.unwrap();
        let batch = batch.of_tenant(&tenant);
        let units = (1..=3).map(unit).collect();
        let chunk = BatchChunk { expected: String::new(), next: format!("{mark}:3"), units };
        self.store.add_to_batch(&scope, &batch, chunk).await.unwrap();
        self.store.seal_batch(&scope, &batch).await.unwrap();
        let worker = self.fail_one(mark, &batch).await;
        self.schedule(mark, &tenant, &queue).await;
        let change = TenantChange { weight: Some(3), ..TenantChange::default() };
        self.store.put_tenant(&Scope::All, &tenant, change).await.unwrap();
        let permit = self.hold(mark).await;
        self.ask_ai(mark, &tenant).await;
        TenantData { mark, unit: id, worker, batch, queue, permit }
    }

    /// Opens a tenant's reply queue `replies`, with one reply.
    pub(crate) async fn open_replies(&self, mark: &str) -> Inbox {
        let (store, ledger) = (Arc::clone(&self.store), Arc::clone(&self.ledger));
        let inbox = Inbox::open(store, ledger, tenant(mark), "replies", REPLY_QUEUE_TTL).await.unwrap();
        self.reply(mark, &format!("{mark} reply")).await;
        inbox
    }

    /// Sends a reply into a tenant's queue `replies`.
    pub(crate) async fn reply(&self, mark: &str, text: &str) {
        let unit = NewUnit {
            tenant: tenant(mark),
            queue: QueueName::new(format!("{mark}/replies")).unwrap(),
            ..NewUnit::new(kind(REPLY_KIND), json!({ "response": text }))
        };
        let sent = self.ledger.send_reply(&Scope::All, unit, None).await.unwrap();
        assert!(sent.is_some(), "the queue is open");
    }

    /// Opens a worker of the tenant and fails one unit of the batch.
    async fn fail_one(&self, mark: &str, batch: &BatchId) -> SessionId {
        let (id, kind) = (SessionId::new(), kind(&format!("{mark}-kind")));
        let session = NewSession {
            version: "1".to_owned(),
            kinds: BTreeMap::from([(kind, Policy::default())]),
            slots: 2,
            ttl: Duration::from_secs(600),
            ..NewSession::new(id, format!("{mark} worker"))
        };
        self.store.open_session(session).await.unwrap();
        let held = self.claim(id, mark, batch).await;
        let failure = Failure::new("broken", format!("{mark} broke"));
        let finish = FinishRequest::new(held.lease, Outcome::Fail(failure));
        self.store.finish(id, vec![finish]).await.unwrap();
        id
    }

    /// Claims a unit of the tenant's batch.
    pub(crate) async fn hold_unit(&self, mark: &str, data: &TenantData) -> LeasedUnit {
        self.claim(data.worker, mark, &data.batch).await
    }

    async fn claim(&self, session: SessionId, mark: &str, batch: &BatchId) -> LeasedUnit {
        let claim = ClaimRequest {
            batch: Some(batch.clone()),
            free_slots: 1,
            ..ClaimRequest::new(session, vec![kind(&format!("{mark}-kind"))], 2)
        };
        self.store.claim(claim).await.unwrap().units.remove(0)
    }

    /// Creates the tenant's own pool and a shared one, with three permits each, and holds one.
    async fn hold(&self, mark: &str) -> PermitId {
        let id = PermitId::new();
        for pool in [format!("{mark}/pool"), "shared".to_owned()] {
            self.hold_of(&PoolName::new(pool).unwrap(), mark, id).await;
        }
        id
    }

    async fn hold_of(&self, pool: &PoolName, mark: &str, id: PermitId) {
        self.permits.resize(pool, 3).await.unwrap();
        let ask = AcquireRequest {
            id,
            max: 3,
            weight: 1,
            priority: Priority::NORMAL,
            owner: format!("{mark} holder").into(),
            ttl: Duration::from_secs(600),
            if_full: IfFull::Fail,
        };
        self.permits.acquire(pool, &ask).await.unwrap();
    }

    /// Creates a profile with a key, a budget, and a paid call.
    async fn ask_ai(&self, mark: &str, tenant: &TenantId) {
        let name = format!("{mark}-fast").parse().unwrap();
        let body = json!({
            "provider": "anthropic", "model": format!("{mark}-model"), "key": "env:SECRET_KEY",
            "wire": { "headers": { "x-secret": "hunter2" } }, "limits": { "requests": 50.0 },
        });
        let put =
            PutProfile { tenant: tenant.clone(), name, body: Some(body), suspended: None, expected: None };
        let profile = self.ledger.put_profile(&Scope::All, put).await.unwrap();
        let budget = Budget { tokens: Some(1_000), cost_picos: None, warn_at: 0.8 };
        self.ledger.put_budget(&Scope::All, tenant, Some(budget)).await.unwrap();
        let model = format!("{mark}-model");
        let call = NewCall {
            request_id: format!("{mark}-request"),
            ..NewCall::new(tenant.clone(), profile.name, "anthropic", &model)
        };
        let end = CallEnd {
            status: CallStatus::Success,
            tokens_in: 300,
            tokens_out: 50,
            cost_picos: 2_500_000_000_000,
            estimated: false,
            mode: CallMode::Direct,
            ..call.lost_end()
        };
        self.ledger.record_calls(vec![CallRecord { call, end: Some(end) }]).await.unwrap();
    }

    async fn schedule(&self, mark: &str, tenant: &TenantId, queue: &QueueName) {
        let template: UnitTemplate = serde_json::from_value(json!({
            "kind": format!("{mark}-kind"), "queue": queue,
        }))
        .unwrap();
        let template = UnitTemplate { payload: json!({ "words": mark }).into(), ..template };
        let plan = SchedulePlan {
            cron: "0 8 * * *".to_owned(),
            zone: "UTC".to_owned(),
            missed: Default::default(),
            overlap: Default::default(),
            template,
        };
        let name = format!("{mark}-daily").parse().unwrap();
        let new = NewSchedule { name, tenant: tenant.clone(), plan, paused: false, next_fire: None };
        self.store.put_schedule(&Scope::All, new, IfExists::Replace).await.unwrap();
    }
}

/// A clock that stands still.
struct StoppedClock(Timestamp);

impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// The path of an endpoint with a tenant's data as parameters.
pub(crate) fn path(pattern: &str, data: &TenantData) -> String {
    // Pools of script workers have no owners.
    let pool = if pattern.starts_with("/dispatch") { "-pool" } else { "%2Fpool" };
    pattern
        .replace("{unit}", &data.unit.to_string())
        .replace("{worker}", &data.worker.to_string())
        .replace("{batch}", &data.batch.as_str().replace('/', "%2F"))
        .replace("{pool}", &format!("{}{pool}", data.mark))
        .replace("{permit}", &data.permit.to_string())
        .replace("{queue}", &data.queue.as_str().replace('/', "%2F"))
        .replace("{reply_queue}", &format!("{}%2Freplies", data.mark))
}

/// A path that succeeds for the tenant and changes something. The batch that `openBatch` created is filled and
/// sealed.
pub(crate) fn good_path(endpoint: &Endpoint, data: &TenantData) -> String {
    match endpoint.id {
        "addToBatch" => format!("/batches/{0}%2F{0}-new/units?next=1", data.mark),
        "sealBatch" => format!("/batches/{0}%2F{0}-new/seal", data.mark),
        "listReplyQueues" => format!("/reply-queues?tenant={}", data.mark),
        _ => path(endpoint.path, data),
    }
}

/// The required body of an endpoint.
pub(crate) fn body(id: &str, mark: &str) -> Option<Value> {
    match id {
        "submitUnit" => Some(json!({ "kind": format!("{mark}-kind"), "tenant": mark })),
        "openBatch" => Some(json!({ "id": format!("{mark}-new"), "tenant": mark })),
        "resizePool" => Some(json!({ "max": 5 })),
        "acquirePermit" => Some(json!({ "owner": "a test", "ttl_seconds": 5 })),
        "openReplyQueue" => Some(json!({ "queue": format!("{mark}/new") })),
        "acknowledgeReplies" => Some(json!({ "ids": [UnitId::new()] })),
        "scaleScriptPool" => Some(json!({ "min": 2 })),
        _ => None,
    }
}

/// Script pools with a fixed status.
struct FixedScriptPools;

#[async_trait::async_trait]
impl ScriptPools for FixedScriptPools {
    async fn list(&self) -> Vec<ScriptPool> {
        let node = ScriptNode {
            id: "0123456789".to_owned(),
            host: "node-7".to_owned(),
            pid: 7,
            mood: "working".to_owned(),
            threads: 8,
            taken: 3,
            scripts: 3,
            load: 1.5,
        };
        let status = ScriptPoolStatus {
            mood: "working".to_owned(),
            base: "slurm".to_owned(),
            min: 1,
            max: 4,
            waiting: 12,
            later: 2,
            running: 3,
            done: 40,
            failed: 1,
            nodes: vec![node],
            up_seconds: 60.0,
        };
        ["acme-pool", "zebra-pool", "quokka-pool"]
            .map(|pool| ScriptPool { pool: pool.to_owned(), status: Some(status.clone()), trouble: None })
            .into()
    }

    async fn scale(&self, _: &str, _: u32, max: u32) -> Result<(), String> {
        if max > 1_000 { Err("too many".to_owned()) } else { Ok(()) }
    }
}

/// The current time.
pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}
