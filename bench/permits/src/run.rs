//! The contestants, and one run of a contestant.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use async_trait::async_trait;
use tokio::task::JoinSet;

use crate::figures::Figures;

/// Tasks that share permits.
pub(crate) struct Load {
    pub(crate) tasks: u32,
    pub(crate) permits: u32,
    pub(crate) name: &'static str,
}

/// A contestant of the benchmark.
#[async_trait]
pub(crate) trait Contestant: Send + Sync {
    fn name(&self) -> &'static str;

    /// Runs for this many seconds.
    async fn run(&self, load: &Load, seconds: f64) -> Result<Figures>;
}

/// The repeated operation of a task: acquires a permit and releases it.
#[async_trait]
pub(crate) trait Pair: Send + Sync + 'static {
    async fn pair(&self) -> Result<()>;
}

/// Runs the pairs of all tasks until the time is over.
pub(crate) async fn measure(pairs: Vec<Arc<dyn Pair>>, seconds: f64) -> Result<Figures> {
    let mut tasks = JoinSet::new();
    let began = Instant::now();
    let until = began + Duration::from_secs_f64(seconds);
    for pair in pairs {
        tasks.spawn(async move {
            let mut took = Vec::new();
            let mut now = Instant::now();
            while now < until {
                pair.pair().await?;
                let then = std::mem::replace(&mut now, Instant::now());
                took.push(now - then);
            }
            anyhow::Ok(took)
        });
    }
    let mut all = Vec::new();
    while let Some(took) = tasks.join_next().await {
        all.append(&mut took??);
    }
    Ok(Figures::of(all, began.elapsed()))
}
