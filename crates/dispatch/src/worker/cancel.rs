//! Word to a run that it must end.

use std::sync::OnceLock;

use tokio::sync::Notify;

/// Why a run must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopReason {
    /// Somebody cancelled it, or it is not ours any more.
    Cancelled,
    /// It ran longer than it might.
    TimedOut,
    /// The worker stops.
    WorkerStopped,
}

/// Told once, heard by the run.
#[derive(Debug, Default)]
pub(super) struct CancelSignal {
    reason: OnceLock<StopReason>,
    notify: Notify,
}

impl CancelSignal {
    /// Says that the run must end.
    pub(super) fn cancel(&self, reason: StopReason) {
        let _ = self.reason.set(reason);
        self.notify.notify_waiters();
    }

    /// Returns once it was told.
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
