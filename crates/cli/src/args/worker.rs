//! Arguments of `longshore worker …`.

use std::path::PathBuf;

use clap::Args;
use longshore::{BatchId, ByteSize, HumanDuration, Kind, QueueName};

use super::resource::ResourceArg;

/// Run units.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore worker --slots 8                        until a signal comes
  longshore worker --slots 8 --until-idle           until nothing is left to do
  longshore worker --queue mail --queue reports     only from these queues
  longshore worker --server ~/.longshore/dispatch --nthr 8      scripts of a pool, over TCP

The first SIGTERM or SIGINT drains: nothing new is claimed, what runs is finished, for at most
--drain-timeout. A second one stops at once: what runs is interrupted and will run again.")]
pub struct WorkerArgs {
    /// Units to run concurrently [env: LONGSHORE_SLOTS] [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub slots: Option<u32>,
    /// Resource that the worker offers to units, as gpu=2; with --server also as gpu=[1,3], by names of
    /// instances (may be repeated)
    #[arg(long, value_name = "NAME=N")]
    pub resource: Vec<ResourceArg>,
    /// Claim from this queue (may be repeated) [env: LONGSHORE_QUEUES] [default: all]
    #[arg(long, value_name = "QUEUE")]
    pub queue: Vec<QueueName>,
    /// Claim this kind (may be repeated) [env: LONGSHORE_KINDS] [default: all it can handle]
    #[arg(long, value_name = "KIND")]
    pub kind: Vec<Kind>,
    /// Claim only from this batch
    #[arg(long, value_name = "NAME")]
    pub batch: Option<BatchId>,
    /// Exit when nothing is ready, leased or scheduled and no batch is unsealed
    #[arg(long)]
    pub until_idle: bool,
    /// Drain and exit after about this many units
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_units: Option<u64>,
    /// Maximum time of a drain [env: LONGSHORE_DRAIN_TIMEOUT] [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub drain_timeout: Option<HumanDuration>,
    /// Count the worker as dead after this long without a heartbeat [env: LONGSHORE_TTL] [default:
    /// 15s]
    #[arg(long, value_name = "TIME")]
    pub ttl: Option<HumanDuration>,
    /// Working directory of commands of kind `exec` [env: LONGSHORE_EXEC_DIR] [default: .]
    #[arg(long, value_name = "DIR")]
    pub exec_dir: Option<PathBuf>,
    /// Run commands of kind `exec` as this user; the worker must run as root [default: its own]
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    pub exec_user: Option<String>,
    #[command(flatten)]
    pub remote: RemoteWorkerArgs,
    /// Also handle kind `chaos` and log its runs to this file.
    #[arg(long, hide = true, value_name = "FILE")]
    pub chaos_log: Option<PathBuf>,
}

/// A worker of a pool: scripts come from its server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options for --server")]
pub struct RemoteWorkerArgs {
    /// Take scripts from the server of a pool; its access file is in this folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["slots", "queue", "kind", "batch", "until_idle", "max_units", "ttl"])]
    pub server: Option<PathBuf>,
    /// Threads for its scripts together; below 1 becomes 1 [default: one per core]
    #[arg(long, value_name = "N", requires = "server", allow_negative_numbers = true)]
    pub nthr: Option<i64>,
    /// Memory for its scripts together, as 64GB [default: that of this machine or control group]
    #[arg(long, value_name = "SIZE", requires = "server")]
    pub mem: Option<ByteSize>,
    /// Offer only the memory and GPUs that --mem and --resource name. Otherwise memory and NVIDIA GPUs
    /// are detected, unless they are named
    #[arg(long, requires = "server")]
    pub no_detect: bool,
    /// Lifetime: it takes no new script that could not end in time
    #[arg(long, value_name = "TIME", requires = "server")]
    pub lifetime: Option<HumanDuration>,
    /// Exit after this long without a script
    #[arg(long, value_name = "TIME", requires = "server")]
    pub idle: Option<HumanDuration>,
    /// How long to look for a lost server; running scripts continue meanwhile
    #[arg(long, value_name = "TIME", default_value = "10m", requires = "server")]
    pub server_lost: HumanDuration,
    /// Folder that every script, its working directory and its output must be inside, whatever its
    /// submitter says (may be repeated)
    #[arg(long, value_name = "DIR", requires = "server")]
    pub root: Vec<PathBuf>,
    /// With --root: environment variable that submitters may set for their scripts (may be repeated)
    #[arg(long, value_name = "NAME", requires = "root", value_delimiter = ',')]
    pub allow_env: Vec<String>,
    /// Environment variable that scripts inherit beside PATH, HOME, USER, LANG, LC_*, TZ and TMPDIR
    /// (may be repeated)
    #[arg(long, value_name = "NAME", requires = "server")]
    pub env: Vec<String>,
    /// Script to run before the first; if it fails, the worker exits
    #[arg(long, value_name = "FILE", requires = "server")]
    pub before: Option<PathBuf>,
    /// Script to run after the last
    #[arg(long, value_name = "FILE", requires = "server")]
    pub after: Option<PathBuf>,
    /// Number of the launch.
    #[arg(long, hide = true, value_name = "N", requires = "server")]
    pub launch: Option<u64>,
}
