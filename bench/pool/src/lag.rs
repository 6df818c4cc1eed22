//! How late the event loop is while a pool of eight sleeps and burns CPU, which is what a pool is for.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures_util::future::try_join_all;
use longshore_pool::{Program, Settings, WorkerPool};
use tokio::task::JoinSet;

use crate::figures::{Goal, median, percentile};
use crate::{Args, ours, say};

/// Calls that sleep, and calls that burn.
const SLEEP: usize = 200;
const BURN: usize = 2;
/// How often the loop should come by.
const TICK: Duration = Duration::from_millis(1);

/// Measures threads and processes.
pub(crate) async fn measure(args: &Args) -> Result<Vec<Goal>> {
    if !args.wants("lag") {
        return Ok(Vec::new());
    }
    let mut goals = Vec::new();
    for isolation in ["threads", "processes"] {
        let mut lags = Vec::new();
        for round in 0..args.rounds {
            say(&format!("event loop beside {isolation}, round {} of {}", round + 1, args.rounds));
            let (pool, seconds) = (open(isolation).await?, args.seconds);
            // On a thread of the runtime, where handlers run.
            let mut task = JoinSet::new();
            task.spawn(async move { p99(seconds, pool).await });
            lags.push(task.join_next().await.context("no task")???);
        }
        let what =
            format!("event loop, ms late at p99, {SLEEP} sleep and {BURN} burn ({isolation})");
        goals.push(Goal::under(what, median(&lags), 5.0));
    }
    Ok(goals)
}

async fn open(isolation: &str) -> Result<WorkerPool> {
    let settings = Settings { min: 8, max: 8, queue: SLEEP + BURN, ..Settings::default() };
    Ok(match isolation {
        "threads" => WorkerPool::threads("lag", ours::operations(), settings).await?,
        _ => WorkerPool::processes("lag", Program::this(), settings).await?,
    })
}

/// The 99th percentile of how late ticks came, in milliseconds, while the calls ran.
async fn p99(seconds: f64, pool: WorkerPool) -> Result<f64> {
    let burn_ms = (seconds * 2e3) as u64;
    let sleep_ms = burn_ms * 6 / SLEEP as u64;
    let burns = (0..BURN).map(|_| pool.call::<_, ()>("burn", &burn_ms));
    let sleeps = (0..SLEEP).map(|_| pool.call::<_, ()>("sleep", &sleep_ms));
    let calls = try_join_all(burns.chain(sleeps));
    tokio::pin!(calls);
    let mut late = Vec::new();
    loop {
        let due = Instant::now() + TICK;
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(due.into()) => {
                late.push(due.elapsed().as_secs_f64() * 1e3);
            }
            done = &mut calls => {
                done?;
                return Ok(percentile(&late, 99));
            }
        }
    }
}
