//! `ai`: asks models, answers requests, and estimates costs.

mod ask;
mod estimate;
mod gateway;
pub mod health;
mod replies;
mod worker;

use crate::args::ai::AiCommand;
use crate::exit::ExitCode;
use crate::settings::Settings;

/// Whether the command handles SIGTERM and SIGINT itself.
pub fn handles_signals(typed: &AiCommand) -> bool {
    matches!(typed, AiCommand::Worker(_) | AiCommand::Gateway(_))
}

/// Runs the command.
pub async fn run(typed: AiCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    match typed {
        AiCommand::Ask(typed) => ask::run(typed, settings).await,
        AiCommand::Worker(typed) => worker::run(typed, settings).await,
        AiCommand::Health(typed) => health::run(&typed, settings).await,
        AiCommand::Estimate(typed) => estimate::run(&typed, settings).await,
        AiCommand::Gateway(typed) => gateway::run(typed, settings).await,
        AiCommand::Replies(typed) => replies::run(typed, settings).await,
    }
}
