//! `longshore queue …` as typed.

use clap::{Args, Subcommand};
use longshore::{QueueName, TenantId};

use super::limit::{AtLeastOne, Bounds, Limit};
use super::server::Server;

/// Look at queues, pause, resume, bound or purge them.
#[derive(Debug, Subcommand)]
pub enum Queue {
    /// Queues, one line per tenant
    List {
        #[command(flatten)]
        server: Server,
    },
    /// One queue
    Show {
        /// The queue
        queue: QueueName,
        #[command(flatten)]
        server: Server,
    },
    /// Claim no more from it, or from one tenant's lane of it
    Pause {
        #[command(flatten)]
        lane: Lane,
        #[command(flatten)]
        server: Server,
    },
    /// Claim from it again
    Resume {
        #[command(flatten)]
        lane: Lane,
        #[command(flatten)]
        server: Server,
    },
    /// Bound it, or set one tenant's lane: share, cap, bound
    Set(Settings),
    /// Cancel everything that waits in it
    Purge {
        /// The queue
        queue: QueueName,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

/// A queue, or one tenant's lane of it.
#[derive(Debug, Args)]
pub struct Lane {
    /// The queue
    pub queue: QueueName,
    /// Only this tenant's part of it
    #[arg(long, value_name = "TENANT")]
    pub lane: Option<TenantId>,
}

/// What is set for a queue or a lane.
#[derive(Debug, Args)]
#[command(
    after_help = "A queue is unbounded until a bound is set; then senders wait for room, unless \
they ask\nto be refused (`submit --no-wait`). Callbacks and retries are never refused.

Examples:
  longshore queue set mail --max-units 10000 --max-bytes 500MB
  longshore queue set mail --lane acme --weight 3 --cap 5
  longshore queue set mail --max-units none"
)]
pub struct Settings {
    #[command(flatten)]
    pub lane: Lane,
    #[command(flatten)]
    pub bounds: Bounds,
    /// With --lane: its share against other lanes
    #[arg(long, value_name = "N", requires = "lane")]
    pub weight: Option<AtLeastOne>,
    /// With --lane: most of its units running (leased) at once, or none
    #[arg(long, value_name = "N|none", requires = "lane")]
    pub cap: Option<Limit<AtLeastOne>>,
}
