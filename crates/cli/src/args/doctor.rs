//! Arguments of `longshore doctor`.

use clap::Args;

/// Find problems in the installation.
#[derive(Debug, Args)]
#[command(after_help = "Nothing is changed. Exit code 1 if a check fails; warnings do not change it.

Examples:
  longshore doctor
  longshore doctor --json
  longshore doctor --no-providers                   without asking AI providers")]
pub struct DoctorArgs {
    /// Skip the health checks of AI providers
    #[arg(long)]
    pub no_providers: bool,
}
