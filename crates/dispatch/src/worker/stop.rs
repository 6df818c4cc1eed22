//! Word to a run that it must end.

use std::sync::OnceLock;

use tokio::sync::Notify;

/// Why a run must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Somebody cancelled it, or it is not ours any more.
    Cancelled,
    /// It ran longer than it might.
    OutOfTime,
    /// The worker stops.
    Stopped,
}

/// Told once, heard by the run.
#[derive(Debug, Default)]
pub(super) struct Stop {
    why: OnceLock<Why>,
    told: Notify,
}

impl Stop {
    /// Says that the run must end.
    pub(super) fn tell(&self, why: Why) {
        let _ = self.why.set(why);
        self.told.notify_waiters();
    }

    /// Returns once it was told.
    pub(super) async fn told(&self) -> Why {
        loop {
            let told = self.told.notified();
            if let Some(why) = self.why.get() {
                return *why;
            }
            told.await;
        }
    }
}
