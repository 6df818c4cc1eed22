//! A private server for one test, and fresh databases on it.

use std::sync::{Arc, Mutex};

use longshore_postgres::{PostgresOptions, PostgresStore, Terms};
use longshore_testkit::servers::{PrivatePgbouncer, PrivatePostgres};
use longshore_testkit::{ManualClock, World};

/// A server with a migrated database that others are copied from.
#[derive(Clone)]
pub(crate) struct Server(Arc<Machine>);

struct Machine {
    server: PrivatePostgres,
    /// Databases that nobody uses any more.
    left: Mutex<Vec<String>>,
}

/// A database that goes once nobody holds it.
pub(crate) struct Database {
    machine: Arc<Machine>,
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
        server.run_in("postgres", &format!("{FORGET} '{}'", server.name())).unwrap();
        Self(Arc::new(Machine { server, left: Mutex::default() }))
    }

    /// A pooler in front of it.
    pub(crate) async fn bouncer(&self) -> PrivatePgbouncer {
        let machine = Arc::clone(&self.0);
        let start = move || PrivatePgbouncer::start(&machine.server).unwrap();
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
        let machine = Arc::clone(&self.0);
        let make = move || {
            machine.clear_away();
            let url = machine.server.fresh_database(template).unwrap();
            Arc::new(Database { machine, url })
        };
        tokio::task::spawn_blocking(make).await.unwrap()
    }

    /// A fresh store with a clock that tests move.
    pub(crate) async fn world(&self) -> World {
        self.database().await.world().await
    }
}

const FORGET: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname =";

impl Machine {
    /// Hundreds of databases would fill the disk. Not when they are left: that happens on threads
    /// of the runtime, and the server waits for every connection, those that we are just making too.
    fn clear_away(&self) {
        let left = std::mem::take(&mut *self.left.lock().unwrap());
        for name in left {
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
        let (clock, terms) = (clock.clone(), Terms::Own);
        let options = PostgresOptions { clock: clock.clone(), terms, ..PostgresOptions::default() };
        let store = PostgresStore::open(url, options).await.unwrap();
        World::new(Arc::new(store), clock).keeping(Arc::clone(self))
    }

    /// Runs statements in it; what they print.
    pub(crate) fn run(&self, sql: &str) -> String {
        self.try_run(sql).unwrap()
    }

    /// The same, or what the server said.
    pub(crate) fn try_run(&self, sql: &str) -> std::io::Result<String> {
        self.machine.server.run_in(self.name(), sql)
    }

    /// Waits until the server's table of activities has a row like this.
    pub(crate) async fn until(&self, like: &str) {
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
        self.machine.left.lock().unwrap().push(self.name().to_owned());
    }
}
