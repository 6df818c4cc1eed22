//! A private server for one test, and fresh databases on it.

use std::sync::{Arc, Mutex};

use longshore_postgres::{ClockSource, PostgresOptions, PostgresStore};
use longshore_testkit::servers::{PrivatePgbouncer, PrivatePostgres};
use longshore_testkit::{ManualClock, StoreFixture};

/// A server with a migrated database as a template for others.
#[derive(Clone)]
pub(crate) struct Server(Arc<ServerInner>);

struct ServerInner {
    server: PrivatePostgres,
    /// Databases to drop.
    unused: Mutex<Vec<String>>,
}

/// A database that is dropped after its last use.
pub(crate) struct Database {
    server_inner: Arc<ServerInner>,
    pub(crate) url: String,
}

impl Server {
    /// Starts a server; takes a second or two.
    pub(crate) async fn start() -> Self {
        let start = || PrivatePostgres::start_with(&[("max_connections", "300")]).unwrap();
        let server = tokio::task::spawn_blocking(start).await.unwrap();
        // A template must have no connections: drop the store first.
        let store = PostgresStore::open(&server.url(), PostgresOptions::default()).await.unwrap();
        drop(store);
        server.run_in("postgres", &format!("{TERMINATE_BACKENDS} '{}'", server.name())).unwrap();
        Self(Arc::new(ServerInner { server, unused: Mutex::default() }))
    }

    /// Starts a pooler in front of the server.
    pub(crate) async fn bouncer(&self) -> PrivatePgbouncer {
        let server_inner = Arc::clone(&self.0);
        let start = move || PrivatePgbouncer::start(&server_inner.server).unwrap();
        tokio::task::spawn_blocking(start).await.unwrap()
    }

    /// A migrated database.
    pub(crate) async fn database(&self) -> Arc<Database> {
        self.copy(Some(self.0.server.name())).await
    }

    /// An empty database.
    pub(crate) async fn empty_database(&self) -> Arc<Database> {
        self.copy(None).await
    }

    async fn copy(&self, template: Option<&'static str>) -> Arc<Database> {
        let server_inner = Arc::clone(&self.0);
        let make = move || {
            server_inner.drop_unused();
            let url = server_inner.server.fresh_database(template).unwrap();
            Arc::new(Database { server_inner, url })
        };
        tokio::task::spawn_blocking(make).await.unwrap()
    }

    /// A fresh store with a clock that tests set.
    pub(crate) async fn fixture(&self) -> StoreFixture {
        self.database().await.fixture().await
    }
}

const TERMINATE_BACKENDS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname =";

impl ServerInner {
    /// Drops databases that are no longer used, since hundreds would fill the disk. Not in `Drop`,
    /// which runs on threads of the runtime: dropping a database waits for all its connections,
    /// including those being opened.
    fn drop_unused(&self) {
        let unused = std::mem::take(&mut *self.unused.lock().unwrap());
        for name in unused {
            let drop = format!("DROP DATABASE {name} WITH (FORCE)");
            self.server.run_in("postgres", &drop).unwrap();
        }
    }
}

impl Database {
    /// A store in this database, with a clock that tests set.
    pub(crate) async fn fixture(self: &Arc<Self>) -> StoreFixture {
        self.fixture_at(&self.url).await
    }

    /// A store in this database through another URL.
    pub(crate) async fn fixture_at(self: &Arc<Self>, url: &str) -> StoreFixture {
        let clock = Arc::new(ManualClock::default());
        let (clock, clock_source) = (clock.clone(), ClockSource::Local);
        let options = PostgresOptions { clock: clock.clone(), clock_source, ..PostgresOptions::default() };
        let store = PostgresStore::open(url, options).await.unwrap();
        StoreFixture::new(Arc::new(store), clock).with_guard(Arc::clone(self))
    }

    /// Runs statements in this database, and returns what they print.
    pub(crate) fn run(&self, sql: &str) -> String {
        self.try_run(sql).unwrap()
    }

    /// Runs statements in this database, and returns what they print or the server's error.
    pub(crate) fn try_run(&self, sql: &str) -> std::io::Result<String> {
        self.server_inner.server.run_in(self.name(), sql)
    }

    /// Waits until `pg_stat_activity` has a row that matches the condition.
    pub(crate) async fn wait_for_activity(&self, like: &str) {
        let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE {like}");
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
        while self.run(&sql).trim() == "0" {
            assert!(tokio::time::Instant::now() < deadline, "no such activity: {like}");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    fn name(&self) -> &str {
        self.url.rsplit_once('/').unwrap().1
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.server_inner.unused.lock().unwrap().push(self.name().to_owned());
    }
}
