//! Measures the lag of the event loop while a pool of eight workers sleeps and burns CPU.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures_util::future::try_join_all;
use longshore_pool::{PoolSettings, Program, WorkerPool};
use tokio::task::JoinSet;

use crate::figures::{Goal, median, percentile};
use crate::{Args, ours, say};

/// The numbers of sleeping and of CPU-bound calls.
const SLEEP: usize = 200;
const BURN: usize = 2;
/// The tick interval of the event loop.
const TICK: Duration = Duration::from_millis(1);

/// The load beside the event loop: our pools, or bare CPU-bound threads for comparison.
const BESIDE: [&str; 3] = ["threads", "processes", BURNERS];
const BURNERS: &str = "burners";

/// Measures all loads, alternating.
pub(crate) async fn measure(args: &Args) -> Result<Vec<Goal>> {
    if !args.wants("lag") {
        return Ok(Vec::new());
    }
    let mut all: HashMap<&str, Vec<f64>> = HashMap::new();
    for round in 0..args.rounds {
        for beside in BESIDE {
            say(&format!("event loop beside {beside}, round {} of {}", round + 1, args.rounds));
            all.entry(beside).or_default().push(once(args.seconds, beside).await?);
        }
    }
    let p99 = |beside: &str| all.get(beside).map_or(f64::NAN, |lags| median(lags));
    let goal = |beside: &&str| {
        let what = format!("event loop, ms late at p99, {SLEEP} sleep and {BURN} burn ({beside})");
        Goal::under(what, p99(beside), p99(BURNERS), 5.0)
    };
    Ok(BESIDE.iter().filter(|beside| **beside != BURNERS).map(goal).collect())
}

/// One run on a runtime thread, as for handlers.
async fn once(seconds: f64, beside: &'static str) -> Result<f64> {
    let mut task = JoinSet::new();
    let burn = Duration::from_secs_f64(seconds * 2.0);
    match beside {
        BURNERS => task.spawn(async move { Ok(late(burners(burn)).await) }),
        _ => {
            let pool = open(beside).await?;
            task.spawn(beside_pool(burn, pool))
        }
    };
    task.join_next().await.context("no task")??
}

async fn open(isolation: &str) -> Result<WorkerPool> {
    let settings = PoolSettings { min: 8, max: 8, queue: SLEEP + BURN, ..PoolSettings::default() };
    Ok(match isolation {
        "threads" => WorkerPool::threads("lag", ours::operations(), settings).await?,
        _ => WorkerPool::processes("lag", Program::this(), settings).await?,
    })
}

async fn beside_pool(burn: Duration, pool: WorkerPool) -> Result<f64> {
    let burn_ms = burn.as_millis() as u64;
    // Six calls sleep at a time, until the CPU-bound calls are done.
    let sleep_ms = burn_ms * 6 / SLEEP as u64;
    let burns = (0..BURN).map(|_| pool.call::<_, ()>("burn", &burn_ms));
    let sleeps = (0..SLEEP).map(|_| pool.call::<_, ()>("sleep", &sleep_ms));
    let mut done = Ok(Vec::new());
    let lag = late(async { done = try_join_all(burns.chain(sleeps)).await }).await;
    done?;
    Ok(lag)
}

/// As many CPU-bound threads, without a pool: the lag that this machine has anyway.
async fn burners(burn: Duration) {
    let (end, mut ended) = tokio::sync::mpsc::channel::<()>(1);
    for _ in 0..BURN {
        let end = end.clone();
        std::thread::spawn(move || {
            ours::burn(burn);
            drop(end);
        });
    }
    drop(end);
    ended.recv().await;
}

/// The 99th percentile of the tick delay in milliseconds, until `work` is done.
async fn late(work: impl Future<Output = ()>) -> f64 {
    tokio::pin!(work);
    let mut late = Vec::new();
    loop {
        let due = Instant::now() + TICK;
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(due.into()) => {
                late.push(due.elapsed().as_secs_f64() * 1e3);
            }
            () = &mut work => return percentile(&late, 99),
        }
    }
}
