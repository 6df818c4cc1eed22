//! A thousand workers of eight threads, and a queue of a million scripts.

use std::time::{Duration, Instant};

use anyhow::Result;
use longshore::{BatchId, UnitId};
use longshore_dispatch::request::ClientRequest;

use crate::floor::ScriptFolder;
use crate::ours::{Pool, array};

/// The duration of a script. Eight thousand threads then run a little more than ten thousand scripts per second.
const TAKES: u64 = 750;
/// The duration of the measurement.
const WATCHED: Duration = Duration::from_secs(15);

/// The measurements.
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
    pool.ask(&ClientRequest::Submit(Box::new(array(&place.script(), batch, waiting))))?;
    // Until every worker runs scripts and the first burst is over.
    std::thread::sleep(if once { Duration::from_millis(100) } else { Duration::from_secs(5) });
    let (before, used_before, begin) = (pool.status()?.done, pool.used()?.0, Instant::now());
    let watched = if once { Duration::from_secs(1) } else { WATCHED };
    let mut memory_mb: f64 = 0.0;
    while begin.elapsed() < watched {
        std::thread::sleep(Duration::from_millis(200));
        memory_mb = memory_mb.max(pool.used()?.0.memory_mb);
    }
    let (after, used, seconds) = (pool.status()?.done, pool.used()?.0, begin.elapsed().as_secs_f64());
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
