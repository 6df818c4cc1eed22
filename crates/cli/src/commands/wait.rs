//! Waiting for an end, and saying by the exit code how it went.

use std::time::Duration;

use longshore::{Batch, BatchId, BatchStatus, Client, UnitState};

use crate::error::WithHint;
use crate::exit::ExitCode;

/// Waits for a batch without showing anything.
pub async fn batch(
    client: &Client,
    name: &BatchId,
    limit: Option<Duration>,
) -> anyhow::Result<ExitCode> {
    let batch = client.wait_batch(name, limit, |_| {}).await;
    let batch = batch.hint(format!("it goes on; follow it with `longshore batch watch {name}`"))?;
    Ok(batch_code(&batch))
}

/// How a batch went.
pub fn batch_code(batch: &Batch) -> ExitCode {
    match batch.status {
        BatchStatus::Failed => ExitCode::Failures,
        BatchStatus::Cancelled | BatchStatus::Paused => ExitCode::Cancelled,
        BatchStatus::Complete | BatchStatus::Running | BatchStatus::Queued => {
            if batch.counts.failed > 0 { ExitCode::Failures } else { ExitCode::Good }
        }
    }
}

/// How a unit went.
pub fn unit_code(state: UnitState) -> ExitCode {
    match state {
        UnitState::Failed => ExitCode::Failures,
        UnitState::Cancelled => ExitCode::Cancelled,
        UnitState::Done
        | UnitState::Blocked
        | UnitState::Scheduled
        | UnitState::Ready
        | UnitState::Leased => ExitCode::Good,
    }
}
