//! A SQLite store with rows in the same file, a fake provider, and workers for rows and runners.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::{Call, CallEnd, Ledger, PendingCounts, PutProfile, UsageFilter};
use longshore::batch::Batch;
use longshore::failure_detector::StalledSession;
use longshore::store::{UnitAction, UnitFilter, UnitSelection};
use longshore::{
    BatchId, Client, Clock, HeartbeatPlacement, Kind, NewBatch, NewUnit, Payload, Policy, ProfileName,
    QueueName, Scope, Services, Store, SystemClock, TenantId, Unit, UnitId, Worker, WorkerBuilder,
};
use longshore_ai::{Http, Inference, ProviderName, Vault};
use longshore_batch::definition::{
    Database, Definition, PROVIDER_BATCH_KIND, Post, Pre, ProfileRef, ProviderBatchOptions, QUEUE, ROW_KIND,
    SqlPost, SqlStatement,
};
use longshore_batch::rows::Sources;
use longshore_batch::{ProviderBatchHandler, RowHandler};
use longshore_sqlite::{SqliteOptions, SqliteStore};
use longshore_testkit::crash_points::{CrashPoint, CrashPointLedger, CrashPointStore};
use longshore_testkit::fake_ai::FakeAi;
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support;

/// The providers with a batch API.
pub(super) const PROVIDERS: [ProviderName; 2] = [ProviderName::Anthropic, ProviderName::Openai];

/// Timeout of a wait in a test.
const LIMIT: Duration = Duration::from_secs(30);

/// Dollars per million tokens: in, and out.
const PRICES: (i64, i64) = (4, 20);

/// The cost of a call in a provider batch.
pub(super) fn half_price(end: &CallEnd) -> i64 {
    let whole = |tokens: u64| i64::try_from(tokens).unwrap();
    let plain = whole(end.tokens_in) * PRICES.0 + whole(end.tokens_out) * PRICES.1;
    plain * 1_000_000 / 2
}

pub(super) struct BulkFixture {
    pub(super) fake: FakeAi,
    pub(super) store: Arc<dyn Store>,
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) inference: Inference,
    /// The runners' clock.
    pub(super) clock: Arc<dyn Clock>,
    rows: u32,
    path: PathBuf,
    _dir: TempDir,
}

impl BulkFixture {
    pub(super) async fn new(provider: ProviderName, rows: u32) -> Self {
        let (dir, fake) = (TempDir::new().unwrap(), FakeAi::start().await.unwrap());
        let path = dir.path().join("store.db");
        let store = Arc::new(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
        fill(&path, rows);
        let key = dir.path().join("key");
        write_secret(&key);
        let ledger: Arc<dyn Ledger> = Arc::clone(&store) as _;
        let inference = inference(Arc::clone(&ledger));
        let clock = Arc::new(SystemClock);
        let fixture = Self { fake, store, ledger, inference, clock, rows, path, _dir: dir };
        let body = json!({
            "provider": provider.as_str(), "model": "fake-1", "endpoint": fixture.fake.url(),
            "key": format!("file:{}", key.display()),
            "prices": { "input": PRICES.0, "output": PRICES.1, "batch": 0.5 },
        });
        fixture.put(Some(body), None).await;
        fixture
    }

    /// Changes the profile `fake`.
    pub(super) async fn put(&self, body: Option<Value>, suspended: Option<bool>) {
        let (tenant, name) = (TenantId::default(), fake());
        let put = PutProfile { tenant, name, body, suspended, expected: None };
        self.ledger.put_profile(&Scope::All, put).await.unwrap();
        self.inference.clear_cache();
    }

    /// A definition with a provider batch; the answers are `v1` and so on.
    pub(super) fn definition(&self) -> Definition {
        let mut definition = support::definition();
        definition.database = Database::Store;
        let ai = support::ai(&mut definition);
        ai.profile = ProfileRef::Named(fake());
        ai.provider_batch = Some(ProviderBatchOptions {
            gather: Duration::from_millis(20),
            look: Duration::from_millis(20),
            lag: Duration::from_millis(50),
        });
        if let Pre::Sql(pre) = &mut definition.pre {
            "SELECT id FROM rows WHERE id = :key".clone_into(&mut pre.sql);
            r#"{"verdict": "v{{ id }}"}"#.clone_into(&mut pre.template);
        }
        support::ai(&mut definition).schema = Some(json!({
            "type": "object", "properties": { "verdict": { "type": "string" } },
            "required": ["verdict"],
        }));
        let sql = "UPDATE rows SET seen = seen + 1, said = :verdict WHERE id = :key";
        let success = vec![SqlStatement { sql: sql.to_owned(), rows: Some(1) }];
        definition.post = Post::Sql(SqlPost { success, ..SqlPost::default() });
        definition
    }

    pub(super) async fn start(&self, id: &str, definition: &Definition) -> BatchId {
        let id = self.open(id, definition).await;
        self.store.seal_batch(&Scope::All, &id).await.unwrap();
        id
    }

    /// A batch that is not sealed.
    pub(super) async fn open(&self, id: &str, definition: &Definition) -> BatchId {
        let id = BatchId::new(id).unwrap();
        let mut batch = NewBatch::new(id.clone());
        batch.tenant = definition.tenant.clone();
        batch.definition = Some(Payload::json(definition).unwrap());
        let client = Client::new(Arc::clone(&self.store));
        let mut writer = client.open_batch(batch).await.unwrap();
        let unit = |key| NewUnit {
            queue: QueueName::new(QUEUE).unwrap(),
            policy: Some(Policy { retry: definition.retry.clone(), ..Policy::default() }),
            ..NewUnit::new(Kind::new(ROW_KIND).unwrap(), json!({ "key": key }))
        };
        writer.add((1..=self.rows).map(unit).collect(), "all".to_owned()).await.unwrap();
        id
    }

    pub(super) fn worker(&self) -> Worker {
        self.worker_on(Arc::clone(&self.store), &self.inference)
    }

    /// A worker with its store and ledger behind a tripwire.
    pub(super) fn worker_with(&self, wire: &Arc<CrashPoint>) -> (Worker, Inference) {
        let store = CrashPointStore::new(Arc::clone(&self.store), Arc::clone(wire));
        let ledger = CrashPointLedger::new(Arc::clone(&self.ledger), Arc::clone(wire));
        let inference = inference(Arc::new(ledger));
        (self.worker_on(Arc::new(store), &inference), inference)
    }

    /// A worker for runners only, one at a time, behind a tripwire.
    pub(super) fn runner_with(&self, wire: &Arc<CrashPoint>) -> Worker {
        let store = CrashPointStore::new(Arc::clone(&self.store), Arc::clone(wire));
        let ledger = CrashPointLedger::new(Arc::clone(&self.ledger), Arc::clone(wire));
        let builder = Worker::builder(Arc::new(store)).slots(1).services(Services::None);
        self.with_runner(builder.heartbeat(HeartbeatPlacement::Task), &inference(Arc::new(ledger)))
            .build()
            .unwrap()
    }

    /// A worker for rows only.
    pub(super) fn rows_only(&self) -> Worker {
        let builder = Worker::builder(Arc::clone(&self.store)).slots(8).services(Services::None);
        self.with_rows(builder.heartbeat(HeartbeatPlacement::Task), &self.inference).build().unwrap()
    }

    fn worker_on(&self, store: Arc<dyn Store>, inference: &Inference) -> Worker {
        let builder = Worker::builder(store)
            .slots(8)
            .heartbeat(HeartbeatPlacement::Task)
            .grace(Duration::from_millis(100));
        self.with_runner(self.with_rows(builder, inference), inference).build().unwrap()
    }

    fn with_runner(&self, builder: WorkerBuilder, inference: &Inference) -> WorkerBuilder {
        let bulk = ProviderBatchHandler::new(inference.clone()).clock(Arc::clone(&self.clock));
        builder.handle(Kind::new(PROVIDER_BATCH_KIND).unwrap(), ProviderBatchHandler::policy(), bulk)
    }

    fn with_rows(&self, builder: WorkerBuilder, inference: &Inference) -> WorkerBuilder {
        let url = format!("sqlite:{}", self.path.display());
        let rows = RowHandler::builder(Arc::new(Sources::new(Some(url), |_| None)));
        let rows = rows.label("w").inference(inference.clone()).build();
        builder.handle(Kind::new(ROW_KIND).unwrap(), Policy::default(), rows)
    }

    /// Runs a worker until `reached`, then drops it.
    pub(super) async fn work_until(&self, reached: impl Future<Output = ()>) {
        tokio::select! {
            ended = self.worker().run() => panic!("it should not have ended: {ended:?}"),
            () = reached => {}
            () = self.inference.run_journal() => panic!("books are kept for ever"),
        }
        tokio::select! {
            () = self.inference.flush_journal() => {}
            () = self.inference.run_journal() => {}
        }
        self.reclaim_dead().await;
    }

    /// Runs a worker until the batch is over and its runner has ended.
    pub(super) async fn work_until_over(&self, id: &BatchId) {
        self.work_until(self.over(id)).await;
    }

    pub(super) async fn over(&self, id: &BatchId) {
        self.until(async || self.batch(id).await.status.is_final()).await;
        self.until(async || self.runners().await == 0).await;
    }

    /// The number of live runners.
    pub(super) async fn runners(&self) -> usize {
        self.live_runners().await.len()
    }

    async fn live_runners(&self) -> Vec<UnitId> {
        let kind = Some(Kind::new(PROVIDER_BATCH_KIND).unwrap());
        let filter = UnitFilter { kind, ..UnitFilter::default() };
        let units = self.store.units(&Scope::All, &filter, None, 1_000).await.unwrap();
        let live = units.items.iter().filter(|unit| !unit.state.is_final());
        live.map(|unit| unit.id).collect()
    }

    pub(super) async fn wake_runners(&self) {
        let units = UnitSelection::Ids(self.live_runners().await);
        self.store.apply_unit_action(&Scope::All, units, UnitAction::Wake).await.unwrap();
    }

    pub(super) async fn until(&self, reached: impl AsyncFn() -> bool) {
        let waiting = async {
            while !reached().await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LIMIT, waiting).await.expect("it did not come to that");
    }

    pub(super) async fn reclaim_dead(&self) {
        let sessions = self.store.sessions().await.unwrap();
        let dead = sessions.iter().map(|one| StalledSession { session: one.id, beats: one.beats });
        self.store.reclaim(&dead.collect::<Vec<_>>()).await.unwrap();
    }

    pub(super) async fn batch(&self, id: &BatchId) -> Batch {
        self.store.batch(&Scope::All, id).await.unwrap()
    }

    pub(super) async fn units(&self, id: &BatchId) -> Vec<Unit> {
        support::units(&self.store, id).await
    }

    pub(super) async fn calls(&self, id: &BatchId) -> Vec<Call> {
        let filter = UsageFilter { batch: Some(id.clone()), ..UsageFilter::default() };
        self.ledger.calls(&Scope::All, &filter, None, 10_000).await.unwrap().items
    }

    pub(super) fn number(&self, sql: &str) -> i64 {
        let db = Connection::open(&self.path).unwrap();
        db.busy_timeout(Duration::from_secs(10)).unwrap();
        db.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// How often each question was submitted.
    pub(super) fn sent(&self) -> BTreeMap<String, usize> {
        let mut sent = BTreeMap::new();
        for id in self.fake.batches().into_iter().flat_map(|batch| batch.ids) {
            *sent.entry(id).or_default() += 1;
        }
        sent
    }

    pub(super) async fn parked(&self, id: &BatchId) -> PendingCounts {
        self.ledger.provider_batches(id).await.unwrap().1
    }

    /// Asserts that no question is parked, no provider batch and no call is open, and nothing is
    /// reserved.
    pub(super) async fn assert_nothing_is_left(&self, id: &BatchId) {
        let (provider_batches, parked) = self.ledger.provider_batches(id).await.unwrap();
        assert_eq!((parked.total(), provider_batches), (0, vec![]));
        let tenant = TenantId::default();
        let month = self.ledger.budget(&Scope::All, &tenant).await.unwrap();
        assert_eq!((month.reserved_tokens, month.reserved_picos), (0, 0));
        assert_eq!(self.store.verify().await.unwrap(), vec![]);
    }
}

fn inference(ledger: Arc<dyn Ledger>) -> Inference {
    let vault = Arc::new(Vault::new(Arc::clone(&ledger) as _, None));
    Inference::new(ledger, vault, Http::new(), "bulk".to_owned())
}

fn fake() -> ProfileName {
    ProfileName::new("fake").unwrap()
}

fn fill(path: &Path, rows: u32) {
    let db = Connection::open(path).unwrap();
    db.execute_batch("CREATE TABLE rows (id INTEGER PRIMARY KEY, seen INT DEFAULT 0, said TEXT)").unwrap();
    for id in 1..=rows {
        db.execute("INSERT INTO rows (id) VALUES (?1)", [id]).unwrap();
    }
}

fn write_secret(path: &Path) {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(b"sk-marked-1").unwrap();
}
