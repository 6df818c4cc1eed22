//! Arguments of `longshore pool …`.

use clap::{Args, Subcommand};
use longshore::{HumanDuration, PoolName, Priority};

use super::server::ServerArgs;

/// Show and resize bounded pools, hold a permit while a command runs.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Show pools; with a name also its holders and waiters
    Status(PoolStatusArgs),
    /// Create a pool, or all of the configuration; existing pools are not changed
    Init {
        /// Name of the pool [default: all of the configuration]
        name: Option<PoolName>,
        /// Number of permits [default: the configuration's]
        #[arg(long, value_name = "N", requires = "name")]
        max: Option<u32>,
    },
    /// Resize a pool: new permits are available at once, surplus ones are removed as they are
    /// released
    Resize {
        /// Name of the pool
        name: PoolName,
        /// Number of permits
        max: u32,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Reset a pool's holders, waiters and statistics: only if its holders are known to be gone
    Reset {
        /// Name of the pool
        name: PoolName,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
    /// Hold a permit while a command runs, and exit with its exit code
    Exec(PoolExecArgs),
}

/// Shows pools.
#[derive(Debug, Args)]
pub struct PoolStatusArgs {
    /// Only this pool
    pub name: Option<PoolName>,
    /// Refresh until interrupted
    #[arg(long)]
    pub watch: bool,
    /// Refresh interval, with --watch
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub every: HumanDuration,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Runs a command under a permit.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: the command's own (128 + N if signal N ended it); 75 if there was \
no permit in\ntime; 76 if the permit was lost and the command was ended for it.

Examples:
  longshore pool exec mjml -- npx mjml mail.mjml -o mail.html
  longshore pool exec licence --max 3 --wait 10m -- ./simulate case7")]
pub struct PoolExecArgs {
    /// Name of the pool
    pub name: PoolName,
    /// Number of permits if the pool is new [default: the configuration's]
    #[arg(long, value_name = "N")]
    pub max: Option<u32>,
    /// Maximum wait for a permit, 0 for ever [default: the configuration's, or for ever]
    #[arg(long, value_name = "TIME")]
    pub wait: Option<HumanDuration>,
    /// Permits that the command takes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub weight: u32,
    /// Priority among waiters: high, normal, low or 1 to 9
    #[arg(long, value_name = "PRIORITY", default_value_t = Priority::NORMAL)]
    pub priority: Priority,
    /// Keep the command running if the permit is lost
    #[arg(long)]
    pub keep_going: bool,
    /// Command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}
