//! Arguments of `longshore chaos|bench …`.

use std::path::PathBuf;

use clap::Args;

/// Run a batch while workers are killed, then check that nothing was lost.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore chaos                                   half a minute, in a temporary directory
  longshore chaos --units 20000 --kills 100         more load and more kills
  longshore chaos --seed 7 --keep                   the same run again, and keep the store
  longshore chaos --store postgres://me@db/x        in a database of its own on that server
  longshore chaos --store postgres://me@db/x --restart-command 'pg_ctl -D data restart -m immediate'
                                                    the server dies midway as well
  longshore chaos --faults                          workers are stopped and the store fails as well

It starts real worker processes on a store of its own (--store is not touched; of a PostgreSQL URL
only the server is used, for a database that is dropped at the end), kills them with SIGKILL at
random moments, kills the submitter midway and runs it again, and ends with a check of the
invariants: every unit ran, every unit is counted once, nothing is leased, `verify` finds nothing.
With --faults, workers are also stopped for longer than their session lives; SQLite is locked for
5 s; the connections to PostgreSQL stall, are cut, and become half-open (through a proxy on this
machine). The report says how long each took until work continued.")]
pub struct ChaosArgs {
    /// Number of units
    #[arg(long, default_value_t = 2000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub units: u64,
    /// Number of worker processes
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: u32,
    /// Slots of each worker
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub slots: u32,
    /// Number of workers to kill
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub kills: u32,
    /// Stop workers and let the store fail as well
    #[arg(long)]
    pub faults: bool,
    /// Restart the database server with this shell command midway
    #[arg(long, value_name = "COMMAND")]
    pub restart_command: Option<String>,
    /// Seed of the random choices, to repeat a run
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Work in this directory instead of a temporary one
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Keep the temporary directory
    #[arg(long)]
    pub keep: bool,
}

/// Measure throughput and latency on this machine.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore bench                                   on a temporary file beside the store
  longshore bench --store memory:                   the engine alone, without a disk
  longshore bench --store postgres://me@db/x        in a database of its own on that server")]
pub struct BenchArgs {
    /// Number of units
    #[arg(long, default_value_t = 50_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub units: u64,
    /// Slots of the worker
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub slots: u32,
}
