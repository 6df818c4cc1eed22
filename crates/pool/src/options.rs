//! What one call wants different from its pool's habits.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::payload::Payload;
use crate::settings::WhenFull;

/// What one call wants different from its pool's habits.
#[derive(Debug, Clone)]
pub struct CallOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) at_most: Option<Duration>,
    pub(crate) priority: u8,
    pub(crate) progress: Option<mpsc::Sender<Payload>>,
    pub(crate) cancel: Option<CancellationToken>,
    pub(crate) cancel_on_drop: bool,
    pub(crate) when_full: Option<WhenFull>,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self {
            timeout: None,
            at_most: None,
            priority: 5,
            progress: None,
            cancel: None,
            cancel_on_drop: false,
            when_full: None,
        }
    }
}

impl CallOptions {
    /// How long the call may take, waiting included.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Cuts the time that the operation or the pool gives it to this.
    #[must_use]
    pub fn at_most(mut self, limit: Duration) -> Self {
        self.at_most = Some(limit);
        self
    }

    /// How early it goes among those that wait: 1 first, 9 last, 5 unless told.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority.clamp(1, 9);
        self
    }

    /// Where words on how far it is go. What the channel has no room for is dropped: the work does
    /// not wait for a listener.
    #[must_use]
    pub fn progress(mut self, to: mpsc::Sender<Payload>) -> Self {
        self.progress = Some(to);
        self
    }

    /// What becomes of it when as many calls wait as may.
    #[must_use]
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = Some(when_full);
        self
    }

    /// Takes the call back when the token is cancelled.
    #[must_use]
    pub fn cancelled_by(mut self, token: CancellationToken) -> Self {
        self.cancel = Some(token);
        self
    }

    /// Takes the call back when its caller's future is dropped. Without this it goes on, until its
    /// time is over, and its result is thrown away.
    #[must_use]
    pub fn cancel_on_drop(mut self) -> Self {
        self.cancel_on_drop = true;
        self
    }
}
