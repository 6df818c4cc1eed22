//! apalis on PostgreSQL: `push_all` by the thousand, a worker that takes 1000 jobs at a time.

#[path = "../../report.rs"]
mod report;

use std::time::{Duration, Instant};

use apalis::prelude::*;
use apalis_postgres::{Config, PostgresStorage};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

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
    let connections = report::setting("CONNECTIONS", 10);
    let options = PgPoolOptions::new().max_connections(connections);
    let pool = options.connect(&report::store()).await.expect("no connection");
    PostgresStorage::setup(&pool).await.expect("no schema");
    let config = Config::default().queue("noop").batch_size(report::setting("BATCH", 1000));
    let mut storage: PostgresStorage<Noop> = PostgresStorage::new(&pool).with_config(config);
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

/// Jobs with a stored completion.
async fn done(pool: &PgPool) -> usize {
    let count = "SELECT count(*) FROM apalis.jobs WHERE status = 'Done'";
    let count: i64 = sqlx::query_scalar(count).fetch_one(pool).await.expect("no count");
    count as usize
}
