//! Delays between attempts: doubled after each failure, up to a limit, and spread by jitter.

use std::time::Duration;

/// The delay after `doublings` earlier delays: `base` doubled so many times, at most `cap`.
pub fn exponential_delay(base: Duration, cap: Duration, doublings: u32) -> Duration {
    base.saturating_mul(1 << doublings.min(31)).min(cap)
}

/// Between half of `delay` and all of it. `share` is uniform between 0 and 1: callers that failed
/// together do not retry together.
pub fn half_jitter(delay: Duration, share: f64) -> Duration {
    let half = delay / 2;
    half + half.mul_f64(share.clamp(0.0, 1.0))
}

/// A delay that doubles from `base` up to `cap`, until it is reset.
#[derive(Debug, Clone)]
pub struct DoublingDelay {
    base: Duration,
    cap: Duration,
    tries: u32,
}

impl DoublingDelay {
    /// Starts at `base`.
    pub const fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap, tries: 0 }
    }

    /// Returns the current delay, and doubles it.
    pub fn advance(&mut self) -> Duration {
        let delay = exponential_delay(self.base, self.cap, self.tries);
        self.tries = self.tries.saturating_add(1);
        delay
    }

    /// The number of delays since the last reset.
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// Starts again at the shortest delay.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap_until_they_are_reset() {
        let mut delay = DoublingDelay::new(Duration::from_millis(20), Duration::from_secs(1));
        let delays: Vec<u128> = (0..8).map(|_| delay.advance().as_millis()).collect();
        assert_eq!(delays, [20, 40, 80, 160, 320, 640, 1000, 1000]);
        delay.reset();
        assert_eq!(delay.advance(), Duration::from_millis(20));
        assert_eq!(exponential_delay(Duration::MAX, Duration::MAX, u32::MAX), Duration::MAX);
    }

    #[test]
    fn jitter_takes_at_most_half() {
        let delay = Duration::from_secs(10);
        let seconds = [-1.0, 0.0, 0.5, 1.0, 2.0].map(|share| half_jitter(delay, share).as_secs_f64());
        assert_eq!(seconds, [5.0, 5.0, 7.5, 10.0, 10.0]);
    }
}
