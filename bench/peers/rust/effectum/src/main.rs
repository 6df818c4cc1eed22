//! effectum: `add_jobs` by the thousand. It chooses a rollback journal and `synchronous = normal`
//! itself, and neither can be changed.

#[path = "../../report.rs"]
mod report;

use std::path::Path;
use std::time::{Duration, Instant};

use effectum::{Job, JobRunner, Queue, RunningJob, Worker};
use serde::Serialize;

#[derive(Serialize)]
struct Noop {
    i: usize,
}

async fn noop(_: RunningJob, _: ()) -> Result<(), String> {
    report::tick();
    Ok(())
}

#[tokio::main]
async fn main() {
    let queue = Queue::new(Path::new(&report::store())).await.expect("no database");
    let start = Instant::now();
    for numbers in report::chunks() {
        queue.add_jobs(numbers.map(job).collect()).await.expect("not sent");
    }
    report::line("send", report::units(), start.elapsed());
    let (start, deadline) = (Instant::now(), report::deadline());
    let concurrency = report::setting("CONCURRENCY", 256);
    let worker = Worker::builder(&queue, ())
        .min_concurrency(report::setting("FETCH_BELOW", concurrency))
        .max_concurrency(concurrency)
        .jobs([JobRunner::builder("noop", noop).build()])
        .build()
        .await
        .expect("no worker");
    report::all_ran(deadline).await;
    let finished = || worker.counts().finished as usize;
    while finished() < report::units() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    report::line("process", finished(), start.elapsed());
    // The figures are out; how it ends is its own affair.
    let _ = queue.close(Duration::from_secs(5)).await;
}

fn job(i: usize) -> Job {
    let job = Job::builder("noop").json_payload(&Noop { i });
    job.expect("no payload").build()
}
