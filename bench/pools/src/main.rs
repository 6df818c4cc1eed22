//! How fast bounded pools are in memory, in a SQLite file and on PostgreSQL: taking a permit and giving it
//! back, through `BoundedPool`, as programs do. (Redis has a benchmark of its own.)
//!
//! `cargo run --profile dist -p bench-pools` shows the median of several rounds. `--once` runs everything
//! small, so that the benchmark cannot rot unseen.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use longshore::{BoundedPool, MemoryPermits, Permits, PoolName};
use longshore_postgres::{PostgresOptions, PostgresStore};
use longshore_sqlite::{SqliteOptions, SqliteStore};
use longshore_testkit::servers::PrivatePostgres;
use tokio::task::JoinSet;

/// What to measure, and how much of it.
#[derive(Debug, Parser)]
struct Args {
    /// Runs of each; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each run.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Only in memory.
    #[arg(long)]
    memory: bool,
    /// Everything once and small: only to see that it works.
    #[arg(long)]
    once: bool,
}

/// Tasks, and permits for them.
const LOADS: [(u32, u32); 4] = [(1, 64), (2, 64), (32, 64), (32, 4)];
/// Pairs between two looks at the clock.
const GROUP: u32 = 16;

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = Args::parse();
    if args.once {
        (args.rounds, args.seconds) = (1, 0.05);
    }
    let folder = tempfile::tempdir()?;
    let mut ends: Vec<(&str, Arc<dyn Permits>)> =
        vec![("memory", Arc::new(MemoryPermits::default()))];
    let mut server = None;
    if !args.memory {
        let file = folder.path().join("bench.db");
        ends.push(("SQLite", Arc::new(SqliteStore::open(&file, SqliteOptions::default())?)));
        let started = tokio::task::spawn_blocking(PrivatePostgres::start).await??;
        let url = server.insert(started).url();
        let store = PostgresStore::open(&url, PostgresOptions::default()).await?;
        ends.push(("PostgreSQL", Arc::new(store)));
    }
    for (tasks, permits) in LOADS {
        println!("{tasks} tasks on {permits} permits");
        for (name, end) in &ends {
            let mut rates = Vec::new();
            for _ in 0..args.rounds {
                let pool = PoolName::new(format!("bench-{tasks}-{permits}"))?;
                let pool = BoundedPool::builder(Arc::clone(end), pool, permits).build();
                rates.push(run(&pool, tasks, args.seconds).await?);
            }
            rates.sort_unstable_by(f64::total_cmp);
            let rate = rates[rates.len() / 2];
            let each = f64::from(tasks) / rate * 1e6;
            println!("  {name:<12} {rate:>10.0} pairs/s   {each:>9.2} us each");
        }
    }
    Ok(())
}

/// Pairs a second of so many tasks.
async fn run(pool: &BoundedPool, tasks: u32, seconds: f64) -> Result<f64> {
    let began = Instant::now();
    let until = began + Duration::from_secs_f64(seconds);
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let pool = pool.clone();
        running.spawn(async move {
            let mut pairs = 0_u32;
            while Instant::now() < until {
                for _ in 0..GROUP {
                    drop(pool.acquire().await?);
                }
                pairs += GROUP;
                // Others want to run too.
                tokio::task::yield_now().await;
            }
            anyhow::Ok(pairs)
        });
    }
    let mut pairs = 0;
    while let Some(done) = running.join_next().await {
        pairs += done??;
    }
    pool.settle().await;
    Ok(f64::from(pairs) / began.elapsed().as_secs_f64())
}
