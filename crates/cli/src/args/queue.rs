//! Arguments of `longshore queue …`.

use clap::{Args, Subcommand};
use longshore::{QueueName, TenantId};

use super::limit::{AtLeastOne, CapacityArgs, LimitArg};
use super::unit_worker::{LocalPoolTarget, PoolTarget};

/// Show, pause, resume, bound or purge queues.
#[derive(Debug, Subcommand)]
pub enum QueueCommand {
    /// List queues, one line per tenant
    List {
        #[command(flatten)]
        pool: PoolTarget,
    },
    /// Show one queue
    Show {
        /// Name of the queue
        queue: QueueName,
        #[command(flatten)]
        pool: PoolTarget,
    },
    /// Pause a queue, or one tenant's lane of it: nothing is claimed from it
    Pause {
        #[command(flatten)]
        lane: LaneArg,
        #[command(flatten)]
        pool: PoolTarget,
    },
    /// Resume a queue or a lane
    Resume {
        #[command(flatten)]
        lane: LaneArg,
        #[command(flatten)]
        pool: PoolTarget,
    },
    /// Set a queue's bounds, or a lane's weight, cap and bounds
    Set(QueueSetArgs),
    /// Cancel everything that waits in a queue
    Purge {
        /// Name of the queue
        queue: QueueName,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        pool: LocalPoolTarget,
    },
}

/// A queue, or one tenant's lane of it.
#[derive(Debug, Args)]
pub struct LaneArg {
    /// Name of the queue
    pub queue: QueueName,
    /// Only this tenant's lane
    #[arg(long, value_name = "TENANT")]
    pub lane: Option<TenantId>,
}

/// Settings of a queue or a lane.
#[derive(Debug, Args)]
#[command(after_help = "A queue is unbounded until a bound is set; then senders wait for room, unless \
they ask\nto be refused (`submit --no-wait`). Callbacks and retries are never refused.

Examples:
  longshore queue set mail --max-units 10000 --max-bytes 500MB
  longshore queue set mail --lane acme --weight 3 --cap 5
  longshore queue set mail --max-units none")]
pub struct QueueSetArgs {
    #[command(flatten)]
    pub lane: LaneArg,
    #[command(flatten)]
    pub bounds: CapacityArgs,
    /// With --lane: weight against other lanes
    #[arg(long, value_name = "N", requires = "lane")]
    pub weight: Option<AtLeastOne>,
    /// With --lane: maximum running (leased) units, or none
    #[arg(long, value_name = "N|none", requires = "lane")]
    pub cap: Option<LimitArg<AtLeastOne>>,
    #[command(flatten)]
    pub pool: LocalPoolTarget,
}
