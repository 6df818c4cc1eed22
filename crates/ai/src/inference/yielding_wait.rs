//! Waits for a limit, and gives the worker's slot back if it is needed.
//!
//! While a unit waits, it reports so to its worker, so that the worker can claim others. If the
//! slot is needed, the unit is requeued, unless a call was already recorded or sent. Questions of
//! no unit keep waiting.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use longshore::Context;
use tokio::time::Instant;

/// With less time left than this a unit keeps its slot: requeued, it could report its timeout too
/// late.
const MIN_TIME_TO_YIELD: Duration = Duration::from_secs(5);

/// The result of a wait.
pub(super) enum WaitOutcome<T> {
    /// The future completed.
    Ready(T),
    /// The slot is needed by another unit.
    SlotNeeded,
}

/// Waits for `what`, for a question with deadline `until`.
pub(super) async fn wait<T>(
    run: Option<&Context>,
    until: Instant,
    what: impl Future<Output = T>,
) -> WaitOutcome<T> {
    let mut what = pin!(what);
    let Some(run) = run else { return WaitOutcome::Ready(what.await) };
    // Without a wait, nothing is reported.
    tokio::select! {
        biased;
        value = &mut what => return WaitOutcome::Ready(value),
        () = std::future::ready(()) => {}
    }
    let waiting = run.waits();
    let slot_needed = async {
        waiting.unwanted().await;
        if until.saturating_duration_since(Instant::now()) < MIN_TIME_TO_YIELD {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        value = &mut what => WaitOutcome::Ready(value),
        () = slot_needed => WaitOutcome::SlotNeeded,
    }
}
