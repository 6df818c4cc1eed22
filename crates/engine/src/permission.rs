//! Units whose kind holds a permit of a bounded pool while it runs: the wait for it, and its loss.

use std::time::Duration;

use longshore_core::{Failure, Outcome, Unit};
use tokio::time::sleep;

use crate::bounded_pool::{AcquireError, BoundedPool, Permit};
use crate::context::Reins;
use crate::station::Station;

/// When a unit comes again that got no permit.
const AGAIN: Duration = Duration::from_secs(1);

/// How long a slot rests whose unit could not even wait: or a worker would run through its whole queue and
/// put each unit aside.
const REST: Duration = Duration::from_secs(1);

/// A permit, if the unit's kind needs one; or what becomes of the unit without.
pub(crate) async fn wait(
    station: &Station,
    unit: &Unit,
    reins: &Reins,
) -> Result<Option<Permit>, Outcome> {
    match station.settings.holds.get(&unit.kind) {
        None => Ok(None),
        // In a box: few need it, and all units would carry the room for it.
        Some(pool) => Box::pin(wait_for(pool, unit, reins)).await.map(Some),
    }
}

async fn wait_for(pool: &BoundedPool, unit: &Unit, reins: &Reins) -> Result<Permit, Outcome> {
    tokio::select! {
        biased;
        permit = acquire(pool, unit) => permit,
        late = deadline(unit) => Err(late),
        // Whether it was cancelled or only interrupted is seen later.
        () = reins.token.cancelled() => Err(Outcome::Interrupted),
    }
}

async fn acquire(pool: &BoundedPool, unit: &Unit) -> Result<Permit, Outcome> {
    let error = match pool.request().priority(unit.priority).acquire().await {
        Ok(permit) => return Ok(permit),
        Err(error) => error,
    };
    tracing::debug!(unit = %unit.id, %error, "no permit for a unit");
    if !matches!(error, AcquireError::TimedOut { .. }) {
        sleep(REST).await;
    }
    Err(Outcome::Snooze(AGAIN))
}

/// Its deadline does not wait for permits.
async fn deadline(unit: &Unit) -> Outcome {
    let Some(deadline) = unit.deadline else { return std::future::pending().await };
    sleep(deadline.since(unit.started_at.unwrap_or(unit.since))).await;
    let failure = Failure::new("deadline", "its deadline passed while it waited for a permit");
    Outcome::Retry { failure, after: None }
}

/// Returns when a permit that is held is lost: somebody else may have it by now.
pub(crate) async fn lost(permit: Option<&Permit>) -> Outcome {
    let Some(permit) = permit else { return std::future::pending().await };
    Box::pin(permit.lost()).await;
    let failure = Failure::new("permit-lost", "its permit of a bounded pool was lost while it ran");
    Outcome::Retry { failure, after: None }
}
