//! `longshore dispatch …` as typed.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use longshore_dispatch::system::QueueSystem;

use super::resource::Resource;
use crate::size::Size;
use crate::span::Span;

/// What is done with a pool of script workers.
#[derive(Debug, Subcommand)]
pub enum Dispatch {
    /// Start a pool; returns when its workers are there
    Start(Box<Start>),
    /// How a pool does: its workers, what waits and what runs
    Status(Pool),
    /// Why workers are not being launched
    Explain(Pool),
    /// Have another number of workers
    Scale(Scale),
    /// Wait until nothing is left to do
    Wait(Wait),
    /// End a pool: scripts that run are ended first
    Stop(Stop),
    /// Be the server of a pool, in the foreground; `start` runs this in the background
    #[command(hide = true)]
    Serve(Box<Start>),
}

/// Which pool.
#[derive(Debug, Clone, Args)]
pub struct Pool {
    /// The pool's folder, which all its machines must see [env: LONGSHORE_DISPATCH_DIR]
    /// [default: ~/.longshore/dispatch]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Starts a pool.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  longshore dispatch start --workers 2 --nthr 4
  longshore dispatch start --qsys slurm_worker --workers 10 --nthr 32 --time 8h -- --partition=long
  longshore dispatch start --qsys slurm_worker --workers 0 --max-workers 20   as many as there is work for

A pool that runs in the folder is used again if it has the same base, at least as many workers, and at
least as many threads in each; else that is an error. It ends with the process that called this command
(your shell, a script) unless --detach is given. Its units are in the store that --store names, or in a
file of its own on a local disk.")]
pub struct Start {
    #[command(flatten)]
    pub pool: Pool,
    /// What starts the workers: local_worker, slurm_worker, sge_worker, pbs_worker or lsf_worker
    /// [env: LONGSHORE_QSYS] [default: local_worker]
    #[arg(long, value_name = "NAME")]
    pub qsys: Option<QueueSystem>,
    /// How many workers [env: LONGSHORE_DISPATCH_WORKERS] [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub workers: Option<i64>,
    /// With more than --workers: launched when there is work for them, released when there is not
    #[arg(long, value_name = "N")]
    pub max_workers: Option<u32>,
    /// Threads of each worker [env: LONGSHORE_DISPATCH_NTHR] [default: one per core here]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub nthr: Option<i64>,
    /// What each worker has beside threads, as gpu=4 (may be repeated)
    #[arg(long, value_name = "NAME=N")]
    pub resource: Vec<Resource>,
    /// Memory of each worker, as 64GB: asked of the base system, and shared out by --mem of scripts
    #[arg(long, value_name = "SIZE")]
    pub mem: Option<Size>,
    /// How long each worker may live: asked of the base system; it takes nothing new towards the end
    #[arg(long, value_name = "TIME")]
    pub time: Option<Span>,
    /// A worker above --workers is released after so long without a script
    #[arg(long, value_name = "TIME", default_value = "5m")]
    pub idle: Span,
    /// A script that each worker runs before its first
    #[arg(long, value_name = "FILE")]
    pub before: Option<PathBuf>,
    /// A script that each worker runs after its last
    #[arg(long, value_name = "FILE")]
    pub after: Option<PathBuf>,
    /// A worker that is silent for so long is lost, and its scripts run elsewhere
    #[arg(long, value_name = "TIME", default_value = "15s")]
    pub ttl: Span,
    /// Addresses that the server listens on and workers try, in this order
    /// [default: all of this machine, for local_worker 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub listen: Vec<std::net::IpAddr>,
    /// Where the server keeps what must survive it; on a local disk
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Keep the pool when the process that called this command ends
    #[arg(long)]
    pub detach: bool,
    /// Give up if the workers are not there after this long; the pool goes on
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub wait_limit: Span,
    /// End the pool when this process ends.
    #[arg(long, hide = true, value_name = "PID")]
    pub owner: Option<i32>,
    /// Passed to the base system as they are, as --partition=long
    #[arg(last = true, value_name = "BASE OPTIONS")]
    pub options: Vec<String>,
}

/// Another number of workers.
#[derive(Debug, Args)]
pub struct Scale {
    #[command(flatten)]
    pub pool: Pool,
    /// At least so many
    pub workers: u32,
    /// At most so many, when there is work for them [default: the same]
    pub max_workers: Option<u32>,
}

/// Waits for a pool.
#[derive(Debug, Args)]
pub struct Wait {
    #[command(flatten)]
    pub pool: Pool,
    /// Give up after this long
    #[arg(long, value_name = "TIME")]
    pub limit: Option<Span>,
}

/// Ends a pool.
#[derive(Debug, Args)]
pub struct Stop {
    #[command(flatten)]
    pub pool: Pool,
    /// Do not wait for scripts that run: they are interrupted, and run again in the next pool
    #[arg(long)]
    pub now: bool,
    /// How long scripts that run are waited for; then they are interrupted
    #[arg(long, value_name = "TIME", default_value = "1h", conflicts_with = "now")]
    pub drain_timeout: Span,
}
