//! awa: COPY by the thousand, and its short path for jobs without a deadline, as its own
//! benchmark has it.

#[path = "../../report.rs"]
mod report;

use std::time::{Duration, Instant};

use awa_macros::JobArgs;
use awa_model::{InsertOpts, QueueStorage, QueueStorageConfig, insert, migrations};
use awa_worker::{
    Client, JobContext, JobError, JobResult, QueueConfig, TransitionWorkerRole, Worker,
};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;

#[derive(Debug, Serialize, Deserialize, JobArgs)]
struct Noop {
    i: usize,
}

struct Handler;

#[async_trait::async_trait]
impl Worker for Handler {
    fn kind(&self) -> &'static str {
        "noop"
    }

    async fn perform(&self, _: &JobContext) -> Result<JobResult, JobError> {
        report::tick();
        Ok(JobResult::Completed)
    }
}

#[tokio::main]
async fn main() {
    let connections = report::setting("CONNECTIONS", 16);
    let options = PgPoolOptions::new().max_connections(connections);
    let pool = options.connect(&report::store()).await.expect("no connection");
    migrations::run(&pool).await.expect("no schema");
    let config = QueueStorageConfig { schema: "awa".into(), ..Default::default() };
    let storage = QueueStorage::new(config.clone()).expect("no storage");
    storage.install(&pool).await.expect("not installed");
    let start = Instant::now();
    for numbers in report::chunks() {
        let opts = || InsertOpts { queue: "noop".into(), ..Default::default() };
        let jobs: Vec<_> = numbers
            .map(|i| insert::params_with(&Noop { i }, opts()).expect("no parameters"))
            .collect();
        storage.enqueue_params_copy(&pool, &jobs).await.expect("not sent");
    }
    report::line("send", report::units(), start.elapsed());
    let (start, deadline) = (Instant::now(), report::deadline());
    let queue = QueueConfig {
        max_workers: report::setting("CONCURRENCY", 1024),
        claimers: report::setting("CLAIMERS", 1),
        poll_interval: Duration::from_millis(report::setting("POLL_MS", 50)),
        deadline_duration: Duration::ZERO,
        ..Default::default()
    };
    let client = Client::builder(pool.clone())
        .queue("noop", queue)
        .queue_storage(config, Duration::from_secs(1), Duration::from_millis(50))
        .transition_role(TransitionWorkerRole::QueueStorageTarget)
        .register_worker(Handler)
        .build()
        .expect("no client");
    client.start().await.expect("not started");
    report::all_ran(deadline).await;
    // It has no count of stored completions that is cheap; the handlers are counted instead, which
    // is in its favour.
    report::line("process", report::ran(), start.elapsed());
    client.shutdown(Duration::from_secs(5)).await;
}
