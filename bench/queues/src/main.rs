//! Measures the queues, compared with the limit: the same statements in a plain loop.
//!
//! `cargo run --profile dist -p bench-queues` prints one table. Runs are interleaved and the table shows
//! medians, since the speed of a disk varies: trust the ratios, not the rates. `--once` runs everything small,
//! so that CI notices a broken benchmark.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod child;
mod limit;
mod limit_pg;
mod peer;
mod postgres;

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use bench_queues::figures::{self, Row, median, percentile};
use bench_queues::ours;
use bench_queues::server::Server;
use clap::Parser;

/// Options of the benchmark.
#[derive(Debug, Parser)]
struct Args {
    /// Run this many units per run.
    #[arg(long, default_value_t = 100_000)]
    units: usize,
    /// Run each measurement this many times and report the median.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Run the worker with this many slots.
    #[arg(long, default_value_t = 256)]
    slots: u32,
    /// Run the smaller worker with this many slots.
    #[arg(long, default_value_t = 64)]
    few_slots: u32,
    /// Fill the deep queue with this many units.
    #[arg(long, default_value_t = 1_000_000)]
    deep: usize,
    /// Write this many ended units before the run with a history.
    #[arg(long, default_value_t = 5_000_000)]
    past: usize,
    /// Run everything once and small, to check that it works.
    #[arg(long)]
    once: bool,
    /// Run only sections with this in their name.
    #[arg(long, default_value = "")]
    only: String,
    /// Create the databases in this folder, which must be on a real disk.
    #[arg(long, default_value = "target/bench")]
    dir: std::path::PathBuf,
    #[command(subcommand)]
    child: Option<child::Child>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = Args::parse();
    if let Some(child) = args.child {
        return child.run().await;
    }
    if args.once {
        (args.units, args.rounds, args.deep, args.past) = (2_000, 1, 5_000, 5_000);
    }
    std::fs::create_dir_all(&args.dir)?;
    let mut rows = Vec::new();
    if "throughput".contains(&args.only) {
        rows.extend(throughput(&args).await?);
    }
    if "latency".contains(&args.only) {
        rows.push(latency(&args).await?);
    }
    if "depth".contains(&args.only) {
        rows.push(depth(&args).await?);
    }
    if "history".contains(&args.only) {
        rows.push(history(&args).await?);
    }
    if "rest".contains(&args.only) {
        rows.extend(rest(&args)?);
    }
    rows.extend(on_postgres(&args).await?);
    if args.once {
        figures::list(&rows);
    } else {
        figures::print(&rows);
    }
    Ok(())
}

/// Runs the sections on PostgreSQL; their names start with `pg-`.
async fn on_postgres(args: &Args) -> Result<Vec<Row>> {
    let names = ["pg-throughput", "pg-latency", "pg-depth", "pg-horizon", "pg-idle"];
    let wanted = |name: &str| name.contains(&args.only);
    let mut rows = Vec::new();
    if !names.into_iter().any(wanted) {
        return Ok(rows);
    }
    let server = Server::start().await?;
    if wanted("pg-throughput") {
        rows.extend(postgres::throughput(args, &server).await?);
    }
    if wanted("pg-latency") {
        rows.push(postgres::latency(args, &server).await?);
    }
    if wanted("pg-depth") {
        rows.extend(postgres::depth(args, &server).await?);
    }
    if wanted("pg-idle") {
        rows.push(postgres::idle(args, &server).await?);
    }
    if wanted("pg-horizon") {
        rows.push(postgres::horizon(args, &server).await?);
    }
    Ok(rows)
}

fn say(what: &str) {
    print!("{what} … \r");
    let _ = std::io::stdout().flush();
}

fn folder(args: &Args) -> Result<tempfile::TempDir> {
    Ok(tempfile::tempdir_in(&args.dir)?)
}

fn rate(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

/// Measures bulk send and processing, limit and ours alternating.
async fn throughput(args: &Args) -> Result<Vec<Row>> {
    let (mut limit_send, mut our_send) = (Vec::new(), Vec::new());
    let (mut limit_process, mut our_process, mut our_few) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..args.rounds {
        say(&format!("throughput, round {} of {}", round + 1, args.rounds));
        let (send, process) = limit_round(args)?;
        limit_send.push(send);
        limit_process.push(process);
        let (send, process) = our_round(args, args.slots).await?;
        our_send.push(send);
        our_process.push(process);
        our_few.push(our_round(args, args.few_slots).await?.1);
    }
    let limit = median(&limit_process);
    let name = |slots| format!("process with {slots} slots, units/s");
    Ok(vec![
        Row::ratio("bulk send, units/s", median(&our_send), median(&limit_send), 0.7),
        Row::ratio(&name(args.slots), median(&our_process), limit, 0.6),
        Row::ratio(&name(args.few_slots), median(&our_few), limit, 0.6),
    ])
}

fn limit_round(args: &Args) -> Result<(f64, f64)> {
    let folder = folder(args)?;
    drop(ours::open(folder.path())?);
    let db = limit::connect(&folder.path().join("bench.db"))?;
    let start = Instant::now();
    limit::send(&db, args.units)?;
    let send = rate(args.units, start.elapsed());
    let start = Instant::now();
    let done = limit::process(&db)?;
    Ok((send, rate(done, start.elapsed())))
}

async fn our_round(args: &Args, slots: u32) -> Result<(f64, f64)> {
    let folder = folder(args)?;
    let store = ours::open(folder.path())?;
    let start = Instant::now();
    ours::send(&store, args.units).await?;
    let send = rate(args.units, start.elapsed());
    let took = ours::process(&store, args.units, slots).await?;
    Ok((send, rate(args.units, took)))
}

/// Measures a single unit on an idle system, compared with two fsyncs.
async fn latency(args: &Args) -> Result<Row> {
    let count = if args.once { 5 } else { 200 };
    let folder = folder(args)?;
    let store = ours::open(folder.path())?;
    say("latency");
    let floor_before = two_fsyncs(folder.path(), count)?;
    let times = ours::latencies(&store, count).await?;
    let floor_after = two_fsyncs(folder.path(), count)?;
    let floor = (percentile(&floor_before, 50) + percentile(&floor_after, 50)) / 2.0;
    let ours: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    Ok(Row::within(
        "send to handler start, ms p50 (over two fsyncs)",
        percentile(&ours, 50),
        floor,
        floor + 0.5,
    ))
}

fn two_fsyncs(folder: &Path, count: usize) -> Result<Vec<f64>> {
    let mut file = std::fs::File::create(folder.join("floor"))?;
    (0..count)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..2 {
                file.write_all(&[7; 4096])?;
                file.sync_data()?;
            }
            Ok(start.elapsed().as_secs_f64() * 1e3)
        })
        .collect()
}

/// Measures the same work with a short and with a deep queue.
async fn depth(args: &Args) -> Result<Row> {
    let stretch = if args.once { 1_000 } else { 10_000 };
    let (mut shallow, mut deep) = (Vec::new(), Vec::new());
    say("depth: filling");
    let (few, many) = (folder(args)?, folder(args)?);
    // A draining worker finishes a few more units than were timed.
    fill(few.path(), stretch * (args.rounds + 1) * 2)?;
    fill(many.path(), args.deep)?;
    for _ in 0..args.rounds {
        shallow.push(stretch_rate(few.path(), stretch, args.slots).await?);
        deep.push(stretch_rate(many.path(), stretch, args.slots).await?);
    }
    let name = format!("process with {} waiting, units/s (over {stretch})", args.deep);
    Ok(Row::ratio(&name, median(&deep), median(&shallow), 0.8))
}

fn fill(folder: &Path, count: usize) -> Result<()> {
    drop(ours::open(folder)?);
    limit::send(&limit::connect(&folder.join("bench.db"))?, count)
}

async fn stretch_rate(folder: &Path, count: usize, slots: u32) -> Result<f64> {
    let store = ours::open(folder)?;
    let took = ours::process(&store, count, slots).await?;
    Ok(rate(count, took))
}

/// Measures the same work in a store with a long history.
async fn history(args: &Args) -> Result<Row> {
    say("history: writing the past");
    let (fresh, old) = (folder(args)?, folder(args)?);
    drop(ours::open(fresh.path())?);
    drop(ours::open(old.path())?);
    limit::past(&limit::connect(&old.path().join("bench.db"))?, args.past)?;
    let (mut young, mut aged) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        for (folder, rates) in [(&fresh, &mut young), (&old, &mut aged)] {
            let store = ours::open(folder.path())?;
            ours::send(&store, args.units / 4).await?;
            let took = ours::process(&store, args.units / 4, args.slots).await?;
            rates.push(rate(args.units / 4, took));
        }
    }
    let name = format!("process after {} ended, units/s (over none)", args.past);
    Ok(Row::ratio(&name, median(&aged), median(&young), 0.95))
}

/// Measures the CPU time of an idle worker, and the memory of sending a stream.
fn rest(args: &Args) -> Result<Vec<Row>> {
    say("at rest");
    let seconds = if args.once { 1 } else { 10 };
    let idle = child::spawn(&["idle", &seconds.to_string()], folder(args)?.path())?;
    let count = if args.once { 5_000 } else { 1_000_000 };
    let stream = child::spawn(&["stream", &count.to_string()], folder(args)?.path())?;
    Ok(vec![
        Row::most("idle worker, % of a core", idle.cpu_percent, 1.0),
        Row::most("worker at rest, MB", idle.megabytes, 30.0),
        Row::most(&format!("sending {count} units as a stream, MB at peak"), stream.megabytes, 100.0),
    ])
}
