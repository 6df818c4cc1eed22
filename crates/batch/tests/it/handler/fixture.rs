//! Shared by the tests of a row's run: a batch of rows on any store, and workers that can be dropped.

mod fakes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::{Call, Ledger, PutProfile, UsageFilter};
use longshore::batch::{Batch, Callback};
use longshore::failure_detector::StalledSession;
use longshore::store::UnitFilter;
use longshore::{
    BatchId, Client, HeartbeatPlacement, Kind, NewBatch, NewUnit, Payload, Policy, ProfileName, QueueName,
    RetryPolicy, Scope, Services, Store, SystemClock, TenantId, Unit, UnitId, Worker, WorkerBuilder,
    WorkerReport,
};
use longshore_ai::contract::Libraries;
use longshore_ai::worker::RequestHandler;
use longshore_ai::{Http, Inference, NoPrompts, Price, Prices, Profile, Provider, Vault};
use longshore_batch::RowHandler;
use longshore_batch::definition::{
    Ai, AskRoute, COMPLETION_KIND, Database, Definition, Post, Pre, ProfileRef, QUEUE, ROW_KIND, RowStep,
    SqlPost, SqlPre, SqlStatement,
};
use longshore_batch::handler::RowHandlerBuilder;
use longshore_batch::rows::{RowSource, Sources};
use serde_json::{Value, json};

pub(crate) use self::fakes::{FakeProvider, FakeReply, FakeRows, answer};
use crate::support;

/// Timeout of a wait in a test, in paused time.
const LIMIT: Duration = Duration::from_secs(600);

pub(crate) fn rows_database() -> Database {
    Database::Url("fake:rows".to_owned())
}

/// A statement that may change any number of rows.
pub(crate) fn statement(sql: &str) -> SqlStatement {
    SqlStatement { sql: sql.to_owned(), rows: None }
}

/// `{{ id }}?`, answered with `{"verdict": …}`, written to `reviews`.
pub(crate) fn definition() -> Definition {
    let basis = support::definition();
    let ai = basis.ai().unwrap().clone();
    Definition {
        database: rows_database(),
        pre: Pre::Sql(SqlPre {
            sql: "SELECT id FROM rows WHERE id = :key".to_owned(),
            lists: BTreeMap::new(),
            template: "{{ id }}?".to_owned(),
            template_name: "prompt.md".to_owned(),
        }),
        step: RowStep::Ai(Ai {
            profile: Profile {
                name: "fake".to_owned(),
                prices: Prices::flat(Price::dollars(1), Price::dollars(5)),
                ..ai.profile.inline().unwrap().clone()
            }
            .into(),
            max_tokens: 50,
            timeout: Duration::from_secs(30),
            keep_answers: false,
            budget: None,
            max_prompt: longshore_batch::definition::DEFAULT_MAX_PROMPT,
            pool: None,
            schema: Some(json!({
                "type": "object",
                "properties": { "verdict": { "type": "string" }, "notes": {} },
                "required": ["verdict"],
            })),
            ..ai
        }),
        post: Post::Sql(post()),
        retry: RetryPolicy {
            max_attempts: 3,
            base: Duration::from_millis(1),
            cap: Duration::from_millis(1),
            max_age: None,
        },
        ..basis
    }
}

pub(crate) fn post() -> SqlPost {
    SqlPost {
        rules: Vec::new(),
        always: Vec::new(),
        success: vec![statement("INSERT INTO reviews VALUES (:key, :verdict)")],
        fail: vec![statement("UPDATE rows SET problem = :error_code WHERE id = :key")],
        retry: Vec::new(),
        skip: Vec::new(),
    }
}

/// How rows send their questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestRoute {
    /// Directly to the provider.
    Direct,
    /// By the inference of the rows' own worker.
    Local,
    /// Through the queue, to another worker.
    Queue,
}

/// Makes a test of each case for each route. A case is a function of the route.
macro_rules! on_each_route {
    ($($case:ident,)*) => {
        mod directly {
            $(#[tokio::test(start_paused = true)]
            async fn $case() {
                super::$case(crate::handler::fixture::TestRoute::Direct).await;
            })*
        }

        mod locally {
            $(#[tokio::test(start_paused = true)]
            async fn $case() {
                super::$case(crate::handler::fixture::TestRoute::Local).await;
            })*
        }

        mod through_the_queue {
            $(#[tokio::test(start_paused = true)]
            async fn $case() {
                super::$case(crate::handler::fixture::TestRoute::Queue).await;
            })*
        }
    };
}
pub(crate) use on_each_route;

/// A store with fake rows and a fake provider.
pub(crate) struct Fixture {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) client: Client,
    pub(crate) rows: Arc<FakeRows>,
    pub(crate) provider: Arc<FakeProvider>,
    route: TestRoute,
    inference: Option<InferenceFixture>,
}

/// Inference and ledger of calls that are not direct.
pub(crate) struct InferenceFixture {
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) inference: Inference,
}

impl InferenceFixture {
    /// Inference on which `provider` answers for the ledger's profile `fake`.
    async fn open(ledger: Arc<dyn Ledger>, provider: &Arc<FakeProvider>) -> Self {
        let vault = Arc::new(Vault::new(Arc::clone(&ledger) as _, None));
        let inference = Inference::new(Arc::clone(&ledger), vault, Http::new(), "test".to_owned());
        let fixture = Self { ledger, inference };
        let body = json!({ "provider": "echo", "prices": { "input": 1, "output": 5 } });
        fixture.put(Some(body), None).await;
        fixture.inference.override_provider(fake(), Arc::clone(provider) as _);
        fixture
    }

    /// Changes the profile `fake`.
    pub(crate) async fn put(&self, body: Option<Value>, suspended: Option<bool>) {
        let (tenant, name) = (TenantId::default(), fake());
        let put = PutProfile { tenant, name, body, suspended, expected: None };
        self.ledger.put_profile(&Scope::All, put).await.unwrap();
        self.inference.clear_cache();
    }

    fn handler(&self) -> RequestHandler {
        let (ledger, clock) = (Arc::clone(&self.ledger), Arc::new(SystemClock));
        let (libraries, prompts) = (Libraries::default(), Arc::new(NoPrompts));
        RequestHandler::new(self.inference.clone(), ledger, libraries, prompts, clock)
    }
}

fn fake() -> ProfileName {
    ProfileName::new("fake").unwrap()
}

impl Fixture {
    pub(crate) fn new(store: Arc<dyn Store>, provider: Arc<FakeProvider>) -> Self {
        let client = Client::new(Arc::clone(&store));
        let (rows, route, inference) = (Arc::default(), TestRoute::Direct, None);
        Self { store, client, rows, provider, route, inference }
    }

    /// A fixture on the memory store.
    pub(crate) fn in_memory(provider: Arc<FakeProvider>) -> Self {
        Self::new(Arc::new(longshore::MemoryStore::default()), provider)
    }

    /// A fixture on the memory store, with rows that use this route.
    pub(crate) async fn by(route: TestRoute, provider: Arc<FakeProvider>) -> Self {
        let store = Arc::new(longshore::MemoryStore::default());
        let fixture = Self { route, ..Self::new(Arc::clone(&store) as _, provider) };
        match route {
            TestRoute::Direct => fixture,
            TestRoute::Local | TestRoute::Queue => {
                let inference = InferenceFixture::open(store, &fixture.provider).await;
                Self { inference: Some(inference), ..fixture }
            }
        }
    }

    /// [`definition`] with the fixture's route.
    pub(crate) fn definition(&self) -> Definition {
        let mut definition = definition();
        if self.route != TestRoute::Direct {
            support::ai(&mut definition).profile = ProfileRef::Named(fake());
        }
        if self.route == TestRoute::Queue {
            support::ai(&mut definition).through = AskRoute::Queue;
        }
        definition
    }

    /// Runs `work` while questions are answered and the ledger is written.
    pub(crate) async fn beside<T>(&self, work: impl Future<Output = T>) -> T {
        let Some(InferenceFixture { inference, .. }) = &self.inference else { return work.await };
        let done = tokio::select! {
            done = work => done,
            () = inference.run_journal() => panic!("the journal does not end"),
            () = self.answer() => panic!("the worker does not end"),
        };
        tokio::select! {
            () = inference.flush_journal() => {}
            () = inference.run_journal() => {}
        }
        done
    }

    async fn answer(&self) {
        let Some(inference) = self.inference.as_ref().filter(|_| self.route == TestRoute::Queue) else {
            return std::future::pending().await;
        };
        let policy = Policy { retry: RetryPolicy::never(), max_lost: 50, ..Policy::default() };
        let kind = Kind::new(longshore_ai::worker::KIND).unwrap();
        let worker = Worker::builder(Arc::clone(&self.store))
            .slots(8)
            .heartbeat(HeartbeatPlacement::Task)
            .services(Services::None)
            .handle_erased(kind, policy, Arc::new(inference.handler()));
        worker.build().unwrap().run().await.unwrap();
    }

    /// All calls of a batch in the ledger.
    pub(crate) async fn calls(&self, batch: &BatchId) -> Vec<Call> {
        let filter = UsageFilter { batch: Some(batch.clone()), ..UsageFilter::default() };
        let ledger = &self.inference().ledger;
        ledger.calls(&Scope::All, &filter, None, 10_000).await.unwrap().items
    }

    pub(crate) fn inference(&self) -> &InferenceFixture {
        self.inference.as_ref().unwrap()
    }

    /// Writes a sealed batch with these rows.
    pub(crate) async fn start(&self, definition: &Definition, keys: &[Value]) -> BatchId {
        self.start_as("b-1", definition, keys).await
    }

    pub(crate) async fn start_as(&self, id: &str, definition: &Definition, keys: &[Value]) -> BatchId {
        let id = BatchId::new(id).unwrap();
        let mut batch = NewBatch::new(id.clone());
        batch.kind.clone_from(&definition.kind);
        batch.tenant = definition.tenant.clone();
        batch.threshold = definition.threshold;
        batch.definition = Some(Payload::json(definition).unwrap());
        batch.callback = definition.completion.as_ref().map(|_| {
            Callback::new(QueueName::new(QUEUE).unwrap(), Kind::new(COMPLETION_KIND).unwrap(), json!({}))
        });
        let mut writer = self.client.open_batch(batch).await.unwrap();
        let units = keys.iter().map(|key| unit(definition, key)).collect();
        writer.add(units, "all".to_owned()).await.unwrap();
        writer.seal().await.unwrap();
        id
    }

    pub(crate) fn sources(&self) -> Arc<Sources> {
        let rows = Arc::clone(&self.rows) as Arc<dyn RowSource>;
        Arc::new(Sources::new(None, |_| None).with(rows_database(), rows))
    }

    pub(crate) fn handler(&self) -> RowHandlerBuilder {
        let handler = RowHandler::builder(self.sources()).label("w");
        match &self.inference {
            Some(fixture) => handler.inference(fixture.inference.clone()),
            None => handler.provider("fake", Arc::clone(&self.provider) as Arc<dyn Provider>),
        }
    }

    /// A worker for rows. Without services, rows of a dead worker stay leased until
    /// [`Self::reclaim_dead`].
    pub(crate) fn worker(&self, slots: u32, handler: RowHandlerBuilder) -> WorkerBuilder {
        Worker::builder(Arc::clone(&self.store))
            .slots(slots)
            .heartbeat(HeartbeatPlacement::Task)
            .grace(Duration::from_millis(100))
            .handle(row_kind(), Policy::default(), handler.build())
    }

    /// Runs a worker until all rows are done.
    pub(crate) async fn work(&self, handler: RowHandlerBuilder) -> WorkerReport {
        let worker = self.worker(4, handler).services(Services::All).until_idle(true);
        self.beside(worker.build().unwrap().run()).await.unwrap()
    }

    /// Runs a worker until `reached`, then drops it with its handlers.
    pub(crate) async fn work_until(&self, handler: RowHandlerBuilder, reached: impl Future<Output = ()>) {
        self.work_by(self.worker(1, handler), reached).await;
    }

    /// Runs the given worker until `reached`, then drops it.
    pub(crate) async fn work_by(&self, worker: WorkerBuilder, reached: impl Future<Output = ()>) {
        let worker = worker.build().unwrap();
        let working = async {
            tokio::select! {
                ended = worker.run() => panic!("it should not have ended: {ended:?}"),
                () = reached => {}
                () = tokio::time::sleep(LIMIT) => panic!("not reached in {LIMIT:?}"),
            }
        };
        self.beside(working).await;
        self.reclaim_dead().await;
    }

    /// Waits for a question.
    pub(crate) async fn asked(&self) {
        let asked = tokio::time::timeout(LIMIT, self.provider.asked.notified()).await;
        asked.expect("nothing was asked");
    }

    /// Reclaims the units of dead workers.
    pub(crate) async fn reclaim_dead(&self) {
        let sessions = self.store.sessions().await.unwrap();
        let dead: Vec<StalledSession> = sessions
            .iter()
            .map(|session| StalledSession { session: session.id, beats: session.beats })
            .collect();
        self.store.reclaim(&dead).await.unwrap();
    }

    pub(crate) async fn batch(&self, id: &BatchId) -> Batch {
        self.store.batch(&Scope::All, id).await.unwrap()
    }

    /// The batch's only unit.
    pub(crate) async fn only_unit(&self, id: &BatchId) -> Unit {
        let filter = UnitFilter { batch: Some(id.clone()), ..UnitFilter::default() };
        let page = self.store.units(&Scope::All, &filter, None, 10).await.unwrap();
        assert_eq!(page.items.len(), 1);
        self.unit(page.items[0].id).await
    }

    pub(crate) async fn unit(&self, id: UnitId) -> Unit {
        self.store.unit(&Scope::All, id).await.unwrap()
    }

    /// The code and message of the failure of the batch's only unit.
    pub(crate) async fn failure(&self, id: &BatchId) -> (String, String) {
        let unit = self.only_unit(id).await;
        assert_eq!(unit.state, longshore::UnitState::Failed, "{:?}", unit.failure);
        let failure = unit.failure.unwrap();
        (failure.code, failure.message)
    }
}

pub(crate) fn row_kind() -> Kind {
    Kind::new(ROW_KIND).unwrap()
}

fn unit(definition: &Definition, key: &Value) -> NewUnit {
    let mut unit = NewUnit::new(row_kind(), json!({ "key": key }));
    unit.queue = QueueName::new(QUEUE).unwrap();
    unit.tenant = definition.tenant.clone();
    unit.policy = Some(Policy { retry: definition.retry.clone(), ..Policy::default() });
    unit
}
