//! Pools in memory, in a SQLite file and on PostgreSQL: acquire and release through `BoundedPool`, as in programs.
//! On PostgreSQL beside pgbench, with a client for each task. Its clients do not wait for permits: it always has 64.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use longshore::{BoundedPool, MemoryPermits, Permits, PoolName};
use longshore_postgres::{PostgresOptions, PostgresStore};
use longshore_sqlite::{SqliteOptions, SqliteStore};
use longshore_testkit::servers::PrivatePostgres;
use tokio::task::{JoinSet, block_in_place};

use crate::pgbench;

/// The numbers of tasks and of permits.
const LOADS: [(u32, u32); 4] = [(1, 64), (2, 64), (32, 64), (32, 4)];
/// Pairs between two clock reads.
const GROUP: u32 = 16;

/// Prints pairs per second of each store, medians of `rounds` runs.
pub(crate) async fn measure(rounds: usize, seconds: f64) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = SqliteStore::open(&folder.path().join("bench.db"), SqliteOptions::default())?;
    let server = tokio::task::spawn_blocking(PrivatePostgres::start).await??;
    let postgres = PostgresStore::open(&server.url(), PostgresOptions::default()).await?;
    let ends: [(&str, Arc<dyn Permits>); 3] = [
        ("memory", Arc::new(MemoryPermits::default())),
        ("SQLite", Arc::new(file)),
        ("PostgreSQL", Arc::new(postgres)),
    ];
    for (tasks, permits) in LOADS {
        println!("\n{tasks} tasks on {permits} permits, through BoundedPool");
        let mut limits = Vec::new();
        for (name, end) in &ends {
            let mut rates = Vec::new();
            for _ in 0..rounds {
                if *name == "PostgreSQL" {
                    limits.push(block_in_place(|| pgbench::run(&server, tasks, seconds))?);
                }
                let pool = PoolName::new(format!("bench-{tasks}-{permits}"))?;
                let pool = BoundedPool::builder(Arc::clone(end), pool, permits).build();
                rates.push(run(&pool, tasks, seconds).await?);
            }
            let rate = median(rates);
            let each = f64::from(tasks) / rate * 1e6;
            print!("  {name:<12} {rate:>10.0} pairs/s   {each:>9.2} us each");
            if *name == "PostgreSQL" {
                let limit = median(std::mem::take(&mut limits));
                print!("   {:.2} of pgbench ({limit:.0} pairs/s)", rate / limit);
            }
            println!();
        }
    }
    Ok(())
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Measures pairs per second with this many tasks.
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
                // Lets the other tasks run.
                tokio::task::yield_now().await;
            }
            anyhow::Ok(pairs)
        });
    }
    let mut pairs = 0;
    while let Some(done) = running.join_next().await {
        pairs += done??;
    }
    pool.flush().await;
    Ok(f64::from(pairs) / began.elapsed().as_secs_f64())
}
