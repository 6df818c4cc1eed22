//! `bench`: measures this machine with this store. A quick look, not a comparison.
//!
//! Everything runs in one process on a temporary store beside the configured one, so that the disk
//! is the right one: bulk sends, processing with an empty handler, the latency of a single unit
//! from `send` to its handler, and the CPU use of an idle worker.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use longshore::{
    Client, Context, Kind, NewUnit, Policy, Store, WhenFull, Worker, WorkerControl, WorkerError,
};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::args::chaos_bench::BenchArgs;
use crate::exit::ExitCode;
use crate::output::{Table, right};
use crate::settings::Settings;
use crate::store::{ScratchDatabase, StoreUrl, open_any};

const CHUNK_UNITS: u64 = 1000;
const SINGLE_UNITS: u32 = 200;
const IDLE_TIME: Duration = Duration::from_secs(2);

/// The measurements.
#[derive(Debug, Default, Serialize)]
struct BenchReport {
    store: String,
    synchronous: String,
    units: u64,
    slots: u32,
    send_per_second: f64,
    process_per_second: f64,
    start_p50_ms: f64,
    start_p99_ms: f64,
    idle_cpu_percent: Option<f64>,
    memory_mib: Option<f64>,
}

/// Runs the command.
pub async fn run(typed: BenchArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let (own, bench_store) = BenchStore::make(settings).await?;
    let store = open_any(&own.store, &own).await?;
    let bar = settings.output.bar("{spinner} {msg}");
    let mut measured = BenchReport {
        store: settings.store.to_string(),
        synchronous: format!("{:?}", settings.synchronous).to_lowercase(),
        units: typed.units,
        slots: typed.slots,
        ..BenchReport::default()
    };
    bar.set_message("sending");
    measured.send_per_second = send(&store, typed.units).await?;
    bar.set_message("processing");
    measured.process_per_second = process(&store, &typed).await?;
    bar.set_message("one at a time, then idling");
    measure_single(&store, &typed, &mut measured).await?;
    bar.finish_and_clear();
    drop(store);
    bench_store.remove().await?;
    settings.output.record(&measured, || table(&measured))?;
    Ok(ExitCode::Good)
}

/// The temporary store.
enum BenchStore {
    Memory,
    /// On the same disk as the configured store.
    File(tempfile::TempDir),
    /// On the same server.
    Database(ScratchDatabase),
}

impl BenchStore {
    /// Creates it, and the settings that name it.
    async fn make(settings: &Settings) -> anyhow::Result<(Settings, Self)> {
        match &settings.store {
            StoreUrl::Memory => Ok((settings.clone(), Self::Memory)),
            StoreUrl::Sqlite(path) => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let beside = parent.unwrap_or(Path::new("."));
                let dir = tempfile::Builder::new().prefix(".longshore-bench").tempdir_in(beside);
                let dir = dir.with_context(|| format!("cannot make a directory in {}", beside.display()))?;
                let store = StoreUrl::Sqlite(dir.path().join("bench.db"));
                Ok((Settings { store, ..settings.clone() }, Self::File(dir)))
            }
            StoreUrl::Postgres(server) => {
                let scratch = ScratchDatabase::make(server).await?;
                Ok((scratch.settings(settings), Self::Database(scratch)))
            }
        }
    }

    async fn remove(self) -> anyhow::Result<()> {
        match self {
            Self::Memory => Ok(()),
            Self::File(dir) => dir.close().context("cannot remove the temporary store"),
            Self::Database(scratch) => scratch.drop().await,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
async fn send(store: &Arc<dyn Store>, units: u64) -> anyhow::Result<f64> {
    let (client, kind, began) = (Client::new(store.clone()), kind()?, Instant::now());
    let mut left = units;
    while left > 0 {
        let count = left.min(CHUNK_UNITS);
        let chunk = (0..count).map(|n| NewUnit::new(kind.clone(), serde_json::json!({ "n": n })));
        client.send_many(chunk.collect(), WhenFull::Wait).await?;
        left -= count;
    }
    Ok(units as f64 / began.elapsed().as_secs_f64())
}

/// Measured until the last handler ran: the worker's check for idleness afterwards is not counted.
#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
async fn process(store: &Arc<dyn Store>, typed: &BenchArgs) -> anyhow::Result<f64> {
    let (began, last) = (Instant::now(), Arc::new(AtomicU64::new(1)));
    let clock = Arc::clone(&last);
    let handler = move |_: Context, _: serde_json::Value| {
        let passed = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        clock.fetch_max(passed, Ordering::Relaxed);
        async { Ok::<(), String>(()) }
    };
    let worker = Worker::builder(store.clone())
        .slots(typed.slots)
        .handle_fn(kind()?, Policy::default(), handler)
        .until_idle(true)
        .build()?;
    let report = worker.run().await?;
    Ok(report.done as f64 * 1e9 / last.load(Ordering::Relaxed) as f64)
}

/// Measures single units on an idle worker, then the idle worker itself.
async fn measure_single(
    store: &Arc<dyn Store>,
    typed: &BenchArgs,
    measured: &mut BenchReport,
) -> anyhow::Result<()> {
    let (started, mut starts) = mpsc::unbounded_channel();
    let handler = move |_: Context, _: serde_json::Value| {
        let sent_time = started.send(Instant::now()).map_err(|error| error.to_string());
        async move { sent_time }
    };
    let worker = Worker::builder(store.clone())
        .slots(typed.slots)
        .handle_fn(kind()?, Policy::default(), handler)
        .build()?;
    let control = worker.control();
    let mut tasks = JoinSet::new();
    tasks.spawn(worker.run());
    let client = Client::new(store.clone());
    let mut waits = Vec::new();
    for _ in 0..SINGLE_UNITS {
        let sent = Instant::now();
        client.send(NewUnit::new(kind()?, serde_json::json!(null))).await?;
        let start = starts.recv().await.context("the worker ended")?;
        waits.push(start.saturating_duration_since(sent).as_secs_f64() * 1e3);
        // The worker is idle again before the next unit.
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    waits.sort_by(f64::total_cmp);
    measured.start_p50_ms = waits[waits.len() / 2];
    measured.start_p99_ms = waits[waits.len() * 99 / 100];
    let before = cpu_seconds();
    tokio::time::sleep(IDLE_TIME).await;
    measured.idle_cpu_percent =
        before.zip(cpu_seconds()).map(|(before, after)| (after - before) / IDLE_TIME.as_secs_f64() * 100.0);
    measured.memory_mib = memory_mib();
    shut_down(&control, tasks).await
}

async fn shut_down(
    control: &WorkerControl,
    mut tasks: JoinSet<Result<longshore::WorkerReport, WorkerError>>,
) -> anyhow::Result<()> {
    control.drain();
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

fn kind() -> anyhow::Result<Kind> {
    Ok(Kind::new("bench")?)
}

/// Processor time of this process' threads so far; Linux only.
fn cpu_seconds() -> Option<f64> {
    let mut nanos = 0.0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        // A thread may have ended since it was listed.
        let stat = std::fs::read_to_string(task.ok()?.path().join("schedstat")).unwrap_or_default();
        nanos += stat.split(' ').next()?.parse::<f64>().unwrap_or(0.0);
    }
    Some(nanos / 1e9)
}

fn memory_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
}

fn table(measured: &BenchReport) -> Table {
    let mut table = Table::record();
    let mut row = |name: &str, value: String, unit: &str| {
        table.row([crate::output::cell(name), right(value), crate::output::cell(unit)]);
    };
    row("store", measured.store.clone(), "");
    row("synchronous", measured.synchronous.clone(), "");
    row("bulk send", format!("{:.0}", measured.send_per_second), "units/s");
    row("process", format!("{:.0}", measured.process_per_second), "units/s");
    row("send to start, p50", format!("{:.2}", measured.start_p50_ms), "ms");
    row("send to start, p99", format!("{:.2}", measured.start_p99_ms), "ms");
    if let Some(idle) = measured.idle_cpu_percent {
        row("idle worker", format!("{idle:.1}"), "% of a core");
    }
    if let Some(memory) = measured.memory_mib {
        row("memory", format!("{memory:.0}"), "MiB");
    }
    table
}
