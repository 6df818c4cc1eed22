//! Measures a batch of rows: each row is prepared, sent to the model, checkpointed and applied.
//!
//! `cargo run --profile dist -p bench-batch` prints one table. Compared runs alternate, and the table shows
//! medians with minimum and maximum: trust the ratios, not the rates. `--once` runs everything small, so that
//! CI notices a broken benchmark.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod child;
mod figures;
mod models;
mod ours;
mod peer;
mod rows;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Parser;
use figures::{Measured, Row};
use longshore_ai::Provider;
use models::{Immediate, Paced};
use ours::Review;

/// The time of the paced model per request.
const PACE: Duration = Duration::from_millis(50);
/// Concurrency of the paced batch, of the smaller instant batch, and of the script.
const WORKERS: u32 = 64;

/// Options of the benchmark.
#[derive(Debug, Parser)]
struct Args {
    /// Review this many rows per run with the instant model.
    #[arg(long, default_value_t = 30_000)]
    rows: u64,
    /// Review this many rows per run with the model that takes 50 ms.
    #[arg(long, default_value_t = 6_000)]
    paced_rows: u64,
    /// Review this many rows per run of the Python script.
    #[arg(long, default_value_t = 10_000)]
    python_rows: u64,
    /// Run each measurement this many times and report the median.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Run the larger batch with the instant model with this concurrency.
    #[arg(long, default_value_t = 256)]
    many: u32,
    /// Measure the memory of batches with these numbers of rows, in ascending order.
    #[arg(long, value_delimiter = ',', default_value = "1000,100000,1000000")]
    candidates: Vec<u64>,
    /// Run everything once and small, to check that it works.
    #[arg(long)]
    once: bool,
    /// Run only parts with this in their name: paced, instant, python, memory.
    #[arg(long, default_value = "")]
    only: String,
    /// Create the databases in this folder, which must be on a real disk.
    #[arg(long, default_value = "target/bench")]
    dir: PathBuf,
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
        (args.rows, args.paced_rows, args.python_rows, args.rounds) = (500, 256, 100, 1);
        args.candidates = vec![100, 500, 1_000];
    }
    std::fs::create_dir_all(&args.dir)?;
    let mut rows = Vec::new();
    if args.wants("paced") {
        rows.push(paced(&args).await?);
    }
    if args.wants("instant") || args.wants("python") {
        rows.extend(instant(&args).await?);
    }
    if args.wants("memory") {
        rows.extend(memory(&args)?);
    }
    if args.once {
        figures::list(&rows);
        return Ok(());
    }
    println!("rounds: {} (memory: 1); medians, and the least and the most beside them", args.rounds);
    figures::print(&rows);
    Ok(())
}

impl Args {
    fn wants(&self, part: &str) -> bool {
        part.contains(&self.only)
    }

    fn folder(&self) -> Result<tempfile::TempDir> {
        Ok(tempfile::tempdir_in(&self.dir)?)
    }

    /// Runs one batch in a new folder; returns rows/s.
    async fn rate(&self, rows: u64, workers: u32, model: &Arc<dyn Provider>) -> Result<f64> {
        let folder = self.folder()?;
        rows::create(&rows::database(folder.path()), rows)?;
        let review = Review { folder: folder.path(), rows, workers, model: Arc::clone(model) };
        Ok(per_second(rows, review.run().await?))
    }
}

fn say(what: &str, round: usize, rounds: usize) {
    print!("{what}, round {} of {rounds} … \r", round + 1);
    let _ = std::io::stdout().flush();
}

fn per_second(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

/// Compares with the rate at which only the model takes time.
async fn paced(args: &Args) -> Result<Row> {
    let model: Arc<dyn Provider> = Arc::new(Paced::new(PACE)?);
    let mut rates = Measured::default();
    for round in 0..args.rounds {
        say("paced", round, args.rounds);
        rates.push(args.rate(args.paced_rows, WORKERS, &model).await?);
    }
    let ideal = f64::from(WORKERS) / PACE.as_secs_f64();
    let name = format!("model of {PACE:?}, {WORKERS} workers, rows/s (ideal)");
    Ok(Row::ratio(&name, rates, Measured::known(ideal), 0.95))
}

/// Compares our own time with that of the script, alternating on the same disk.
async fn instant(args: &Args) -> Result<Vec<Row>> {
    let model: Arc<dyn Provider> = Arc::new(Immediate);
    let (mut few, mut many) = (Measured::default(), Measured::default());
    let mut python = Measured::default();
    let peer = args.wants("python") && has_python(args)?;
    for round in 0..args.rounds {
        say("instant", round, args.rounds);
        few.push(args.rate(args.rows, WORKERS, &model).await?);
        if args.wants("instant") {
            many.push(args.rate(args.rows, args.many, &model).await?);
        }
        if peer {
            python.push(peer::rate(args.folder()?.path(), args.python_rows, WORKERS)?);
        }
    }
    let name = |workers| format!("instant model, {workers} workers, rows/s");
    let mut rows = Vec::new();
    if args.wants("instant") {
        rows.push(Row::least(&name(WORKERS), few.clone(), 3_000.0));
        rows.push(Row::least(&name(args.many), many, 3_000.0));
    }
    if peer {
        let name = format!("instant model, {WORKERS} workers, rows/s (Python, {WORKERS} threads)");
        rows.push(Row::ratio(&name, few, python, 3.0));
    }
    Ok(rows)
}

fn has_python(args: &Args) -> Result<bool> {
    match peer::is_there() {
        true => Ok(true),
        false if args.once => {
            println!("python3 is not here: its part is left out");
            Ok(false)
        }
        false => bail!("python3 is not here; --only leaves its part out"),
    }
}

/// Measures a whole batch, initiator and workers, in its own process.
fn memory(args: &Args) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut peaks = Vec::new();
    for (at, count) in args.candidates.iter().enumerate() {
        say("memory", at, args.candidates.len());
        let folder = args.folder()?;
        rows::create(&rows::database(folder.path()), *count)?;
        let peak = child::peak(folder.path(), *count, WORKERS)?;
        rows.push(Row::most(&format!("{count} candidates, MB at peak"), peak, 150.0));
        peaks.push(peak);
    }
    // The smallest batch does not fill the buffers; with larger batches memory may not grow.
    if let [.., before, last] = peaks[..] {
        rows.push(Row::flat("the most candidates, MB at peak (the second most)", last, before));
    }
    Ok(rows)
}
