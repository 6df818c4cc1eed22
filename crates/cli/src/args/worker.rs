//! `longshore worker …` as typed.

use std::path::PathBuf;

use clap::Args;
use longshore::{BatchId, Kind, QueueName};

use super::resource::Resource;
use crate::span::Span;

/// Run units.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore worker --slots 8                        until a signal comes
  longshore worker --slots 8 --until-idle           until nothing is left to do
  longshore worker --queue mail --queue reports     only from these queues
  longshore worker --server ~/.longshore/dispatch --nthr 8      scripts of a pool, over TCP

The first SIGTERM or SIGINT drains: nothing new is claimed, what runs is finished, for at most
--drain-timeout. A second one stops at once: what runs is interrupted and will run again.")]
pub struct Worker {
    /// Units run at once [env: LONGSHORE_SLOTS] [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub slots: Option<u32>,
    /// Has so much of a resource that units may ask for, as gpu=2 (may be repeated)
    #[arg(long, value_name = "NAME=N")]
    pub resource: Vec<Resource>,
    /// Take from this queue (may be repeated) [env: LONGSHORE_QUEUES] [default: all]
    #[arg(long, value_name = "QUEUE")]
    pub queue: Vec<QueueName>,
    /// Take this kind (may be repeated) [env: LONGSHORE_KINDS] [default: all it can handle]
    #[arg(long, value_name = "KIND")]
    pub kind: Vec<Kind>,
    /// Take only from this batch
    #[arg(long, value_name = "NAME")]
    pub batch: Option<BatchId>,
    /// End when nothing is ready, leased or scheduled and no batch is unsealed
    #[arg(long)]
    pub until_idle: bool,
    /// End, after a drain, once about so many units were run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_units: Option<u64>,
    /// How long a drain may take [env: LONGSHORE_DRAIN_TIMEOUT] [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub drain_timeout: Option<Span>,
    /// Without a sign of life for this long it counts as dead [env: LONGSHORE_TTL] [default: 15s]
    #[arg(long, value_name = "TIME")]
    pub ttl: Option<Span>,
    /// Where commands of kind `exec` run [env: LONGSHORE_EXEC_DIR] [default: .]
    #[arg(long, value_name = "DIR")]
    pub exec_dir: Option<PathBuf>,
    #[command(flatten)]
    pub remote: Remote,
    /// Also take kind `chaos`, whose runs are noted in this file.
    #[arg(long, hide = true, value_name = "FILE")]
    pub chaos_log: Option<PathBuf>,
}

/// A worker of a pool: scripts come from its server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options for --server")]
pub struct Remote {
    /// Take scripts from the server of a pool; its access file is in this folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["slots", "queue", "kind", "batch", "until_idle", "max_units", "ttl"])]
    pub server: Option<PathBuf>,
    /// Threads that its scripts may use together; below 1 becomes 1 [default: one per core]
    #[arg(long, value_name = "N", requires = "server", allow_negative_numbers = true)]
    pub nthr: Option<i64>,
    /// How long it may live: it takes nothing new in time to end before
    #[arg(long, value_name = "TIME", requires = "server")]
    pub lifetime: Option<Span>,
    /// End after so long without a script
    #[arg(long, value_name = "TIME", requires = "server")]
    pub idle: Option<Span>,
    /// How long it looks for a server that is gone; its scripts go on meanwhile
    #[arg(long, value_name = "TIME", default_value = "10m", requires = "server")]
    pub server_lost: Span,
    /// Every script must be inside this folder, whatever its submitter says (may be repeated)
    #[arg(long, value_name = "DIR", requires = "server")]
    pub root: Vec<PathBuf>,
    /// A variable that scripts inherit beside PATH, HOME, USER, LANG, LC_*, TZ and TMPDIR (may be repeated)
    #[arg(long, value_name = "NAME", requires = "server")]
    pub env: Vec<String>,
    /// A script that runs before the first; if it fails, the worker ends
    #[arg(long, value_name = "FILE", requires = "server")]
    pub before: Option<PathBuf>,
    /// A script that runs after the last
    #[arg(long, value_name = "FILE", requires = "server")]
    pub after: Option<PathBuf>,
    /// What it was launched as.
    #[arg(long, hide = true, value_name = "N", requires = "server")]
    pub launch: Option<u64>,
    /// Do not run scripts, and say after this long that they ended well: to measure everything else.
    #[arg(long, hide = true, value_name = "TIME", requires = "server")]
    pub idle_run: Option<Span>,
}
