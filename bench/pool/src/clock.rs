//! The two measurements for contestants in this process: one call at a time, and many calls in flight.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::task::JoinSet;

use crate::figures::median;

/// Concurrent callers of the second measurement.
pub(crate) const WIDTH: usize = 32;

/// The measurements of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// The median of the calls that were made one at a time, in microseconds.
    pub(crate) p50: f64,
    /// Calls per second with [`WIDTH`] in flight.
    pub(crate) rate: f64,
}

/// Which of the two measurements to run, and for how long each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ways {
    pub(crate) part: Duration,
    pub(crate) only: Option<Way>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// One call at a time.
    One,
    /// Many in flight.
    Many,
}

impl Ways {
    /// Measures after a warm-up.
    pub(crate) async fn measure(self, caller: impl Caller) -> Result<Sample> {
        let Self { part, only } = self;
        in_flight(part / 4, &caller).await?;
        let mut sample = Sample { p50: f64::NAN, rate: f64::NAN };
        if only != Some(Way::Many) {
            sample.p50 = one_at_a_time(part, &caller).await?;
        }
        if only != Some(Way::One) {
            sample.rate = in_flight(part, &caller).await?;
        }
        Ok(sample)
    }
}

/// A caller; each clone is another caller.
pub(crate) trait Caller: Clone + Send + Sync + 'static {
    /// Makes one call and waits for it.
    fn call(&self) -> impl Future<Output = Result<()>> + Send;
}

/// Makes one call after the other from one task; returns the median in microseconds.
pub(crate) async fn one_at_a_time(part: Duration, caller: &impl Caller) -> Result<f64> {
    let caller = caller.clone();
    let mut task = JoinSet::new();
    // On a runtime thread, as for tasks; not on the thread that blocks on the result.
    task.spawn(async move {
        let (mut times, begun) = (Vec::new(), Instant::now());
        let mut last = begun;
        while last.duration_since(begun) < part {
            caller.call().await?;
            let now = Instant::now();
            times.push(now.duration_since(last).as_secs_f64() * 1e6);
            last = now;
        }
        anyhow::Ok(median(&times))
    });
    task.join_next().await.context("no task")??
}

/// Makes calls from [`WIDTH`] tasks; returns calls per second.
async fn in_flight(part: Duration, caller: &impl Caller) -> Result<f64> {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..WIDTH {
        let caller = caller.clone();
        tasks.spawn(async move {
            let mut calls = 0_u64;
            while begun.elapsed() < part {
                caller.call().await?;
                calls += 1;
            }
            anyhow::Ok(calls)
        });
    }
    let mut calls = 0;
    while let Some(done) = tasks.join_next().await {
        calls += done??;
    }
    Ok(calls as f64 / begun.elapsed().as_secs_f64())
}
