//! A private server for one test, and fresh databases on it.

use std::sync::{Arc, Mutex};

use longshore_postgres::{ClockSource, PostgresOptions, PostgresStore};
use longshore_testkit::servers::{PrivatePgbouncer, PrivatePostgres};
use longshore_testkit::{ManualClock, World};

/// A server with a migrated database that others are copied from.
#[derive(Clone)]
pub(crate) struct Server(Arc<ServerInner>);

struct ServerInner {
    server: PrivatePostgres,
    /// Databases that nobody uses any more.
    unused: Mutex<Vec<String>>,
}

/// A database that goes once nobody holds it.
pub(crate) struct Database {
    server_inner: Arc<ServerInner>,
    pub(crate) url: String,
}

impl Server {
    /// Starts a server; takes a second or two.
    pub(crate) async fn start() -> Self {
        let start = || PrivatePostgres::start_with(&[("max_connections", "300")]).unwrap();
        let server = tokio::task::spawn_blocking(start).await.unwrap();
        // Nobody is connected to a template once its store is gone.
        let store = PostgresStore::open(&server.url(), PostgresOptions::default()).await.unwrap();
        drop(store);
        server.run_in("postgres", &format!("{TERMINATE_BACKENDS} '{}'", server.name())).unwrap();
        Self(Arc::new(ServerInner { server, unused: Mutex::default() }))
    }

    /// A pooler in front of it.
    pub(crate) async fn bouncer(&self) -> PrivatePgbouncer {
        let server_inner = Arc::clone(&self.0);
        let start = move || PrivatePgbouncer::start(&server_inner.server).unwrap();
        tokio::task::spawn_blocking(start).await.unwrap()
    }

    /// A migrated database.
    pub(crate) async fn database(&self) -> Arc<Database> {
        self.copy(Some(self.0.server.name())).await
    }

    /// A database with nothing in it.
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

    /// A fresh store with a clock that tests move.
    pub(crate) async fn world(&self) -> World {
        self.database().await.world().await
    }
}

const TERMINATE_BACKENDS: &str =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname =";

impl ServerInner {
    /// Hundreds of databases would fill the disk. Not when they are left: that happens on threads
    /// of the runtime, and the server waits for every connection, those that we are just making too.
    fn drop_unused(&self) {
        let unused = std::mem::take(&mut *self.unused.lock().unwrap());
        for name in unused {
            let drop = format!("DROP DATABASE {name} WITH (FORCE)");
            self.server.run_in("postgres", &drop).unwrap();
        }
    }
}

impl Database {
    /// The store in it, with a clock that tests move.
    pub(crate) async fn world(self: &Arc<Self>) -> World {
        self.world_at(&self.url).await
    }

    /// The same, reached by another URL.
    pub(crate) async fn world_at(self: &Arc<Self>, url: &str) -> World {
        let clock = Arc::new(ManualClock::default());
        let (clock, clock_source) = (clock.clone(), ClockSource::Local);
        let options =
            PostgresOptions { clock: clock.clone(), clock_source, ..PostgresOptions::default() };
        let store = PostgresStore::open(url, options).await.unwrap();
        World::new(Arc::new(store), clock).keeping(Arc::clone(self))
    }

    /// Runs statements in it; what they print.
    pub(crate) fn run(&self, sql: &str) -> String {
        self.try_run(sql).unwrap()
    }

    /// The same, or what the server said.
    pub(crate) fn try_run(&self, sql: &str) -> std::io::Result<String> {
        self.server_inner.server.run_in(self.name(), sql)
    }

    /// Waits until the server's table of activities has a row like this.
    pub(crate) async fn wait_for_activity(&self, like: &str) {
        let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE {like}");
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
        while self.run(&sql).trim() == "0" {
            assert!(tokio::time::Instant::now() < deadline, "never: {like}");
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
