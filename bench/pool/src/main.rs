//! How fast the worker pools are, against the limit (a raw framed pipe) and against other pools.
//!
//! `cargo run --profile dist -p bench-pool` prints two tables: calls that do nothing, all pools in turn;
//! and our goals. `--peers` installs other languages' pools first and includes them.
//! Medians are shown, since a machine is never the same twice: trust the ratios, not the rates.
//! `--once` runs everything small, so that the benchmark cannot rot unseen.

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

/// What to measure, and how much of it.
#[derive(Debug, Parser)]
struct Args {
    /// Runs of each; the median counts.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Seconds of each part of a run.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Other languages' pools as well: installs them first.
    #[arg(long)]
    peers: bool,
    /// Only contestants with one of these in their name.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only one of the two ways of calling, to profile it.
    #[arg(long)]
    way: Option<clock::Way>,
    /// Everything once and small: only to see that it works.
    #[arg(long)]
    once: bool,
    /// Where other languages' pools are installed.
    #[arg(long, env = "LONGSHORE_PEERS_CACHE")]
    cache: Option<PathBuf>,
}

impl Args {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }

    /// How long each part of a run takes.
    fn part(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

fn main() -> ExitCode {
    // First: as a worker, this process does nothing else.
    if let Some(ended) =
        longshore_pool::child::run_if_worker(|_| Some(Box::new(ours::operations())))
    {
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

/// Says what is being done, on a line that the next one takes.
fn say(what: &str) {
    print!("{what:<78}\r");
    let _ = std::io::stdout().flush();
}
