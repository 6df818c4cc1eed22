//! `longshore pool …` as typed.

use clap::{Args, Subcommand};
use longshore::{PoolName, Priority};

use super::server::Server;
use crate::span::Span;

/// Look at bounded pools, size them, hold a permit while a command runs.
#[derive(Debug, Subcommand)]
pub enum Pool {
    /// How pools stand; with a name also who holds and who waits
    Status(Status),
    /// Make a pool known, or all of the configuration; changes nothing that is known already
    Init {
        /// The pool [default: all of the configuration]
        name: Option<PoolName>,
        /// How many permits it has [default: the configuration's]
        #[arg(long, value_name = "N", requires = "name")]
        max: Option<u32>,
    },
    /// Set how many permits a pool has: more are there at once, fewer as permits come back
    Resize {
        /// The pool
        name: PoolName,
        /// How many permits
        max: u32,
        #[command(flatten)]
        server: Server,
    },
    /// Forget who holds and who waits, and the figures: only if the holders are known to be gone
    Reset {
        /// The pool
        name: PoolName,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Hold a permit while a command runs, and end with its exit code
    Exec(Exec),
}

/// What is looked at.
#[derive(Debug, Args)]
pub struct Status {
    /// Only this pool
    pub name: Option<PoolName>,
    /// Look again and again
    #[arg(long)]
    pub watch: bool,
    /// How often, with --watch
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub every: Span,
    #[command(flatten)]
    pub server: Server,
}

/// A command that needs a permit.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: the command's own (128 + N if signal N ended it); 75 if there was \
no permit in\ntime; 76 if the permit was lost and the command was ended for it.

Examples:
  longshore pool exec mjml -- npx mjml mail.mjml -o mail.html
  longshore pool exec licence --max 3 --wait 10m -- ./simulate case7"
)]
pub struct Exec {
    /// The pool
    pub name: PoolName,
    /// How many permits it has, if nobody has asked of it before [default: the configuration's]
    #[arg(long, value_name = "N")]
    pub max: Option<u32>,
    /// Longest wait for a permit, 0 for ever [default: the configuration's, or for ever]
    #[arg(long, value_name = "TIME")]
    pub wait: Option<Span>,
    /// How much of the pool the command takes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub weight: u32,
    /// Its place in line: high, normal, low or 1 to 9
    #[arg(long, value_name = "PRIORITY", default_value_t = Priority::NORMAL)]
    pub priority: Priority,
    /// Let the command go on if the permit is lost meanwhile
    #[arg(long)]
    pub keep_going: bool,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}
