//! Measures how the queues grow: units per second against one axis at a time, on SQLite and on PostgreSQL.
//!
//! `cargo run --profile dist -p bench-scale -- --budget 2h` runs all axes unattended, writes a CSV and an SVG per axis
//! and prints a verdict per curve. Points that do not fit into the budget are left out and named. `--once` runs
//! everything small, so that CI notices a broken benchmark.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its figures and progress")]

mod axis;
mod curve;
mod database;
mod measure;
mod processes;
mod run;
mod svg;
mod workload;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use axis::Axis;
use clap::{Parser, Subcommand, ValueEnum};
use curve::Curve;
use database::{Databases, StoreKind};
use measure::Sampling;

/// Options of the benchmark.
#[derive(Debug, Parser)]
struct Args {
    /// Measure only these axes (comma-separated).
    #[arg(long, value_delimiter = ',')]
    only: Vec<Axis>,
    /// Measure on this store.
    #[arg(long, default_value = "both")]
    store: StoreChoice,
    /// Leave out points above this.
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true)]
    max: usize,
    /// End the whole run after this time, as `90s`, `20m` or `2h`; points that do not fit are left out.
    #[arg(long, default_value = "20m", value_parser = duration)]
    budget: Duration,
    /// Stop processing a sample after this many seconds.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Send and process this many units per sample.
    #[arg(long, default_value_t = 30_000)]
    units: usize,
    /// Measure each point this many times and report the median.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Run the worker with this many slots.
    #[arg(long, default_value_t = 256)]
    slots: u32,
    /// Run each worker process of the axis `processes` with this many slots.
    #[arg(long, default_value_t = 64)]
    process_slots: u32,
    /// Write the CSV and SVG files into this folder [default: docs/img, with `--once` none].
    #[arg(long)]
    out: Option<PathBuf>,
    /// Create the databases in this folder, which must be on a real disk.
    #[arg(long, default_value = "target/bench")]
    dir: PathBuf,
    /// Run everything once and small, to check that it works.
    #[arg(long)]
    once: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

/// The stores that are measured.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum StoreChoice {
    /// One file.
    Sqlite,
    /// A private server.
    Postgres,
    /// One after the other.
    Both,
}

impl StoreChoice {
    fn kinds(self) -> &'static [StoreKind] {
        match self {
            Self::Sqlite => &[StoreKind::Sqlite],
            Self::Postgres => &[StoreKind::Postgres],
            Self::Both => &[StoreKind::Sqlite, StoreKind::Postgres],
        }
    }
}

/// What a child process does.
#[derive(Debug, Subcommand)]
enum Role {
    /// Works until its standard input ends.
    #[command(hide = true)]
    Worker(processes::WorkerProcess),
}

fn main() -> Result<()> {
    let mut args = Args::parse();
    let runtime = tokio::runtime::Runtime::new()?;
    if let Some(Role::Worker(worker)) = args.role {
        return runtime.block_on(worker.run());
    }
    if args.only.is_empty() {
        args.only = Axis::value_variants().to_vec();
    }
    if args.once {
        (args.units, args.rounds, args.seconds) = (100, 1, 5);
    } else {
        args.out.get_or_insert_with(|| PathBuf::from("docs/img"));
    }
    runtime.block_on(measure_all(&args))
}

async fn measure_all(args: &Args) -> Result<()> {
    std::fs::create_dir_all(&args.dir)?;
    let sampling = Sampling {
        units: args.units,
        slots: args.slots,
        process_slots: args.process_slots,
        limit: Duration::from_secs(args.seconds),
    };
    let mut databases = Vec::new();
    for store in args.store.kinds() {
        databases.push((*store, Databases::start(*store, &args.dir, args.once).await?));
    }
    let end = Instant::now() + args.budget;
    let weights = args.only.iter().flat_map(|axis| databases.iter().map(|_| axis.weight()));
    let mut weight_left: u32 = weights.sum();
    let (mut curves, mut failures) = (Vec::new(), Vec::new());
    for axis in &args.only {
        for (store, databases) in &databases {
            let share = end.saturating_duration_since(Instant::now()) * axis.weight() / weight_left.max(1);
            weight_left -= axis.weight();
            let settings = run::CurveSettings {
                points: if args.once { run::small_point(*axis) } else { axis.points(args.max) },
                rounds: args.rounds,
                sampling,
                deadline: Instant::now() + share,
            };
            let (points, failure) = run::curve(*axis, databases, &settings).await;
            failures.extend(failure.map(|error| format!("{} on {}: {error:#}", axis.name(), store.title())));
            curves.push(Curve { axis: *axis, store: *store, points });
        }
        write_files(args, *axis, &curves)?;
    }
    print_verdicts(args, &curves);
    match failures.is_empty() {
        true => Ok(()),
        false => bail!("not everything was measured:\n{}", failures.join("\n")),
    }
}

/// Writes the files of an axis as soon as it is measured, so that an interrupted run leaves what it has.
fn write_files(args: &Args, axis: Axis, curves: &[Curve]) -> Result<()> {
    let curves: Vec<&Curve> = curves.iter().filter(|curve| curve.axis == axis).collect();
    let (csv, svg) = (curve::csv(axis, &curves), svg::draw(axis, &curves));
    let Some(folder) = &args.out else { return Ok(()) };
    std::fs::create_dir_all(folder)?;
    for (ending, text) in [("csv", csv), ("svg", svg)] {
        let path = folder.join(format!("scale-{}.{ending}", axis.name()));
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// After `--once` the figures mean nothing: the runs are small, and it may be a debug build.
fn print_verdicts(args: &Args, curves: &[Curve]) {
    if args.once {
        for curve in curves {
            println!("ran: {} on {}", curve.axis.name(), curve.store.title());
        }
        return;
    }
    println!("{}", curve::heading());
    for curve in curves {
        for verdict in curve.measures().iter().filter_map(|measure| curve.verdict(*measure)) {
            println!("{verdict}");
        }
    }
    for curve in curves {
        if let Some(bytes) = curve.bytes_per_unit() {
            println!("{} on {}: {bytes:.0} bytes on disk per unit", curve.axis.name(), curve.store.title());
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.len() - text.chars().last().map_or(0, char::len_utf8));
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err("write a number and its unit, as `90s`, `20m` or `2h`".to_owned()),
    };
    number.parse().map(|number: u64| Duration::from_secs(number * seconds)).map_err(|error| error.to_string())
}
