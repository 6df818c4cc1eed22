//! Arguments of `longshore ai replies …`.

use clap::{Args, Subcommand};
use longshore::{HumanDuration, QueueName, UnitId};

use super::limit::AtLeastOne;
use super::server::ServerArgs;

/// Reply queues.
#[derive(Debug, Args)]
#[command(
    after_help = "A request names the queue of its reply in `reply_queue` (docs/ai-contract.md). A reply is
read again until it is acknowledged.

Examples:
  longshore ai replies open r-1
  longshore ai replies read r-1 --wait 30s --ack
  longshore ai replies close r-1"
)]
pub struct RepliesArgs {
    #[command(subcommand)]
    pub command: RepliesCommand,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Open, read, acknowledge and close reply queues.
#[derive(Debug, Subcommand)]
pub enum RepliesCommand {
    /// Open a reply queue and print its name
    Open {
        /// Name of the queue [default: a new one]
        #[arg(value_name = "QUEUE")]
        queue: Option<QueueName>,
        /// Close the queue after this long without a read
        #[arg(long, value_name = "TIME", default_value = "5m")]
        ttl: HumanDuration,
    },
    /// List open reply queues
    List,
    /// Print replies and parts of replies, one JSON document per line, oldest first
    Read {
        /// Name of the queue
        queue: QueueName,
        /// Wait this long for the first reply
        #[arg(long, value_name = "TIME", default_value = "0s")]
        wait: HumanDuration,
        /// Maximum number of replies, up to 100
        #[arg(long, value_name = "N", default_value = "100")]
        limit: AtLeastOne,
        /// Acknowledge the replies once they are printed
        #[arg(long)]
        ack: bool,
    },
    /// Acknowledge replies, so that they are not read again
    Ack {
        /// Name of the queue
        queue: QueueName,
        /// Ids of the replies, as `read` prints them
        #[arg(required = true, value_name = "ID")]
        ids: Vec<UnitId>,
    },
    /// Close a reply queue; replies that are not acknowledged are cancelled
    Close {
        /// Name of the queue
        queue: QueueName,
    },
}
