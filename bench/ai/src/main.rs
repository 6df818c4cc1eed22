//! Measures the AI gateway and the durable path, compared with a bare proxy and with other gateways.
//!
//! `cargo run --profile dist -p bench-ai` prints two tables: the gateways before the same upstream, and our
//! goals. Each gateway is its own process, so that CPU time and memory can be measured. `--peers` installs and
//! adds TensorZero's gateway and LiteLLM. The tables show medians, since the state of a machine varies: trust
//! the ratios, not the rates. `--once` runs everything small, so that CI notices a broken benchmark.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod child;
mod contest;
mod durable;
mod figures;
mod floor;
mod gateway;
mod load;
mod memory;
mod peers;
mod upstream;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

/// Options of the benchmark.
#[derive(Debug, Parser)]
struct Args {
    /// Run each measurement this many times and report the median.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Measure each part of a run for this many seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Keep this many requests in flight.
    #[arg(long, default_value_t = 32)]
    width: usize,
    /// Send this many requests in each run of the durable path.
    #[arg(long, default_value_t = 10_000)]
    requests: usize,
    /// Keep this many requests in flight while memory is measured.
    #[arg(long, default_value_t = 1000)]
    crowd: usize,
    /// Install and measure other gateways, too.
    #[arg(long)]
    peers: bool,
    /// Run only entries with one of these in their name; `durable` and `memory` are names, too.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Run everything once and small, to check that it works.
    #[arg(long)]
    once: bool,
    /// Create databases and install peers in this folder, which must be on a real disk.
    #[arg(long, default_value = "target/bench")]
    dir: PathBuf,
    #[command(subcommand)]
    child: Option<child::Role>,
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

fn main() -> Result<()> {
    let mut args = Args::parse();
    if let Some(role) = args.child {
        return role.run();
    }
    if args.once {
        (args.rounds, args.seconds, args.requests, args.crowd) = (1, 0.2, 50, 20);
    }
    // One thread generates the load: the other cores are for the measured process.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(&args))
}

async fn run(args: &Args) -> Result<()> {
    std::fs::create_dir_all(&args.dir)?;
    let mut goals = contest::compare(args).await?;
    if args.wants("memory") {
        goals.push(memory::measure(args).await?);
    }
    if args.wants("durable") {
        goals.extend(durable::measure(args)?);
    }
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
