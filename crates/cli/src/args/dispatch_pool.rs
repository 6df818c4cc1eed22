//! The pool of a command, also of commands that are not about dispatch alone.

use std::path::PathBuf;

use clap::Args;

/// Selects a pool.
#[derive(Debug, Clone, Args)]
pub struct DispatchPoolArg {
    /// Folder of the pool, visible to all its machines [env: LONGSHORE_DISPATCH_DIR] [default:
    /// ~/.longshore/dispatch]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}
