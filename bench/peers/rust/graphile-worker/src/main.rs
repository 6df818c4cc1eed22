//! graphile_worker, the Rust port: `add_raw_jobs` by the thousand, a local queue and batched
//! completions as its own benchmark has them.

#[path = "../../report.rs"]
mod report;

use std::sync::Arc;
use std::time::{Duration, Instant};

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext,
    WorkerOptions,
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

#[derive(Deserialize, Serialize)]
struct Noop {
    i: usize,
}

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        report::tick();
        Ok::<(), String>(())
    }
}

#[tokio::main]
async fn main() {
    let connections = report::setting("CONNECTIONS", 10);
    let options = PgPoolOptions::new().max_connections(connections);
    let pool = options.connect(&report::store()).await.expect("no connection");
    let worker = WorkerOptions::default()
        .pg_pool(pool.clone())
        .schema("graphile_worker")
        .concurrency(report::setting("CONCURRENCY", 500))
        .poll_interval(Duration::from_millis(5))
        .local_queue(LocalQueueConfig::default().with_size(report::setting("LOCAL", 5000)))
        .complete_job_batch_delay(Duration::from_millis(report::setting("DELAY_MS", 5)))
        .define_job::<Noop>()
        .init()
        .await;
    let worker = Arc::new(worker.expect("no worker"));
    let sender = worker.create_utils();
    let start = Instant::now();
    for numbers in report::chunks() {
        let jobs: Vec<RawJobSpec> = numbers.map(job).collect();
        sender.add_raw_jobs(&jobs).await.expect("not sent");
    }
    report::line("send", report::units(), start.elapsed());
    let (start, deadline) = (Instant::now(), report::deadline());
    let running = tokio::spawn({
        let worker = Arc::clone(&worker);
        async move { worker.run().await }
    });
    report::all_ran(deadline).await;
    let mut left = left(&pool).await;
    while left > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(2)).await;
        left = self::left(&pool).await;
    }
    report::line("process", report::units() - left, start.elapsed());
    worker.request_shutdown();
    // The figures are out; how it ends is its own affair.
    let _ = running.await;
}

fn job(i: usize) -> RawJobSpec {
    let payload = serde_json::json!({ "i": i });
    RawJobSpec { identifier: "noop".into(), payload, spec: JobSpec::default() }
}

/// Jobs without a stored completion: graphile_worker deletes completed jobs.
async fn left(pool: &PgPool) -> usize {
    let count = "SELECT count(*) FROM graphile_worker._private_jobs";
    let count: i64 = sqlx::query_scalar(count).fetch_one(pool).await.expect("no count");
    count as usize
}
