//! The work through the engine: client, worker, SQLite store.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use longshore::{Client, Context, Kind, NewUnit, Policy, Store, WhenFull, Worker};
use longshore_sqlite::{SqliteOptions, SqliteStore};
use tokio::sync::mpsc;

/// Opens a store in `folder` with default options, as users do.
pub fn open(folder: &Path) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(SqliteStore::open(&folder.join("bench.db"), SqliteOptions::default())?))
}

/// A kind with an empty handler.
pub fn noop() -> Result<Kind> {
    Ok(Kind::new("noop")?)
}

/// Sends `count` units, ten thousand per call; the client splits them into chunks of a thousand.
pub async fn send(store: &Arc<dyn Store>, count: usize) -> Result<()> {
    let client = Client::new(Arc::clone(store));
    let kind = noop()?;
    for start in (0..count).step_by(10_000) {
        let units = (start..(start + 10_000).min(count))
            .map(|i| NewUnit::new(kind.clone(), format!("{{\"i\":{i}}}").into_bytes()))
            .collect();
        client.send_many(units, WhenFull::Wait).await?;
    }
    Ok(())
}

/// Runs a worker until `count` units are finished; returns the duration.
pub async fn process(store: &Arc<dyn Store>, count: usize, slots: u32) -> Result<Duration> {
    Ok(process_within(store, count, slots, Duration::MAX).await?.1)
}

/// Runs a worker until `count` units are finished or `limit` has passed; returns the finished units and the
/// duration.
pub async fn process_within(
    store: &Arc<dyn Store>,
    count: usize,
    slots: u32,
    limit: Duration,
) -> Result<(usize, Duration)> {
    let worker = worker(store, slots)?;
    let (control, stats) = (worker.control(), worker.stats());
    let start = Instant::now();
    let mut result = None;
    let watch = async {
        // The counters change with each flush, so polling once per millisecond is exact enough.
        while stats.report().done < count as u64 && start.elapsed() < limit {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        result = Some((stats.report().done as usize, start.elapsed()));
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), watch);
    report?;
    let (done, took) = result.context("the worker ended early")?;
    Ok((done.min(count), took))
}

/// A worker with a handler that does nothing.
pub fn worker(store: &Arc<dyn Store>, slots: u32) -> Result<Worker> {
    let worker = Worker::builder(Arc::clone(store))
        .slots(slots)
        .handle_fn(noop()?, Policy::default(), |_: Context, _: serde::de::IgnoredAny| async {
            Ok::<(), String>(())
        })
        .build()?;
    Ok(worker)
}

/// Measures the time from before `send` to the handler's first line, one unit at a time.
pub async fn latencies(store: &Arc<dyn Store>, count: usize) -> Result<Vec<Duration>> {
    latencies_between(store, store, count).await
}

/// Measures it with separate stores for sender and worker, as on two machines.
pub async fn latencies_between(
    sender: &Arc<dyn Store>,
    worker: &Arc<dyn Store>,
    count: usize,
) -> Result<Vec<Duration>> {
    let (started, mut starts) = mpsc::unbounded_channel();
    let worker = Worker::builder(Arc::clone(worker))
        .slots(4)
        .handle_fn(noop()?, Policy::default(), move |_: Context, _: serde::de::IgnoredAny| {
            let _ = started.send(Instant::now());
            async { Ok::<(), String>(()) }
        })
        .build()?;
    let (control, client, kind) = (worker.control(), Client::new(Arc::clone(sender)), noop()?);
    let send = async {
        let mut times = Vec::with_capacity(count);
        for i in 0..count {
            // Long enough that the worker is idle again.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let before = Instant::now();
            client.send(NewUnit::new(kind.clone(), format!("{{\"i\":{i}}}").into_bytes())).await?;
            let at = starts.recv().await.context("the worker ended early")?;
            times.push(at.duration_since(before));
        }
        control.drain();
        anyhow::Ok(times)
    };
    let (report, times) = tokio::join!(worker.run(), send);
    report?;
    times
}
