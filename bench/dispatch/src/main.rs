//! Measures the cost of dispatching scripts, compared with the limit (a loop that spawns them) and with other
//! tools that run many scripts.
//!
//! `cargo run --profile dist -p bench-dispatch` prints a table and our goals. `--peers` installs and adds GNU
//! parallel and HyperQueue. The table shows medians of interleaved rounds: trust the ratios, not the rates.
//! `--once` runs everything small, so that CI notices a broken benchmark.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod figures;
mod floor;
mod many;
mod ours;
mod peers;
mod process;
mod simulated_worker;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::figures::Figures;

/// Options of the benchmark.
#[derive(Debug, Parser)]
struct Args {
    /// Run each measurement this many times and report the median.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Run this many scripts in each run.
    #[arg(long, default_value_t = 10_000)]
    scripts: u64,
    /// Dispatch this many scripts in each run with simulated scripts.
    #[arg(long, default_value_t = 200_000)]
    idle_scripts: u64,
    /// Queue this many scripts for a thousand workers.
    #[arg(long, default_value_t = 1_000_000)]
    waiting: u64,
    /// Install and measure other products, too.
    #[arg(long)]
    peers: bool,
    /// Run only parts with one of these in their name.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Run everything once and small, to check that it works.
    #[arg(long)]
    once: bool,
    /// Use this `longshore` binary for single submissions [default: beside this one].
    #[arg(long)]
    longshore: Option<PathBuf>,
    #[command(subcommand)]
    role: Option<Role>,
}

/// The role of a child process of this program.
#[derive(Debug, Subcommand)]
enum Role {
    /// A server with its data in a folder.
    #[command(hide = true)]
    Server { folder: PathBuf },
    /// Workers of a server.
    #[command(hide = true)]
    Workers {
        folder: PathBuf,
        count: usize,
        threads: u32,
        /// Simulate scripts of this many milliseconds instead of running them.
        takes: Option<u64>,
    },
}

impl Args {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }

    /// Reduces the sizes for `--once`.
    fn sized(mut self) -> Self {
        if self.once {
            (self.rounds, self.scripts, self.idle_scripts, self.waiting) = (1, 50, 500, 2_000);
        }
        self
    }
}

fn main() -> ExitCode {
    if longshore_process::run_if_reaper() {
        return ExitCode::SUCCESS;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let args = Args::parse().sized();
    let _ = rustls::crypto::ring::default_provider().install_default();
    match args.role {
        Some(Role::Server { folder }) => ours::serve(&folder),
        Some(Role::Workers { folder, count, threads, takes }) => ours::work(&folder, count, threads, takes),
        None => measure(&args),
    }
}

fn measure(args: &Args) -> Result<()> {
    let mut figures = Figures::default();
    let peers = peers::all(args)?;
    if args.wants("scripts") {
        let place = floor::ScriptFolder::new(args.scripts)?;
        for round in 0..args.rounds {
            println!("round {} of {}", round + 1, args.rounds);
            figures.note("spawn loop (the limit)", floor::run(&place)?);
            figures.note_used("Longshore, local worker", ours::scripts(&place)?);
            for peer in &peers {
                figures.note(peer.name(), peer.run(&place)?);
            }
        }
        figures.table(args.scripts);
    }
    if args.wants("idle") {
        for _ in 0..args.rounds {
            figures.idle.push(ours::idle(args.idle_scripts)?);
        }
        figures.idle_table();
    }
    if args.wants("latency") {
        figures.latency = Some(ours::latency(if args.once { 5 } else { 300 })?);
        figures.latency_table();
    }
    if args.wants("submit") {
        figures.submit = ours::submit(args.longshore.as_deref(), if args.once { 3 } else { 200 })?;
        figures.submit_table();
    }
    if args.wants("many") {
        many::run(args.waiting, args.once)?.print();
    }
    Ok(())
}
