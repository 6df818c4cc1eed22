//! How many units to prefetch: bounded by time, not by number. Pure; the clock is a parameter.

use std::time::Duration;

use tokio::time::Instant;

/// Prefetched units should finish within about this time.
const PREFETCH_TIME: Duration = Duration::from_millis(100);
/// Upper bound, however fast the handlers are.
const MAX_UNITS: f64 = 8_192.0;
/// Shorter windows measure the scheduler rather than the handlers.
const MIN_WINDOW: Duration = Duration::from_millis(2);

/// Handlers that take at most this long are started ahead.
const MAX_START_AHEAD_RUN: Duration = Duration::from_millis(1);
/// Units that are started ahead should run within about this time.
const START_AHEAD_TIME: Duration = Duration::from_millis(20);
/// Upper bound for workers with fewer slots, however fast the handlers are.
const MAX_START_AHEAD: f64 = 384.0;

/// Which units a worker claims beyond its free slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimBuffer {
    /// Up to so many, without starting them. Each costs another write when it starts.
    Prefetch(usize),
    /// Up to so many, started by the claim: for handlers that return at once.
    StartAhead(u32),
}

impl ClaimBuffer {
    /// The worker claims again when so many units are left.
    pub(crate) fn low_watermark(self) -> usize {
        match self {
            Self::Prefetch(target) => target - target / 4,
            Self::StartAhead(target) => target as usize / 2,
        }
    }
}

/// A worker's measured completion rate.
#[derive(Debug)]
pub(crate) struct PrefetchEstimator {
    per_second: f64,
    from: Instant,
    ran: u64,
}

impl PrefetchEstimator {
    pub(crate) fn new(at: Instant) -> Self {
        Self { per_second: 0.0, from: at, ran: 0 }
    }

    /// Updates the rate. The worker was busy since the last call, and has now finished `ran` units
    /// in total.
    pub(crate) fn observe(&mut self, ran: u64, at: Instant) {
        let passed = at.duration_since(self.from);
        if passed < MIN_WINDOW {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = (ran - self.ran) as f64 / passed.as_secs_f64();
        // The first measurement is used as it is; later ones are averaged.
        self.per_second = if self.per_second == 0.0 { rate } else { (self.per_second + rate) / 2.0 };
        (self.from, self.ran) = (at, ran);
    }

    /// Starts a new window: the worker was idle, so the time until now says nothing about its rate.
    pub(crate) fn restart_window(&mut self, ran: u64, at: Instant) {
        (self.from, self.ran) = (at, ran);
    }

    /// What to buffer if a run takes `mean_run` and there are `slots` slots.
    pub(crate) fn buffer(&self, mean_run: Duration, slots: u32) -> ClaimBuffer {
        if self.per_second > 0.0 && mean_run <= MAX_START_AHEAD_RUN {
            let by_rate = self.per_second * START_AHEAD_TIME.as_secs_f64();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "0 to MAX_START_AHEAD"
            )]
            let units = by_rate.clamp(0.0, MAX_START_AHEAD) as u32;
            return ClaimBuffer::StartAhead(units.max(slots));
        }
        ClaimBuffer::Prefetch(self.target(mean_run, slots))
    }

    /// How many units to prefetch if a run takes `mean_run` and there are `slots` slots.
    pub(crate) fn target(&self, mean_run: Duration, slots: u32) -> usize {
        if mean_run > PREFETCH_TIME {
            return 0;
        }
        let by_rate = self.per_second * PREFETCH_TIME.as_secs_f64();
        let by_run = PREFETCH_TIME.as_secs_f64() / mean_run.as_secs_f64().max(1e-9) * f64::from(slots);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to MAX_UNITS")]
        let units = by_rate.min(by_run).clamp(0.0, MAX_UNITS) as usize;
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
        let mut prefetch = PrefetchEstimator::new(start);
        assert_eq!(prefetch.target(MS, 4), 0, "nothing measured yet");
        prefetch.observe(100, start + 100 * MS);
        assert_eq!(prefetch.target(MS, 4), 100);
        assert_eq!(prefetch.target(50 * MS, 4), 8, "four slots run two each in that time");
    }

    #[test]
    fn only_handlers_that_return_at_once_are_started_ahead() {
        let start = Instant::now();
        let mut prefetch = PrefetchEstimator::new(start);
        assert_eq!(prefetch.buffer(Duration::ZERO, 64), ClaimBuffer::Prefetch(0), "nothing measured yet");
        prefetch.observe(1000, start + 100 * MS);
        assert_eq!(prefetch.buffer(MS, 64), ClaimBuffer::StartAhead(200), "as many as run in 20 ms");
        assert_eq!(prefetch.buffer(MS, 256), ClaimBuffer::StartAhead(256), "at least the slots");
        assert_eq!(prefetch.buffer(2 * MS, 64), ClaimBuffer::Prefetch(1000));
    }

    #[test]
    fn slow_handlers_claim_nothing_ahead() {
        let start = Instant::now();
        let mut prefetch = PrefetchEstimator::new(start);
        prefetch.observe(1000, start + 100 * MS);
        assert_eq!(prefetch.target(101 * MS, 64), 0);
    }

    #[test]
    fn an_idle_stretch_does_not_slow_the_measured_rate() {
        let start = Instant::now();
        let mut prefetch = PrefetchEstimator::new(start);
        prefetch.observe(100, start + 100 * MS);
        prefetch.restart_window(100, start + 60_000 * MS);
        prefetch.observe(200, start + 60_100 * MS);
        assert_eq!(prefetch.target(MS, 4), 100);
    }

    #[test]
    fn the_fastest_handler_is_bounded() {
        let start = Instant::now();
        let mut prefetch = PrefetchEstimator::new(start);
        prefetch.observe(10_000_000, start + 100 * MS);
        assert_eq!(prefetch.target(Duration::from_nanos(1), 1000), 8_192);
    }
}
