//! Permits for units: waits for a permit of the kind's bounded pool before the run, and ends the
//! run when it is lost.

use std::time::Duration;

use longshore_core::{Failure, Outcome, Unit};
use tokio::time::sleep;

use crate::bounded_pool::{AcquireError, BoundedPool, Permit};
use crate::context::RunControl;
use crate::worker_inner::WorkerInner;

/// Snooze of a unit that got no permit.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Pause after a request that failed without a wait. Without the pause a worker would claim and
/// snooze its whole queue.
const REJECTED_PAUSE: Duration = Duration::from_secs(1);

/// Acquires a permit if the unit's kind needs one. Returns the unit's outcome if there is none.
pub(crate) async fn acquire(
    worker: &WorkerInner,
    unit: &Unit,
    run_control: &RunControl,
) -> Result<Option<Permit>, Outcome> {
    match worker.settings.permit_pools.get(&unit.kind) {
        None => Ok(None),
        // Boxed: few kinds need it, and every run would reserve space for it.
        Some(pool) => Box::pin(acquire_or_end(pool, unit, run_control)).await.map(Some),
    }
}

async fn acquire_or_end(
    pool: &BoundedPool,
    unit: &Unit,
    run_control: &RunControl,
) -> Result<Permit, Outcome> {
    tokio::select! {
        biased;
        permit = acquire_from(pool, unit) => permit,
        outcome = pass_deadline(unit) => Err(outcome),
        // `normalise` decides later whether it was cancelled or interrupted.
        () = run_control.token.cancelled() => Err(Outcome::Interrupted),
    }
}

async fn acquire_from(pool: &BoundedPool, unit: &Unit) -> Result<Permit, Outcome> {
    let error = match pool.request().priority(unit.priority).acquire().await {
        Ok(permit) => return Ok(permit),
        Err(error) => error,
    };
    tracing::debug!(unit = %unit.id, %error, "a unit got no permit");
    if !matches!(error, AcquireError::TimedOut { .. }) {
        sleep(REJECTED_PAUSE).await;
    }
    Err(Outcome::Snooze(RETRY_DELAY))
}

/// Ends the wait at the unit's deadline.
async fn pass_deadline(unit: &Unit) -> Outcome {
    let Some(deadline) = unit.deadline else { return std::future::pending().await };
    sleep(deadline.since(unit.started_at.unwrap_or(unit.since))).await;
    let failure = Failure::new("deadline", "its deadline passed while it waited for a permit");
    Outcome::Retry { failure, after: None }
}

/// Returns when a held permit is lost and another holder may have it.
pub(crate) async fn permit_lost(permit: Option<&Permit>) -> Outcome {
    let Some(permit) = permit else { return std::future::pending().await };
    Box::pin(permit.lost()).await;
    let failure = Failure::new("permit-lost", "its permit of a bounded pool was lost while it ran");
    Outcome::Retry { failure, after: None }
}
