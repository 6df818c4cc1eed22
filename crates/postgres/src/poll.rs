//! How often is looked where no notices come: less and less often, until something happens.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The first wait after something happened.
const FIRST: Duration = Duration::from_millis(20);
/// The longest.
const LAST: Duration = Duration::from_secs(1);

/// A wait that doubles.
#[derive(Debug)]
pub(crate) struct Poll(Mutex<Duration>);

impl Default for Poll {
    fn default() -> Self {
        Self(Mutex::new(FIRST))
    }
}

impl Poll {
    /// How long to wait now.
    pub(crate) fn next(&self) -> Duration {
        let mut wait = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = *wait;
        *wait = (now * 2).min(LAST);
        now
    }

    /// Something happened.
    pub(crate) fn reset(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_second_until_something_happens() {
        let poll = Poll::default();
        let waits: Vec<u128> = (0..8).map(|_| poll.next().as_millis()).collect();
        assert_eq!(waits, [20, 40, 80, 160, 320, 640, 1000, 1000]);
        poll.reset();
        assert_eq!(poll.next(), FIRST);
    }
}
