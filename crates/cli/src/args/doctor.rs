//! `longshore doctor` as typed.

use clap::Args;

/// Look for what is wrong.
#[derive(Debug, Args)]
#[command(
    after_help = "Nothing is changed. Exit code 1 if something is wrong; what is only doubtful is said.

Examples:
  longshore doctor
  longshore doctor --json
  longshore doctor --no-providers                   without asking AI providers"
)]
pub struct Doctor {
    /// Do not ask AI providers how they are
    #[arg(long)]
    pub no_providers: bool,
}
