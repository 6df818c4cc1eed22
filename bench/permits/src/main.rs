//! How fast permits are: taking one and giving it back. On Redis beside the plain pair of commands
//! (BLPOP and RPUSH on a list of tokens, a connection for each task) and two PINGs, which is the limit;
//! then in memory, in a SQLite file and on PostgreSQL.
//!
//! `cargo run --profile dist -p bench-permits` runs all contestants in turn on a private Redis and shows
//! medians; trust the ratios, not the rates. `--peers` installs npm's redis-semaphore and lets it take its
//! turns. `--once` runs everything small, so that the benchmark cannot rot unseen.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod figures;
mod ours;
mod peer;
mod plain;
mod run;
mod stores;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use longshore_testkit::servers::{PrivateRedis, Remembers};

use crate::figures::{Figures, median};
use crate::run::{Contestant, Load};

/// What to measure, and how much of it.
#[derive(Debug, Parser)]
struct Args {
    /// Runs of each; the median counts.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Seconds of each run.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// npm's redis-semaphore as well: installs it first.
    #[arg(long)]
    peers: bool,
    /// Only on Redis, or only the others.
    #[arg(long)]
    only: Option<Part>,
    /// Everything once and small: only to see that it works.
    #[arg(long)]
    once: bool,
    /// Where the peer is installed.
    #[arg(long, env = "LONGSHORE_PEERS_CACHE")]
    cache: Option<PathBuf>,
}

/// A part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Redis,
    Stores,
}

/// Tasks, and permits for them.
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
    let server = tokio::task::spawn_blocking(|| PrivateRedis::start(Remembers::Nothing)).await??;
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
                // Another one begins each time.
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
