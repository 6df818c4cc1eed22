//! Signal to a run that it must stop.

use std::sync::OnceLock;

use tokio::sync::Notify;

/// Why a run must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopReason {
    /// It was cancelled, or the lease is no longer the worker's.
    Cancelled,
    /// It exceeded its time limit.
    TimedOut,
    /// The worker stops.
    WorkerStopped,
}

/// Set once, awaited by the run.
#[derive(Debug, Default)]
pub(super) struct CancelSignal {
    reason: OnceLock<StopReason>,
    notify: Notify,
}

impl CancelSignal {
    /// Asks the run to stop.
    pub(super) fn cancel(&self, reason: StopReason) {
        let _ = self.reason.set(reason);
        self.notify.notify_waiters();
    }

    /// Waits until the run is asked to stop.
    pub(super) async fn cancelled(&self) -> StopReason {
        loop {
            let notified = self.notify.notified();
            if let Some(reason) = self.reason.get() {
                return *reason;
            }
            notified.await;
        }
    }
}
