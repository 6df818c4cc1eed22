//! Poll intervals where no notifications arrive: the interval doubles until there is activity.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_core::DoublingDelay;

/// The interval after activity.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
/// The longest interval.
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// An interval that doubles.
#[derive(Debug)]
pub(crate) struct PollBackoff(Mutex<DoublingDelay>);

impl Default for PollBackoff {
    fn default() -> Self {
        Self(Mutex::new(DoublingDelay::new(MIN_INTERVAL, MAX_INTERVAL)))
    }
}

impl PollBackoff {
    fn lock(&self) -> MutexGuard<'_, DoublingDelay> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the interval to wait now, and doubles it.
    pub(crate) fn next(&self) -> Duration {
        self.lock().advance()
    }

    /// Returns to the shortest interval after activity.
    pub(crate) fn reset(&self) {
        self.lock().reset();
    }
}
