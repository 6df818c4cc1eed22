//! `ai`: asking, answering, and what it would cost.

mod ask;
mod estimate;
mod gateway;
pub mod health;
mod worker;

use crate::args::ai::Ai;
use crate::exit::ExitCode;
use crate::settings::Settings;

/// Whether the command ends by itself when it is told to.
pub fn obeys_signals(typed: &Ai) -> bool {
    matches!(typed, Ai::Worker(_) | Ai::Gateway(_))
}

/// Runs the command.
pub async fn run(typed: Ai, settings: &Settings) -> anyhow::Result<ExitCode> {
    match typed {
        Ai::Ask(typed) => ask::run(typed, settings).await,
        Ai::Worker(typed) => worker::run(typed, settings).await,
        Ai::Health { profiles } => health::run(&profiles, settings).await,
        Ai::Estimate(typed) => estimate::run(&typed, settings).await,
        Ai::Gateway(typed) => gateway::run(typed, settings).await,
    }
}
