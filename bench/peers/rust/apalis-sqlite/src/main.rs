//! apalis on SQLite: `push_all` by the thousand, a worker that takes 500 jobs at a time.
//!
//! Its `setup` turns `synchronous` off on the connection that it happens to get. So the pool is
//! opened anew with WAL and FULL afterwards: what we compare with survives a power failure.

#[path = "../../report.rs"]
mod report;

use std::time::{Duration, Instant};

use apalis::prelude::*;
use apalis_sqlite::{Config, SqliteStorage};
use serde::{Deserialize, Serialize};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Noop {
    i: usize,
}

async fn noop(_: Noop) -> Result<(), BoxDynError> {
    report::tick();
    Ok(())
}

#[tokio::main]
async fn main() {
    let pool = open().await;
    SqliteStorage::setup(&pool).await.expect("no schema");
    pool.close().await;
    let pool = open().await;
    let config = Config::default().queue("noop").batch_size(report::setting("BATCH", 500));
    let mut storage: SqliteStorage<Noop> = SqliteStorage::new(&pool).with_config(config);
    let start = Instant::now();
    for numbers in report::chunks() {
        let jobs = numbers.map(|i| TaskBuilder::new(Noop { i }).build());
        storage.push_all(&mut futures::stream::iter(jobs)).await.expect("not sent");
    }
    report::line("send", report::units(), start.elapsed());
    let (start, deadline) = (Instant::now(), report::deadline());
    let worker = WorkerBuilder::new("worker").backend(storage).build(noop);
    let running = tokio::spawn(worker.run());
    report::all_ran(deadline).await;
    let mut stored = done(&pool).await;
    while stored < report::units() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(2)).await;
        stored = done(&pool).await;
    }
    report::line("process", stored, start.elapsed());
    running.abort();
}

async fn open() -> SqlitePool {
    let options = SqliteConnectOptions::new()
        .filename(report::store())
        .create_if_missing(true)
        .busy_timeout(Duration::from_secs(30))
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let connections = report::setting("CONNECTIONS", 4);
    let pool = SqlitePoolOptions::new().max_connections(connections);
    pool.connect_with(options).await.expect("no database")
}

/// Jobs with a stored completion.
async fn done(pool: &SqlitePool) -> usize {
    let count = "SELECT count(*) FROM Jobs WHERE status = 'Done'";
    let count: i64 = sqlx::query_scalar(count).fetch_one(pool).await.expect("no count");
    count as usize
}
