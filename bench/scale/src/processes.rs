//! Several worker processes on one store.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bench_queues::ours;
use clap::Args;
use longshore::store::Queues;
use longshore::{Scope, Store};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::database::{Database, StoreKind, open_location};
use crate::measure::Sampling;

/// How often the number of live units is read.
const POLL: Duration = Duration::from_millis(5);

/// Options of a worker process.
#[derive(Debug, Args)]
pub(crate) struct WorkerProcess {
    /// Open this kind of store.
    #[arg(long)]
    kind: StoreKind,
    /// Open the database in this folder or at this URL.
    #[arg(long)]
    location: String,
    /// Run with this many slots.
    #[arg(long)]
    slots: u32,
}

impl WorkerProcess {
    /// Opens the store, prints a line, starts to work at the first byte of stdin and drains at its end.
    pub(crate) async fn run(self) -> Result<()> {
        let store = open_location(self.kind, &self.location).await?;
        let worker = ours::worker(&store, self.slots)?;
        let (control, mut stdin) = (worker.control(), tokio::io::stdin());
        println!("ready");
        stdin.read_u8().await?;
        let wait_for_end = async {
            let result = stdin.read_to_end(&mut Vec::new()).await;
            control.drain();
            result
        };
        let (report, end) = tokio::join!(worker.run(), wait_for_end);
        report?;
        end?;
        Ok(())
    }
}

/// Lets `count` processes work on `units` units. Returns the units between the first and the last tenth, and the
/// time for them: neither starting nor the last few units count.
pub(crate) async fn run(
    database: &Database,
    store: &Arc<dyn Store>,
    count: usize,
    units: usize,
    sampling: Sampling,
) -> Result<(usize, Duration)> {
    let mut processes = Vec::with_capacity(count);
    for _ in 0..count {
        processes.push(start(database, sampling.process_slots)?);
    }
    let mut inputs: Vec<ChildStdin> = Vec::with_capacity(count);
    for process in &mut processes {
        let mut line = String::new();
        BufReader::new(process.stdout.take().context("no stdout")?).read_line(&mut line).await?;
        ensure!(line == "ready\n", "a worker process did not start");
        inputs.push(process.stdin.take().context("no stdin")?);
    }
    for input in &mut inputs {
        input.write_all(b"\n").await?;
    }
    let result = watch(store, units, sampling.limit).await;
    drop(inputs);
    for mut process in processes {
        ensure!(process.wait().await?.success(), "a worker process failed");
    }
    result
}

async fn watch(store: &Arc<dyn Store>, units: usize, limit: Duration) -> Result<(usize, Duration)> {
    let start = Instant::now();
    let mut first = (units, start);
    loop {
        let live = store.totals(&Scope::All, &Queues::All).await?.counts.live() as usize;
        let now = Instant::now();
        if live <= units / 10 || now - start >= limit {
            return Ok((first.0 - live, now - first.1));
        }
        if live > units - units / 10 {
            first = (live, now);
        }
        tokio::time::sleep(POLL).await;
    }
}

fn start(database: &Database, slots: u32) -> Result<Child> {
    let (kind, location) = database.location();
    Ok(Command::new(std::env::current_exe()?)
        .args(["worker", "--kind", kind.name(), "--location", &location, "--slots", &slots.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?)
}
