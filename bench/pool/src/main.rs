//! Measures the worker pools, compared with the limit (a raw framed pipe) and with other pools.
//!
//! `cargo run --profile dist -p bench-pool` prints two tables: calls that do nothing, with alternating contestants;
//! and our goals. `--peers` installs and adds pools of other languages. The tables show medians, since the state
//! of a machine varies: trust the ratios, not the rates. `--once` runs everything small, so that CI notices a
//! broken benchmark.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod calls;
mod clock;
mod contest;
mod figures;
mod foreign;
mod install;
mod lag;
mod one_shot;
mod ours;
mod payloads;
mod raw;
mod rust_peers;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

/// Options of the benchmark.
#[derive(Debug, Parser)]
struct Args {
    /// Run each measurement this many times and report the median.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Measure each part of a run for this many seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Install and measure pools of other languages, too.
    #[arg(long)]
    peers: bool,
    /// Run only contestants with one of these in their name.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Run only one of the two measurements, to profile it.
    #[arg(long)]
    way: Option<clock::Way>,
    /// Run everything once and small, to check that it works.
    #[arg(long)]
    once: bool,
    /// Install pools of other languages in this folder.
    #[arg(long, env = "LONGSHORE_PEERS_CACHE")]
    cache: Option<PathBuf>,
}

impl Args {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }

    /// The duration of each part of a run.
    fn part(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

fn main() -> ExitCode {
    // Must come first: if started as a worker, this process does nothing else.
    if let Some(ended) = longshore_pool::child::run_if_worker(|_| Some(Box::new(ours::operations()))) {
        return ended;
    }
    if std::env::args().nth(1).as_deref() == Some(raw::CHILD) {
        return raw::child();
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run() -> Result<()> {
    let mut args = Args::parse();
    if args.once {
        (args.rounds, args.seconds) = (1, 0.05);
    }
    let mut goals = calls::compare(&args).await?;
    goals.extend(payloads::compare(&args).await?);
    goals.extend(lag::measure(&args).await?);
    goals.extend(one_shot::compare(&args).await?);
    if args.once {
        println!("all ran");
    } else {
        println!("{}", figures::goals(&goals));
    }
    Ok(())
}

/// Prints the current step on a line that the next step overwrites.
fn say(what: &str) {
    print!("{what:<78}\r");
    let _ = std::io::stdout().flush();
}
