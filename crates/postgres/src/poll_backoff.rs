//! Poll intervals where no notifications arrive: the interval doubles until there is activity.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The interval after activity.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
/// The longest interval.
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// An interval that doubles.
#[derive(Debug)]
pub(crate) struct PollBackoff(Mutex<Duration>);

impl Default for PollBackoff {
    fn default() -> Self {
        Self(Mutex::new(MIN_INTERVAL))
    }
}

impl PollBackoff {
    /// Returns the interval to wait now, and doubles it.
    pub(crate) fn next(&self) -> Duration {
        let mut interval = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = *interval;
        *interval = (now * 2).min(MAX_INTERVAL);
        now
    }

    /// Returns to the shortest interval after activity.
    pub(crate) fn reset(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = MIN_INTERVAL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_second_until_something_happens() {
        let backoff = PollBackoff::default();
        let waits: Vec<u128> = (0..8).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(waits, [20, 40, 80, 160, 320, 640, 1000, 1000]);
        backoff.reset();
        assert_eq!(backoff.next(), MIN_INTERVAL);
    }
}
