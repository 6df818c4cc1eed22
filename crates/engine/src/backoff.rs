//! Exponential backoff with jitter, so that many processes do not retry at the same time.

use std::time::Duration;

use longshore_core::{DoublingDelay, half_jitter};

use crate::randomness::random;

/// A [`DoublingDelay`] with jitter.
#[derive(Debug, Clone)]
pub struct Backoff(DoublingDelay);

impl Backoff {
    /// Creates a backoff that doubles from `base` up to `cap`.
    pub fn new(base: Duration, cap: Duration) -> Self {
        Self(DoublingDelay::new(base, cap))
    }

    /// For calls to an unavailable store: 50 ms to 5 s.
    pub fn store() -> Self {
        Self::new(Duration::from_millis(50), Duration::from_secs(5))
    }

    /// Returns the next wait: between half of the current ceiling and all of it.
    pub fn next_wait(&mut self) -> Duration {
        jitter(self.0.advance())
    }

    /// The number of waits since the last reset.
    pub fn tries(&self) -> u32 {
        self.0.tries()
    }

    /// Starts again at the shortest wait.
    pub fn reset(&mut self) {
        self.0.reset();
    }

    /// Sleeps for the next wait.
    pub async fn wait(&mut self) {
        tokio::time::sleep(self.next_wait()).await;
    }
}

/// A random duration between half of `duration` and all of it.
pub(crate) fn jitter(duration: Duration) -> Duration {
    half_jitter(duration, f64::from(u32::try_from(random() % 1024).unwrap_or(0)) / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_and_keep_their_jitter() {
        let mut backoff = Backoff::store();
        for ceiling in [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let wait = backoff.next_wait();
            let most = Duration::from_millis(ceiling);
            assert!(wait >= most / 2 && wait <= most, "{wait:?} of {most:?}");
        }
        backoff.reset();
        assert!(backoff.next_wait() <= Duration::from_millis(50));
    }
}
