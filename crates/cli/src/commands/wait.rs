//! Waits for the end of a unit or batch, and maps it to an exit code.

use std::time::Duration;

use longshore::{Batch, BatchId, BatchStatus, Client, HumanDuration, UnitState, WaitError};

use crate::error::WithHint;
use crate::exit::ExitCode;

/// Waits for a batch without progress output.
pub async fn batch(client: &Client, name: &BatchId, limit: Option<Duration>) -> anyhow::Result<ExitCode> {
    let batch = client.wait_batch(name, limit, |_| {}).await;
    let batch = batch.hint(format!("it continues; `longshore batch watch {name}` follows it"))?;
    Ok(batch_code(&batch))
}

/// Ends a wait after the limit, if there is one.
pub async fn with_wait_limit<T>(
    limit: Option<HumanDuration>,
    hint: &str,
    waiting: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let Some(HumanDuration(limit)) = limit else { return waiting.await };
    let ended = tokio::time::timeout(limit, waiting).await;
    ended.map_err(|_| WaitError::TimedOut(limit)).hint(hint)?
}

/// The exit code for a batch.
pub fn batch_code(batch: &Batch) -> ExitCode {
    match batch.status {
        BatchStatus::Failed => ExitCode::Failures,
        BatchStatus::Cancelled | BatchStatus::Paused => ExitCode::Cancelled,
        BatchStatus::Complete | BatchStatus::Running | BatchStatus::Queued => {
            if batch.counts.failed > 0 {
                ExitCode::Failures
            } else {
                ExitCode::Good
            }
        }
    }
}

/// The exit code for a unit.
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
