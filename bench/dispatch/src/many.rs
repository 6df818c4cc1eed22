//! A thousand workers of eight threads, and a million scripts that wait.

use std::time::{Duration, Instant};

use anyhow::Result;
use longshore::{BatchId, UnitId};
use longshore_dispatch::request::Request;

use crate::floor::ScriptFolder;
use crate::ours::{Pool, array};

/// Eight thousand threads, of which each script takes one for this long: a little more than ten thousand
/// a second.
const TAKES: u64 = 750;
/// How long the pool is watched.
const WATCHED: Duration = Duration::from_secs(15);

/// What was seen.
pub(crate) struct Many {
    workers: usize,
    waiting: u64,
    rate: f64,
    cpu: f64,
    memory_mb: f64,
}

pub(crate) fn run(waiting: u64, once: bool) -> Result<Many> {
    let workers = if once { 5 } else { 1000 };
    let place = ScriptFolder::new(1)?;
    let pool = Pool::start(workers, 8, Some(TAKES))?;
    let batch = BatchId::new(format!("many-{}", UnitId::new()))?;
    pool.ask(&Request::Submit(Box::new(array(&place.script(), batch, waiting))))?;
    // Until every worker has begun, and what was sent has settled.
    std::thread::sleep(if once { Duration::from_millis(100) } else { Duration::from_secs(5) });
    let (before, used_before, begin) = (pool.status()?.done, pool.used()?.0, Instant::now());
    let watched = if once { Duration::from_secs(1) } else { WATCHED };
    let mut memory_mb: f64 = 0.0;
    while begin.elapsed() < watched {
        std::thread::sleep(Duration::from_millis(200));
        memory_mb = memory_mb.max(pool.used()?.0.memory_mb);
    }
    let (after, used, seconds) =
        (pool.status()?.done, pool.used()?.0, begin.elapsed().as_secs_f64());
    Ok(Many {
        workers,
        waiting,
        rate: (after - before) as f64 / seconds,
        cpu: (used.cpu - used_before.cpu).as_secs_f64() / seconds,
        memory_mb,
    })
}

impl Many {
    pub(crate) fn print(&self) {
        let Self { workers, waiting, rate, cpu, memory_mb } = self;
        println!("\n{workers} workers of 8 threads, {waiting} scripts, each {TAKES} ms:");
        println!("  {rate:.0} scripts/s, {cpu:.2} cores and {memory_mb:.0} MB of the server");
        println!("  goals: 10,000/s under one core and 500 MB");
    }
}
