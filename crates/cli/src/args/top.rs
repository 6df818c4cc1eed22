//! Arguments of `longshore top`.

use clap::Args;
use longshore::HumanDuration;

/// Watch queues, workers, batches and pools.
#[derive(Debug, Args)]
#[command(
    after_help = "Keys: tab goes to the next list, up and down choose in it, p pauses or resumes the chosen queue or
batch, q leaves. Where stdout is no terminal, or with --json, one frame is printed."
)]
pub struct TopArgs {
    /// Refresh interval
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub every: HumanDuration,
}
