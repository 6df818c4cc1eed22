//! River for Rust, on PostgreSQL and on SQLite: `insert_many` by the thousand, the shortest delay between fetches.

#[path = "../../report.rs"]
mod report;

use std::time::{Duration, Instant};

use riverqueue::migrate::{PostgresMigrator, SqliteMigrator};
use riverqueue::sqlx::postgres::PgPoolOptions;
use riverqueue::sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use riverqueue::sqlx::{self, PgPool, SqlitePool};
use riverqueue::{
    BoxError, Client, ClientBuilder, FETCH_COOLDOWN_MIN, Job, JobArgs, QueueConfig, WorkContext, WorkOutcome, Workers,
};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Deserialize, JobArgs, Serialize)]
#[river(kind = "noop")]
struct Noop {
    i: usize,
}

async fn noop(_: WorkContext, _: Job<Noop>) -> Result<WorkOutcome, BoxError> {
    report::tick();
    Ok(WorkOutcome::Complete)
}

enum Pool {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

impl Pool {
    async fn open(store: &str) -> Self {
        if store.starts_with("postgres") {
            let options = PgPoolOptions::new().max_connections(report::setting("CONNECTIONS", 10));
            let pool = options.connect(store).await.expect("no connection");
            PostgresMigrator::new(pool.clone()).migrate_up().await.expect("no schema");
            return Self::Postgres(pool);
        }
        let options = SqliteConnectOptions::new()
            .filename(store)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(Duration::from_secs(30));
        let pool = SqlitePoolOptions::new().connect_with(options).await.expect("no file");
        SqliteMigrator::new(pool.clone()).migrate_up().await.expect("no schema");
        Self::Sqlite(pool)
    }

    fn client(&self) -> ClientBuilder {
        match self {
            Self::Postgres(pool) => Client::builder(pool.clone()),
            Self::Sqlite(pool) => Client::builder(pool.clone()),
        }
    }

    /// Jobs without a stored completion.
    async fn left(&self) -> usize {
        let sql = "SELECT count(*) FROM river_job WHERE state <> 'completed'";
        let count: i64 = match self {
            Self::Postgres(pool) => sqlx::query_scalar(sql).fetch_one(pool).await,
            Self::Sqlite(pool) => sqlx::query_scalar(sql).fetch_one(pool).await,
        }
        .expect("no count");
        count as usize
    }
}

#[tokio::main]
async fn main() {
    let pool = Pool::open(&report::store()).await;
    let mut workers = Workers::new();
    workers.add_fn(noop).expect("no worker");
    let queue = QueueConfig::new(report::setting("CONCURRENCY", 1000))
        .with_fetch_cooldown(FETCH_COOLDOWN_MIN)
        .with_fetch_poll_interval(Duration::from_millis(5));
    let client = pool.client().workers(workers).queue("default", queue).build().expect("no client");
    let start = Instant::now();
    for numbers in report::chunks() {
        client.insert_many(numbers.map(|i| Noop { i })).await.expect("not sent");
    }
    report::line("send", report::units(), start.elapsed());
    let (start, deadline) = (Instant::now(), report::deadline());
    let mut running = client.start().expect("not started");
    report::all_ran(deadline).await;
    let mut left = pool.left().await;
    while left > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(2)).await;
        left = pool.left().await;
    }
    report::line("process", report::units() - left, start.elapsed());
    // The figures are out; how it ends is its own affair.
    let _ = running.stop().await;
}
