//! Runs batches to their end, prints the result of each, and chooses the exit code.

use std::time::Duration;

use longshore_batch::BatchFill;
use longshore_batch::definition::RowConcurrency;

use super::completion_wait::CompletionStatus;
use super::context::BatchContext;
use super::runner::{BatchRun, run_to_end};
use super::summary;
use crate::commands::wait;
use crate::error;
use crate::exit::ExitCode;
use crate::settings::Settings;

/// How long commands may take to shut down.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the batches and prints a summary, or an error, of each.
pub async fn run_batches(
    context: &BatchContext,
    initiations: Vec<BatchFill>,
    workers: Option<RowConcurrency>,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let mut codes = Vec::new();
    let batch_run = run_to_end(context, initiations, workers, settings).await;
    context.commands.close(SHUTDOWN_TIMEOUT).await;
    for one in batch_run? {
        codes.push(match one {
            Ok(one) => {
                summary::print(&one, context, settings).await?;
                exit_code(&one)
            }
            Err(error) => error::report(&error),
        });
    }
    Ok(most_severe(codes))
}

/// The exit code of one batch.
fn exit_code(batch_run: &BatchRun) -> ExitCode {
    match batch_run {
        BatchRun { interrupted: true, .. } => ExitCode::Interrupted,
        BatchRun { end: CompletionStatus::Failed(_), .. } => ExitCode::Error,
        BatchRun { batch, .. } => wait::batch_code(batch),
    }
}

/// The exit code with the highest severity.
pub fn most_severe(codes: impl IntoIterator<Item = ExitCode>) -> ExitCode {
    let rank = |code: &ExitCode| match code {
        ExitCode::Interrupted => 4,
        ExitCode::Error | ExitCode::Usage | ExitCode::Refused => 3,
        ExitCode::Cancelled => 2,
        ExitCode::Failures | ExitCode::Program(_) => 1,
        ExitCode::Good => 0,
    };
    codes.into_iter().max_by_key(rank).unwrap_or(ExitCode::Good)
}
