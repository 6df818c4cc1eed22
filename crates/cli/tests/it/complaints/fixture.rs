//! Fixtures for both stores, and the store calls that these tests share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore::store::{ClaimRequest, FinishRequest, LeasedUnit, Queues};
use longshore::worker_session::NewSession;
use longshore::{Counts, Kind, NewUnit, Outcome, Policy, RetryPolicy, Scope, SessionId, Store, UnitId};
use longshore_postgres::{PostgresOptions, PostgresStore};
use longshore_sqlite::{SqliteOptions, SqliteStore};
use longshore_testkit::servers::PrivatePostgres;
use tokio::time::Instant;

use crate::support::TestDir;

pub const ALL: Scope = Scope::All;
/// Longer than any step here should take.
const MAX_WAIT: Duration = Duration::from_secs(90);

/// A fresh store of one kind, and a directory with a configuration that names it.
pub struct StoreFixture {
    pub dir: TestDir,
    pub server: Option<PrivatePostgres>,
}

impl StoreFixture {
    pub fn sqlite() -> Self {
        Self { dir: TestDir::new(), server: None }
    }

    pub fn postgres() -> Self {
        Self::postgres_with(&[])
    }

    /// On a server with these settings.
    pub fn postgres_with(settings: &[(&str, &str)]) -> Self {
        let server = PrivatePostgres::start_with(settings).unwrap();
        let dir = TestDir::new();
        dir.write("longshore.toml", format!("store = \"{}\"\n", server.url()));
        Self { dir, server: Some(server) }
    }

    pub fn both() -> [Self; 2] {
        [Self::sqlite(), Self::postgres()]
    }

    pub fn name(&self) -> &'static str {
        if self.server.is_some() { "postgres" } else { "sqlite" }
    }

    /// Opens the store. Instances behave like separate processes: they share only the database.
    pub async fn open(&self) -> Arc<dyn Store> {
        match &self.server {
            None => {
                let path = self.dir.path("longshore.db");
                Arc::new(SqliteStore::open(&path, SqliteOptions::default()).unwrap())
            }
            Some(_) => self.open_postgres().await,
        }
    }

    pub async fn open_postgres(&self) -> Arc<PostgresStore> {
        let url = self.server.as_ref().unwrap().url();
        Arc::new(PostgresStore::open(&url, PostgresOptions::default()).await.unwrap())
    }

    /// Runs SQL on the server itself.
    pub fn query(&self, sql: &str) -> String {
        let server = self.server.as_ref().unwrap();
        tokio::task::block_in_place(|| server.run(sql).unwrap().trim().to_owned())
    }

    /// Runs SQL on the server and parses one number.
    pub fn query_number(&self, sql: &str) -> u64 {
        self.query(sql).parse().unwrap()
    }

    /// Waits until no store is connected: only then are the server's statistics complete.
    pub async fn wait_for_disconnect(&self) {
        let stays = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'longshore'";
        wait_until(async || self.query_number(stays) == 0).await;
    }
}

/// Runs a test on both stores concurrently, one thread each.
pub fn on_both_stores(test: impl Fn(&StoreFixture) + Sync) {
    std::thread::scope(|scope| {
        let test = &test;
        scope.spawn(move || test(&StoreFixture::sqlite()));
        scope.spawn(move || test(&StoreFixture::postgres()));
    });
}

/// A runtime for the parts of a test that use the library.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Polls until the condition holds.
#[track_caller]
pub fn wait_until(reached: impl AsyncFn() -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let limit = Instant::now() + MAX_WAIT;
        while !reached().await {
            assert!(Instant::now() < limit, "not reached: {caller}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

pub fn kind() -> Kind {
    Kind::new("work").unwrap()
}

pub fn unit(payload: impl Into<serde_json::Value>) -> NewUnit {
    NewUnit::new(kind(), payload.into())
}

pub fn units(count: usize) -> Vec<NewUnit> {
    (0..count).map(unit).collect()
}

/// Sends many units, a thousand at a time.
pub async fn send(store: &Arc<dyn Store>, units: Vec<NewUnit>) {
    let client = longshore::Client::new(Arc::clone(store));
    let sent = client.send_many(units, longshore::WhenFull::Reject).await.unwrap();
    assert!(sent.iter().all(|sent| matches!(sent, longshore::store::SendResult::Created(_))));
}

/// Default attempts with short delays.
pub fn fast_retry() -> Policy {
    let base = Duration::from_millis(10);
    Policy { retry: RetryPolicy { base, ..RetryPolicy::default() }, ..Policy::default() }
}

pub async fn session(store: &dyn Store) -> SessionId {
    let id = SessionId::new();
    let kinds = BTreeMap::from([(kind(), Policy::default())]);
    let ttl = Duration::from_secs(60);
    let new = NewSession { kinds, slots: 1_000, ttl, ..NewSession::new(id, "test") };
    store.open_session(new).await.unwrap();
    id
}

pub fn claim_request(session: SessionId, free: u32) -> ClaimRequest {
    ClaimRequest { free_slots: free, holds_nothing: false, ..ClaimRequest::new(session, vec![kind()], 1_000) }
}

pub async fn claim(store: &dyn Store, session: SessionId, free: u32) -> Vec<LeasedUnit> {
    store.claim(claim_request(session, free)).await.unwrap().units
}

pub async fn finish(store: &dyn Store, session: SessionId, held: &[LeasedUnit], outcome: &Outcome) {
    let ends = held.iter().map(|held| FinishRequest::new(held.lease, outcome.clone())).collect();
    store.finish(session, ends).await.unwrap();
}

pub async fn counts(store: &dyn Store) -> Counts {
    store.totals(&ALL, &Queues::All).await.unwrap().counts
}

/// No lease is left, and the store's own verification finds nothing wrong.
pub async fn assert_consistent(store: &dyn Store) {
    assert_eq!(counts(store).await.leased, 0, "a unit is still leased");
    assert_eq!(store.verify().await.unwrap(), vec![]);
}

/// How often each unit was started, and how many ran concurrently.
#[derive(Default)]
pub struct RunCounter {
    of: Mutex<BTreeMap<UnitId, u32>>,
    now: AtomicU32,
    peak: AtomicU32,
}

/// Marks one run until it is dropped.
pub struct ActiveRun(Arc<RunCounter>);

impl RunCounter {
    /// Records the start of a run and returns its number among the unit's runs, from 1.
    pub fn begin(self: &Arc<Self>, unit: UnitId) -> (u32, ActiveRun) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(now, Ordering::SeqCst);
        let mut of = self.of.lock().unwrap();
        let times = of.entry(unit).or_default();
        *times += 1;
        (*times, ActiveRun(Arc::clone(self)))
    }

    pub fn of(&self, unit: UnitId) -> u32 {
        self.of.lock().unwrap().get(&unit).copied().unwrap_or(0)
    }

    pub fn all(&self) -> Vec<u32> {
        self.of.lock().unwrap().values().copied().collect()
    }

    pub fn peak(&self) -> u32 {
        self.peak.load(Ordering::SeqCst)
    }
}

impl Drop for ActiveRun {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}
