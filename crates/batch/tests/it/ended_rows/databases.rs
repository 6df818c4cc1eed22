//! A store and rows in one database: a SQLite file, or a private PostgreSQL.

use std::sync::Arc;

use longshore_batch::definition::Database;
use longshore_batch::rows::Sources;
use longshore_postgres::{PostgresOptions, PostgresStore};
use longshore_sqlite::rusqlite::Connection;
use longshore_sqlite::{SqliteOptions, SqliteStore};
use longshore_testkit::servers::PrivatePostgres;

use crate::handler::fixture::{FakeProvider, Fixture};

/// Makes a test of each case for each database.
macro_rules! on_each_database {
    ($($case:ident,)*) => {
        mod on_sqlite {
            $(#[tokio::test]
            async fn $case() {
                super::$case(crate::ended_rows::databases::SharedDatabase::sqlite(60)).await;
            })*
        }

        mod on_postgres {
            $(#[tokio::test]
            async fn $case() {
                super::$case(crate::ended_rows::databases::SharedDatabase::postgres(60).await).await;
            })*
        }
    };
}
pub(crate) use on_each_database;

enum Engine {
    Sqlite(Connection),
    Postgres(PrivatePostgres),
}

/// A store with a table `rows (id, seen, told, code, run_key)` in the same database.
pub(crate) struct SharedDatabase {
    // Dropped before the server, to which its store is connected.
    pub(crate) fixture: Fixture,
    engine: Engine,
    url: String,
    rows: usize,
    _dir: Option<tempfile::TempDir>,
}

const TABLES: &str = "CREATE TABLE rows (id INTEGER PRIMARY KEY, seen INTEGER DEFAULT 0,
      told INTEGER DEFAULT 0, code TEXT, run_key TEXT, note TEXT);
    CREATE TABLE ends (generation INTEGER, told INTEGER);
    CREATE TABLE log (line INTEGER, step TEXT, value TEXT);";

fn provider() -> Arc<FakeProvider> {
    FakeProvider::always(r#"{"verdict": "fine"}"#)
}

fn filled(rows: usize) -> String {
    let values: Vec<String> = (1..=rows).map(|id| format!("({id})")).collect();
    format!("{TABLES} INSERT INTO rows (id) VALUES {};", values.join(", "))
}

impl SharedDatabase {
    pub(crate) fn sqlite(rows: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
        let db = Connection::open(&path).unwrap();
        db.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
        db.execute_batch(&filled(rows)).unwrap();
        let (fixture, url) =
            (Fixture::new(Arc::new(store), provider()), format!("sqlite:{}", path.display()));
        Self { fixture, engine: Engine::Sqlite(db), url, rows, _dir: Some(dir) }
    }

    pub(crate) async fn postgres(rows: usize) -> Self {
        let server = PrivatePostgres::start().unwrap();
        let store = PostgresStore::open(&server.url(), PostgresOptions::default()).await.unwrap();
        server.run(&filled(rows)).unwrap();
        let (fixture, url) = (Fixture::new(Arc::new(store), provider()), server.url());
        Self { fixture, engine: Engine::Postgres(server), url, rows, _dir: None }
    }

    pub(crate) fn with_provider(self, provider: Arc<FakeProvider>) -> Self {
        Self { fixture: Fixture::new(Arc::clone(&self.fixture.store), provider), ..self }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// The rows in the store's database, and the same database by its URL.
    pub(crate) fn sources(&self) -> Arc<Sources> {
        Arc::new(Sources::new(Some(self.url.clone()), |_| None))
    }

    /// The database as one that is not the store's.
    pub(crate) fn elsewhere(&self) -> Database {
        Database::Url(self.url.clone())
    }

    /// Runs the statement for the database's engine.
    pub(crate) fn run(&self, postgres: &str, sqlite: &str) {
        match &self.engine {
            Engine::Sqlite(db) => db.execute_batch(sqlite).unwrap(),
            Engine::Postgres(server) => drop(server.run(postgres).unwrap()),
        }
    }

    pub(crate) fn text(&self, sql: &str) -> String {
        match &self.engine {
            Engine::Sqlite(db) => {
                db.query_row(&format!("SELECT CAST(({sql}) AS TEXT)"), [], |row| row.get(0)).unwrap()
            }
            Engine::Postgres(server) => server.run(sql).unwrap().trim().to_owned(),
        }
    }

    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.text(sql).parse().unwrap()
    }
}
