//! Measures permits: pairs of acquire and release. On Redis, compared with the plain pair of commands (BLPOP and
//! RPUSH on a list of tokens, a connection for each task) and with two PINGs, which is the limit; then in memory,
//! in a SQLite file and on PostgreSQL, there beside pgbench.
//!
//! `cargo run --profile dist -p bench-permits` alternates the contestants on a private Redis and shows medians:
//! trust the ratios, not the rates. `--peers` installs and adds npm's redis-semaphore. `--once` runs everything
//! small, so that CI notices a broken benchmark.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod figures;
mod ours;
mod peer;
mod pgbench;
mod plain;
mod run;
mod stores;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use longshore_testkit::servers::{PrivateRedis, RedisPersistence};

use crate::figures::{Figures, median};
use crate::run::{Contestant, Load};

/// Options of the benchmark.
#[derive(Debug, Parser)]
struct Args {
    /// Run each measurement this many times and report the median.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Measure each run for this many seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Install and measure npm's redis-semaphore, too.
    #[arg(long)]
    peers: bool,
    /// Run only the part on Redis, or only the other stores.
    #[arg(long)]
    only: Option<Part>,
    /// Run everything once and small, to check that it works.
    #[arg(long)]
    once: bool,
    /// Install the peer in this folder.
    #[arg(long, env = "LONGSHORE_PEERS_CACHE")]
    cache: Option<PathBuf>,
}

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Redis,
    Stores,
}

/// The numbers of tasks and of permits.
const LOADS: [Load; 3] = [
    Load { tasks: 1, permits: 64, name: "1 task" },
    Load { tasks: 32, permits: 64, name: "32 tasks" },
    Load { tasks: 32, permits: 4, name: "32 tasks on 4 permits" },
];

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = Args::parse();
    if args.once {
        (args.rounds, args.seconds) = (1, 0.05);
    }
    if args.only != Some(Part::Stores) {
        redis(&args).await?;
    }
    if args.only != Some(Part::Redis) {
        stores::measure(args.rounds, args.seconds).await?;
    }
    Ok(())
}

async fn redis(args: &Args) -> Result<()> {
    let server = tokio::task::spawn_blocking(|| PrivateRedis::start(RedisPersistence::Nothing)).await??;
    let url = server.url();
    let mut contestants: Vec<Box<dyn Contestant>> = vec![
        Box::new(ours::Seam::open(&url).await?),
        Box::new(ours::Pool::open(&url)?),
        Box::new(plain::Pair::open(&url)?),
        Box::new(plain::Ping::open(&url).await?),
    ];
    if args.peers {
        contestants.push(Box::new(peer::Semaphore::install(&url, args.cache.as_deref())?));
    }
    let mut all: BTreeMap<(usize, &str), Vec<Figures>> = BTreeMap::new();
    for round in 0..args.rounds {
        for (at, load) in LOADS.iter().enumerate() {
            for offset in 0..contestants.len() {
                // Each round starts with another contestant.
                let who = &contestants[(offset + round) % contestants.len()];
                let figures = who.run(load, args.seconds).await?;
                all.entry((at, who.name())).or_default().push(figures);
            }
        }
    }
    if args.once {
        println!("all ran");
        return Ok(());
    }
    for (at, load) in LOADS.iter().enumerate() {
        println!("\n{}", load.name);
        let plain = median(&all[&(at, "plain pair")]);
        for who in &contestants {
            median(&all[&(at, who.name())]).print(who.name(), &plain);
        }
    }
    Ok(())
}
