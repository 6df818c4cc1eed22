//! Options of one call.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::payload::CallPayload;
use crate::settings::WhenQueueFull;

/// Options of one call, which override the pool's settings.
#[derive(Debug, Clone)]
pub struct CallOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) at_most: Option<Duration>,
    pub(crate) priority: u8,
    pub(crate) progress: Option<mpsc::Sender<CallPayload>>,
    pub(crate) cancel: Option<CancellationToken>,
    pub(crate) cancel_on_drop: bool,
    pub(crate) when_full: Option<WhenQueueFull>,
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
    /// The call's timeout, time in the queue included.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// An upper limit for the timeout of the operation or the pool.
    #[must_use]
    pub fn at_most(mut self, limit: Duration) -> Self {
        self.at_most = Some(limit);
        self
    }

    /// The call's place in the queue: 1 first, 9 last. Default: 5.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority.clamp(1, 9);
        self
    }

    /// Sends progress values to this channel. A value is dropped if the channel is full: the
    /// operation does not wait for the receiver.
    #[must_use]
    pub fn progress(mut self, to: mpsc::Sender<CallPayload>) -> Self {
        self.progress = Some(to);
        self
    }

    /// What happens if the queue is full.
    #[must_use]
    pub fn when_full(mut self, when_full: WhenQueueFull) -> Self {
        self.when_full = Some(when_full);
        self
    }

    /// Cancels the call when the token is cancelled.
    #[must_use]
    pub fn cancelled_by(mut self, token: CancellationToken) -> Self {
        self.cancel = Some(token);
        self
    }

    /// Cancels the call when the caller's future is dropped. Without this the call continues until
    /// it is done or its deadline passes, and its result is discarded.
    #[must_use]
    pub fn cancel_on_drop(mut self) -> Self {
        self.cancel_on_drop = true;
        self
    }
}
