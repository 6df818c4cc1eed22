//! Arguments of `longshore dispatch …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use longshore::{BatchId, ByteSize, HumanDuration, UnitId};
use longshore_dispatch::system::QueueSystem;

use super::dispatch_pool::DispatchPoolArg;
use super::resource::ResourceArg;

/// Commands for a pool of script workers.
#[derive(Debug, Subcommand)]
pub enum DispatchCommand {
    /// Start a pool and wait until its workers are connected
    Start(Box<DispatchStartArgs>),
    /// Show a pool's workers, queue and running scripts
    Status(DispatchPoolArg),
    /// Watch a pool in the terminal; `q` quits
    Top(DispatchTopArgs),
    /// Explain why workers are not being launched
    Explain(DispatchPoolArg),
    /// Print the output of scripts that were submitted with --output stream:DIR
    Output(DispatchOutputArgs),
    /// Change the number of workers
    Scale(DispatchScaleArgs),
    /// List, add, pause and remove kinds of workers: other queues, accounts or sizes in one pool
    #[command(subcommand)]
    Alloc(AllocCommand),
    /// List, drain and stop single workers
    #[command(subcommand)]
    Worker(PoolWorkerCommand),
    /// Wait until the pool is idle
    Wait(DispatchWaitArgs),
    /// Stop a pool after its running scripts have ended
    Stop(DispatchStopArgs),
    /// Run a pool's server in the foreground; `start` runs this in the background
    #[command(hide = true)]
    Serve(Box<DispatchStartArgs>),
}

/// Watches a pool.
#[derive(Debug, Args)]
#[command(after_help = "Where stdout is no terminal, or with --json, one frame is printed.")]
pub struct DispatchTopArgs {
    #[command(flatten)]
    pub pool: DispatchPoolArg,
    /// Refresh interval
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub every: HumanDuration,
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
pub struct DispatchStartArgs {
    #[command(flatten)]
    pub pool: DispatchPoolArg,
    /// Launcher of the workers: local_worker, slurm_worker, sge_worker, pbs_worker, lsf_worker or
    /// kubernetes_worker [env: LONGSHORE_QSYS] [default: local_worker]
    #[arg(long, value_name = "NAME")]
    pub qsys: Option<QueueSystem>,
    /// Number of workers [env: LONGSHORE_DISPATCH_WORKERS] [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub workers: Option<i64>,
    /// Maximum number of workers: those above --workers are launched on demand and released when
    /// idle
    #[arg(long, value_name = "N")]
    pub max_workers: Option<u32>,
    /// Threads per worker [env: LONGSHORE_DISPATCH_NTHR] [default: one per core here]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub nthr: Option<i64>,
    /// Resource of each worker beside threads, as gpu=4 (may be repeated)
    #[arg(long, value_name = "NAME=N")]
    pub resource: Vec<ResourceArg>,
    /// Memory of each worker, as 64GB: requested from the base system, and divided among scripts by
    /// their --mem
    #[arg(long, value_name = "SIZE")]
    pub mem: Option<ByteSize>,
    /// Lifetime of each worker: requested from the base system; towards its end it takes no new
    /// script
    #[arg(long, value_name = "TIME")]
    pub time: Option<HumanDuration>,
    /// Release a worker above --workers after this long without a script
    #[arg(long, value_name = "TIME", default_value = "5m")]
    pub idle: HumanDuration,
    /// Let running scripts of a worker end for this long when its lifetime ends, a signal reaches it or
    /// the pool becomes smaller; then they are interrupted and run again [default: 30s, for a smaller
    /// pool 1h]
    #[arg(long, value_name = "TIME")]
    pub drain_timeout: Option<HumanDuration>,
    /// Script that each worker runs before its first
    #[arg(long, value_name = "FILE")]
    pub before: Option<PathBuf>,
    /// Script that each worker runs after its last
    #[arg(long, value_name = "FILE")]
    pub after: Option<PathBuf>,
    /// Folder that every script, its working directory and its output must be inside, whatever its
    /// submitter says (may be repeated)
    #[arg(long, value_name = "DIR")]
    pub root: Vec<PathBuf>,
    /// With --root: environment variable that submitters may set for their scripts (may be repeated)
    #[arg(long, value_name = "NAME", requires = "root", value_delimiter = ',')]
    pub allow_env: Vec<String>,
    /// Count a worker as lost after this long without a message; its scripts run elsewhere
    #[arg(long, value_name = "TIME", default_value = "15s")]
    pub ttl: HumanDuration,
    /// Addresses that the server listens on and workers try, in this order [default: all of this
    /// machine, for local_worker 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub listen: Vec<std::net::IpAddr>,
    /// Folder of the server's durable state, on a local disk
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Keep the pool when the process that called this command ends
    #[arg(long)]
    pub detach: bool,
    /// Stop waiting for the workers after this long; the pool continues
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub wait_limit: HumanDuration,
    /// Stop the pool when this process ends.
    #[arg(long, hide = true, value_name = "PID")]
    pub owner: Option<i32>,
    /// Options for the base system, as --partition=long
    #[arg(last = true, value_name = "BASE OPTIONS")]
    pub options: Vec<String>,
}

/// Prints output.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore dispatch output nightly --from logs            all of an array, in its order
  longshore dispatch output nightly --from logs --index 7  one script of it
  longshore dispatch output UNIT --from logs --stderr

Of a script that ran more than once, the last run is shown. Needs no pool: the files are enough.")]
pub struct DispatchOutputArgs {
    /// Unit, or name of an array
    #[arg(value_name = "UNIT|ARRAY")]
    pub whose: OutputSource,
    /// Folder given to `submit --output stream:DIR`
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
    /// Standard output only
    #[arg(long, conflicts_with = "stderr")]
    pub stdout: bool,
    /// Standard error only
    #[arg(long)]
    pub stderr: bool,
    /// Only the script with this index in the array
    #[arg(long, value_name = "N")]
    pub index: Option<u64>,
}

/// A unit or an array.
#[derive(Debug, Clone)]
pub enum OutputSource {
    Unit(UnitId),
    Array(BatchId),
}

impl std::str::FromStr for OutputSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(unit) => Ok(Self::Unit(unit)),
            Err(_) => BatchId::new(text).map(Self::Array).map_err(|error| error.to_string()),
        }
    }
}

/// Changes the number of workers.
#[derive(Debug, Args)]
pub struct DispatchScaleArgs {
    #[command(flatten)]
    pub pool: DispatchPoolArg,
    /// Minimum number of workers
    pub workers: u32,
    /// Maximum number of workers, launched on demand [default: the minimum]
    pub max_workers: Option<u32>,
    /// Allocation to change (see `dispatch alloc`)
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub alloc: String,
    /// Let running scripts of workers that leave end for this long; then they are interrupted and run
    /// again
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub drain_timeout: HumanDuration,
}

/// Commands for the allocations of a pool.
#[derive(Debug, Subcommand)]
pub enum AllocCommand {
    /// Add workers of another kind; they are launched when there are scripts for them
    Add(Box<AllocAddArgs>),
    /// List a pool's allocations; `default` is the one that it was started with
    List(DispatchPoolArg),
    /// Launch no more workers of an allocation; its present workers stay
    Pause(AllocArgs),
    /// Launch workers of a paused allocation again
    Resume(AllocArgs),
    /// Remove an allocation when its workers have left
    Remove(AllocRemoveArgs),
}

/// Adds an allocation.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore dispatch alloc add gpu --max-workers 4 --nthr 8 --resource gpu=2 -- --partition=gpu --gres=gpu:2
  longshore dispatch alloc add cheap --qsys slurm --workers 2 --time 4h -- --account=spare --qos=low
  longshore dispatch alloc add gpu --max-workers 4 --dry-run -- --partition=gpu     only print the job

Scripts are given to the allocations that can run them: workers that are there before new ones, earlier
allocations before later ones. Roots, hooks and other options are those of `dispatch start`.")]
pub struct AllocAddArgs {
    /// Name of the allocation
    #[arg(value_name = "NAME", value_parser = allocation_name)]
    pub name: String,
    #[command(flatten)]
    pub pool: DispatchPoolArg,
    /// Launcher of its workers: local, slurm, sge, pbs, lsf or kubernetes [default: the pool's]
    #[arg(long, value_name = "NAME")]
    pub qsys: Option<QueueSystem>,
    /// Number of workers [default: 1, with --max-workers 0]
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
    /// Maximum number of workers: those above --workers are launched on demand and released when
    /// idle
    #[arg(long, value_name = "N")]
    pub max_workers: Option<u32>,
    /// Threads per worker [default: the pool's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub nthr: Option<u32>,
    /// Resource of each worker beside threads, as gpu=4 (may be repeated)
    #[arg(long, value_name = "NAME=N")]
    pub resource: Vec<ResourceArg>,
    /// Memory of each worker, as 64GB
    #[arg(long, value_name = "SIZE")]
    pub mem: Option<ByteSize>,
    /// Lifetime of each worker
    #[arg(long, value_name = "TIME")]
    pub time: Option<HumanDuration>,
    /// Release a worker above --workers after this long without a script
    #[arg(long, value_name = "TIME", default_value = "5m")]
    pub idle: HumanDuration,
    /// Let running scripts of workers that leave end for this long
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub drain_timeout: HumanDuration,
    /// Only print the job that would be submitted for a worker
    #[arg(long)]
    pub dry_run: bool,
    /// Options for the base system, as --partition=gpu
    #[arg(last = true, value_name = "BASE OPTIONS")]
    pub options: Vec<String>,
}

fn allocation_name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match !text.is_empty() && text.len() <= 64 && text.chars().all(fits) {
        true => Ok(text.to_owned()),
        false => Err("a name has 1 to 64 letters, digits, `.`, `_` or `-`".to_owned()),
    }
}

/// Names an allocation.
#[derive(Debug, Args)]
pub struct AllocArgs {
    /// Name of the allocation
    #[arg(value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    pub pool: DispatchPoolArg,
}

/// Removes an allocation.
#[derive(Debug, Args)]
pub struct AllocRemoveArgs {
    #[command(flatten)]
    pub allocation: AllocArgs,
    /// Let running scripts of its workers end for this long; then they are interrupted and run again
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub drain_timeout: HumanDuration,
    /// Only print how many workers would leave
    #[arg(long)]
    pub dry_run: bool,
}

/// Commands for single workers.
#[derive(Debug, Subcommand)]
pub enum PoolWorkerCommand {
    /// List a pool's workers
    List(DispatchPoolArg),
    /// Show workers: resources, scripts, version, time left
    Info(PoolWorkerArgs),
    /// Let workers leave when their scripts have ended, as before maintenance of a node
    Drain(PoolWorkerDrainArgs),
    /// Let workers leave at once; their scripts are interrupted and run again elsewhere
    Stop(PoolWorkerArgs),
}

/// Names workers.
#[derive(Debug, Args)]
#[command(
    after_help = "A worker above the pool's minimum is not replaced unless there is work for it; to keep a
node free of new workers, tell the base system, or `dispatch scale` to fewer."
)]
pub struct PoolWorkerArgs {
    /// Worker, as `dispatch worker list` shows it, or a host: all workers there
    #[arg(value_name = "WORKER|HOST", required = true)]
    pub workers: Vec<String>,
    #[command(flatten)]
    pub pool: DispatchPoolArg,
}

/// Drains workers.
#[derive(Debug, Args)]
pub struct PoolWorkerDrainArgs {
    #[command(flatten)]
    pub workers: PoolWorkerArgs,
    /// Let running scripts end for this long; then they are interrupted and run again
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub drain_timeout: HumanDuration,
}

/// Waits for a pool.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 3 if a script has failed: since a wait last found the pool idle, or since this
session (terminal, batch job) submitted its first script after its last wait, whichever is earlier."
)]
pub struct DispatchWaitArgs {
    #[command(flatten)]
    pub pool: DispatchPoolArg,
    /// Stop waiting after this long
    #[arg(long, value_name = "TIME")]
    pub wait_limit: Option<HumanDuration>,
}

/// Stops a pool.
#[derive(Debug, Args)]
pub struct DispatchStopArgs {
    #[command(flatten)]
    pub pool: DispatchPoolArg,
    /// Interrupt running scripts at once; they run again in the next pool
    #[arg(long)]
    pub now: bool,
    /// Maximum wait for running scripts; then they are interrupted
    #[arg(long, value_name = "TIME", default_value = "1h", conflicts_with = "now")]
    pub drain_timeout: HumanDuration,
}
