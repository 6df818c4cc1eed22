//! What the AI gateway and the durable path cost, against the limit and against other gateways.
//!
//! `cargo run --profile dist -p bench-ai` prints two tables: all gateways in turn before the same
//! upstream, and our goals. Each is a separate process, so that its CPU and memory can be measured.
//! `--peers` adds TensorZero's gateway and LiteLLM, which it installs first. Medians are shown, since a
//! machine is never the same twice: trust the ratios, not the rates. `--once` runs everything small, so
//! that the benchmark cannot rot unseen.

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

/// What to measure, and how much of it.
#[derive(Debug, Parser)]
struct Args {
    /// Runs of each; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each part of a run.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Requests in flight.
    #[arg(long, default_value_t = 32)]
    width: usize,
    /// Requests of each run of the durable path.
    #[arg(long, default_value_t = 10_000)]
    requests: usize,
    /// Requests in flight while memory is looked at.
    #[arg(long, default_value_t = 1000)]
    crowd: usize,
    /// Other gateways as well: installs them first.
    #[arg(long)]
    peers: bool,
    /// Only contestants with one of these in their name; `durable` and `memory` are names, too.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Everything once and small: only to see that it works.
    #[arg(long)]
    once: bool,
    /// Where databases are made, and peers installed; must be a real disk.
    #[arg(long, default_value = "target/bench")]
    dir: PathBuf,
    #[command(subcommand)]
    child: Option<child::Role>,
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

fn main() -> Result<()> {
    let mut args = Args::parse();
    if let Some(role) = args.child {
        return role.run();
    }
    if args.once {
        (args.rounds, args.seconds, args.requests, args.crowd) = (1, 0.2, 50, 20);
    }
    // One thread makes the load: the others are for the measured process.
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

/// Says what is being done, on a line that the next one takes.
fn say(what: &str) {
    print!("{what:<78}\r");
    let _ = std::io::stdout().flush();
}
