//! How far ahead to claim: by time, not by number. Pure; the clock is a parameter.

use std::time::Duration;

use tokio::time::Instant;

/// What is claimed ahead should be finished in about this time.
const AHEAD: Duration = Duration::from_millis(100);
/// However fast the handlers are.
const MOST: f64 = 8_192.0;
/// Shorter stretches say more about the scheduler than about the handlers.
const WINDOW: Duration = Duration::from_millis(2);

/// A worker's measured rate.
#[derive(Debug)]
pub(crate) struct Pace {
    per_second: f64,
    from: Instant,
    ran: u64,
}

impl Pace {
    pub(crate) fn new(at: Instant) -> Self {
        Self { per_second: 0.0, from: at, ran: 0 }
    }

    /// The worker had work since the last observation, and has now finished `ran` units in all.
    pub(crate) fn observe(&mut self, ran: u64, at: Instant) {
        let passed = at.duration_since(self.from);
        if passed < WINDOW {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = (ran - self.ran) as f64 / passed.as_secs_f64();
        // A first measurement stands for itself; later ones smooth.
        self.per_second =
            if self.per_second == 0.0 { rate } else { (self.per_second + rate) / 2.0 };
        (self.from, self.ran) = (at, ran);
    }

    /// The worker had nothing to do: the time until now says nothing about its rate.
    pub(crate) fn rested(&mut self, ran: u64, at: Instant) {
        (self.from, self.ran) = (at, ran);
    }

    /// How many units to have buffered, when a run takes `mean_run` on one of `slots`.
    pub(crate) fn ahead(&self, mean_run: Duration, slots: u32) -> usize {
        if mean_run > AHEAD {
            return 0;
        }
        let by_rate = self.per_second * AHEAD.as_secs_f64();
        let by_run = AHEAD.as_secs_f64() / mean_run.as_secs_f64().max(1e-9) * f64::from(slots);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to MOST")]
        let units = by_rate.min(by_run).clamp(0.0, MOST) as usize;
        units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_worker_claims_ahead_what_it_finishes_in_a_tenth_of_a_second() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        assert_eq!(pace.ahead(MS, 4), 0, "nothing measured yet");
        pace.observe(100, start + 100 * MS);
        assert_eq!(pace.ahead(MS, 4), 100);
        assert_eq!(pace.ahead(50 * MS, 4), 8, "four slots run two each in that time");
    }

    #[test]
    fn slow_handlers_claim_nothing_ahead() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        pace.observe(1000, start + 100 * MS);
        assert_eq!(pace.ahead(101 * MS, 64), 0);
    }

    #[test]
    fn an_idle_stretch_does_not_slow_the_measured_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        pace.observe(100, start + 100 * MS);
        pace.rested(100, start + 60_000 * MS);
        pace.observe(200, start + 60_100 * MS);
        assert_eq!(pace.ahead(MS, 4), 100);
    }

    #[test]
    fn the_fastest_handler_is_bounded() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        pace.observe(10_000_000, start + 100 * MS);
        assert_eq!(pace.ahead(Duration::from_nanos(1), 1000), 8_192);
    }
}
