//! Measures a new process per call, compared with starting the same program and waiting for its end.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, ensure};
use longshore_pool::{PoolSettings, Program, ResourceLimits, WorkerPool};

use crate::figures::{Goal, Measured, median};
use crate::{Args, raw, say};

/// Measures both, alternating.
pub(crate) async fn compare(args: &Args) -> Result<Vec<Goal>> {
    if !args.wants("one-shot") {
        return Ok(Vec::new());
    }
    let (mut ours, mut raw) = (Measured::default(), Measured::default());
    for round in 0..args.rounds {
        say(&format!("one process per call, round {} of {}", round + 1, args.rounds));
        raw.push(spawned(args)?);
        ours.push(called(args).await?);
    }
    let what = "one process per call, ms, over starting it and waiting for its end";
    Ok(vec![Goal::shown(what, ours.median(), raw.median())])
}

/// Starts this program in a role that ends immediately and waits for it; returns the median in milliseconds.
fn spawned(args: &Args) -> Result<f64> {
    let (mut times, begun) = (Vec::new(), Instant::now());
    while begun.elapsed() < args.part() {
        let start = Instant::now();
        let mut child = Command::new("/proc/self/exe")
            .arg(raw::CHILD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        ensure!(child.wait()?.success(), "the child failed");
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(&times))
}

async fn called(args: &Args) -> Result<f64> {
    let settings = PoolSettings { max: 2, ..PoolSettings::default() };
    let pool = WorkerPool::one_shot("fresh", Program::this(), ResourceLimits::default(), settings).await?;
    let (mut times, begun) = (Vec::new(), Instant::now());
    while begun.elapsed() < args.part() {
        let start = Instant::now();
        pool.call::<_, ()>("noop", &()).await?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(&times))
}
