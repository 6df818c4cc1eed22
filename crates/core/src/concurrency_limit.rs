//! Adaptive concurrency limit: how many calls to keep in flight when the server's capacity is
//! unknown.
//!
//! Additive increase, multiplicative decrease (AIMD), with latency as a further signal. While calls
//! take about as long as at their best, the limit grows. When they take clearly longer, they queue
//! on the server, and the limit shrinks. When the server rejects calls as too many, the limit
//! shrinks by a factor. A few failures are ignored: some calls fail at any concurrency. Pure:
//! [`ConcurrencyLimit::update`] takes the measurements of a time window and returns the new limit.

use std::time::Duration;

/// The bounds and the current limit.
#[derive(Debug, Clone, PartialEq)]
pub struct ConcurrencyLimit {
    min: f64,
    max: f64,
    limit: f64,
    /// The lowest mean latency since the last probe, in seconds.
    best: Option<f64>,
    /// Windows until the next probe; in the last two of them the limit is halved.
    until_probe: u32,
    /// Windows left without growth, after an overload.
    hold_windows: u32,
    recent: RecentCalls,
    slow: SlowStreak,
}

/// The measurements of a time window.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CallWindow {
    /// Calls that succeeded.
    pub answered: u32,
    /// Calls that the server rejected as too many (rate limit, overload).
    pub rejected: u32,
    /// Calls that failed for a reason that may depend on their number: they timed out, or the
    /// server returned an error.
    pub failed: u32,
    /// Mean latency of the calls that succeeded.
    pub latency: Duration,
    /// Most calls in flight at once.
    pub max_in_flight: u32,
    /// Mean time that calls waited for the limit before they were sent.
    pub queue_time: Duration,
}

/// Latency up to this factor of the best counts as the best: noise.
const LATENCY_TOLERANCE: f64 = 1.5;
/// The limit is multiplied by this after an overload.
const BACKOFF_FACTOR: f64 = 0.7;
/// Windows without growth after an overload.
const HOLD_WINDOWS: u32 = 5;
/// A larger share of rejected calls counts as an overload.
const MAX_REFUSED_SHARE: f64 = 0.02;
/// A larger share of failed calls counts as an overload.
const MAX_FAILED_SHARE: f64 = 0.1;
/// Windows between probes. A probe halves the limit for two windows, one to settle and one to
/// measure: only with few calls in flight can the latency of a single call be measured. Without
/// probes, a server that became slower for good would be limited for ever, and a best latency that
/// decays would drift up with the queueing that it permits.
const PROBE_INTERVAL: u32 = 60;
/// After this many slow windows in a row a probe starts early.
const MAX_SLOW_WINDOWS: u32 = 5;
/// If half the calls have at least this factor of the former latency, calls did not queue behind
/// each other.
const UNCHANGED_LATENCY: f64 = 0.8;

/// Calls of the last few windows, decayed: one window may be too short to tell one failure in fifty
/// from one in a hundred.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct RecentCalls {
    answered: f64,
    refused: f64,
    failed: f64,
}

impl RecentCalls {
    fn record(&mut self, window: &CallWindow) {
        let decay = |before: f64, now: u32| before * 0.8 + f64::from(now);
        self.answered = decay(self.answered, window.answered);
        self.refused = decay(self.refused, window.rejected);
        self.failed = decay(self.failed, window.failed);
    }

    /// Whether `bad` calls exceed `share` of all calls. A single one does not count.
    fn exceeds(&self, bad: f64, share: f64) -> bool {
        bad > 1.0 && bad > (self.answered + bad) * share
    }
}

/// Consecutive slow windows.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct SlowStreak {
    windows: u32,
    /// The limit before the first of them.
    limit_before: f64,
    /// Latency in the last of them.
    latency: f64,
}

impl ConcurrencyLimit {
    /// Starts with `start` calls, and stays between `min` and `max`.
    pub fn new(min: u32, start: u32, max: u32) -> Self {
        let (min, max) = (f64::from(min.max(1)), f64::from(max.max(1)));
        let max = max.max(min);
        Self {
            min,
            max,
            limit: f64::from(start).clamp(min, max),
            best: None,
            until_probe: PROBE_INTERVAL,
            hold_windows: 0,
            recent: RecentCalls::default(),
            slow: SlowStreak::default(),
        }
    }

    /// The current limit.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 1..=max")]
    pub fn limit(&self) -> u32 {
        let now = if self.until_probe < 2 { self.limit / 2.0 } else { self.limit };
        now.max(self.min).round() as u32
    }

    /// Learns from a window, and returns the new limit.
    pub fn update(&mut self, window: &CallWindow) -> u32 {
        let probing = self.until_probe < 2;
        let measured = self.until_probe == 0;
        self.until_probe = self.until_probe.checked_sub(1).unwrap_or(PROBE_INTERVAL);
        self.hold_windows = self.hold_windows.saturating_sub(1);
        self.recent.record(window);
        if self.is_overloaded(window) {
            self.back_off();
        } else if measured && window.answered > 0 {
            self.record_probe(latency_secs(window));
        } else if !probing && window.answered > 0 {
            self.adjust_by_latency(window);
        }
        self.limit = self.limit.clamp(self.min, self.max);
        self.limit()
    }

    fn is_overloaded(&self, window: &CallWindow) -> bool {
        let RecentCalls { refused, failed, .. } = self.recent;
        (window.rejected > 0 && self.recent.exceeds(refused, MAX_REFUSED_SHARE))
            || (window.failed > 0 && self.recent.exceeds(failed, MAX_FAILED_SHARE))
    }

    fn back_off(&mut self) {
        self.slow = SlowStreak::default();
        // Rejections within a few windows are one overload: back off once.
        if self.hold_windows == 0 {
            self.limit *= BACKOFF_FACTOR;
            self.hold_windows = HOLD_WINDOWS;
        }
    }

    /// Takes the latency measured by a probe.
    fn record_probe(&mut self, now: f64) {
        let slow = std::mem::take(&mut self.slow);
        if slow.windows == 0 {
            self.best = Some(now);
        } else if now >= slow.latency * UNCHANGED_LATENCY {
            // Fewer calls are no faster: concurrency is not the cause, so restore the limit.
            self.best = Some(now);
            self.limit = slow.limit_before;
        } else {
            // Calls still queue behind each other, so this is not the latency of a single call.
            self.best = self.best.map(|best| best.min(now));
        }
    }

    fn adjust_by_latency(&mut self, window: &CallWindow) {
        let now = latency_secs(window);
        let best = self.best.map_or(now, |best| best.min(now));
        self.best = Some(best);
        let gradient = (best * LATENCY_TOLERANCE / now).clamp(0.5, 1.0);
        if gradient < 1.0 {
            self.record_slow_window(now);
            // Shrink by at most a tenth per window: one slow window is no trend.
            self.limit *= gradient.max(0.9);
            return;
        }
        self.slow = SlowStreak::default();
        if self.hold_windows == 0 && f64::from(window.max_in_flight) >= self.limit * 0.8 {
            // Grow only if the limit is used; otherwise nothing is known about a higher one.
            self.limit += (self.limit.sqrt() / 2.0).max(1.0) * growth_steps(window);
        }
    }

    /// Counts a slow window. Only a probe tells whether calls queue or the server became slower for
    /// good.
    fn record_slow_window(&mut self, latency: f64) {
        let SlowStreak { windows, limit_before, .. } = self.slow;
        let limit_before = if windows == 0 { self.limit } else { limit_before };
        self.slow = SlowStreak { windows: windows + 1, limit_before, latency };
        if windows + 1 >= MAX_SLOW_WINDOWS {
            self.until_probe = self.until_probe.min(1);
        }
    }
}

/// Steps to grow by: several if calls wait for the limit longer than they take.
fn growth_steps(window: &CallWindow) -> f64 {
    (window.queue_time.as_secs_f64() / latency_secs(window)).clamp(1.0, 4.0)
}

fn latency_secs(window: &CallWindow) -> f64 {
    window.latency.as_secs_f64().max(1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers `capacity` calls at once in `base` seconds; more calls queue. It
    /// rejects calls above `rate_limit` per second. A share `lost_share` of its answers is lost,
    /// and all answers above `drops_above` calls at once.
    #[derive(Clone, Copy)]
    struct Server {
        base: f64,
        capacity: f64,
        rate_limit: f64,
        lost_share: f64,
        drops_above: f64,
    }

    /// Rejects nothing, loses nothing.
    const GOOD: Server = Server {
        base: 0.8,
        capacity: UNLIMITED,
        rate_limit: UNLIMITED,
        lost_share: 0.0,
        drops_above: UNLIMITED,
    };

    impl Server {
        /// The `at`th window, of `length` seconds, with `n` calls in flight.
        fn window(&self, at: u32, length: f64, n: u32) -> CallWindow {
            let latency = self.base * (f64::from(n) / self.capacity).max(1.0);
            let offered = f64::from(n) / latency * length;
            let refused = (offered - self.rate_limit * length).max(0.0);
            let dropped = (1.0 - self.drops_above / f64::from(n)).max(0.0);
            let failed = (offered - refused) * (self.lost_share + dropped);
            CallWindow {
                answered: calls_in(at, offered - refused - failed),
                rejected: calls_in(at, refused),
                failed: calls_in(at, failed),
                latency: Duration::from_secs_f64(latency),
                max_in_flight: n,
                queue_time: Duration::ZERO,
            }
        }

        /// Windows of a second each, or of twice the base latency if that is longer.
        fn run(&self, adaptive: &mut ConcurrencyLimit, windows: u32) -> Vec<u32> {
            let length = (self.base * 2.0).max(1.0);
            let next = |at| adaptive.update(&self.window(at, length, adaptive.limit()));
            (0..windows).map(next).collect()
        }
    }

    /// Calls in the `at`th window at `amount` calls per window: whole calls, fractions carried
    /// over.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test")]
    fn calls_in(at: u32, amount: f64) -> u32 {
        let before = (f64::from(at) * amount).floor();
        ((f64::from(at) + 1.0) * amount).floor() as u32 - before as u32
    }

    /// The lowest and highest limit.
    fn min_max(limits: &[u32]) -> (u32, u32) {
        (*limits.iter().min().unwrap(), *limits.iter().max().unwrap())
    }

    const UNLIMITED: f64 = f64::INFINITY;

    /// Below the capacity throughput is lost; beyond the tolerance calls only queue.
    fn assert_settled_at(capacity: f64, limits: &[u32]) {
        let (low, high) = min_max(limits);
        assert!(f64::from(low) >= capacity * 0.9, "{capacity}: {low}..{high}");
        let most = capacity * LATENCY_TOLERANCE * 1.5 + 3.0;
        assert!(f64::from(high) <= most, "{capacity}: {low}..{high}");
    }

    #[test]
    fn it_finds_what_a_server_can_take() {
        for capacity in [4.0, 30.0, 200.0] {
            let server = Server { capacity, ..GOOD };
            let mut adaptive = ConcurrencyLimit::new(1, 4, 1_000);
            let limits = server.run(&mut adaptive, 300);
            assert_settled_at(capacity, &limits[200..240]);
        }
    }

    #[test]
    fn a_backlog_that_grows_old_is_met_with_haste() {
        let server = Server { capacity: 200.0, ..GOOD };
        let after = |waited| {
            let mut adaptive = ConcurrencyLimit::new(1, 4, 1_000);
            for at in 0..10 {
                let window = server.window(at, 1.6, adaptive.limit());
                adaptive.update(&CallWindow { queue_time: waited, ..window });
            }
            adaptive.limit()
        };
        let (calm, behind) = (after(Duration::ZERO), after(Duration::from_secs(60)));
        assert!(behind > calm * 2, "{calm}, {behind}");
    }

    #[test]
    fn it_stays_under_a_rate_limit_most_of_the_time() {
        let server = Server { base: 1.0, rate_limit: 50.0, ..GOOD };
        let mut adaptive = ConcurrencyLimit::new(1, 4, 1_000);
        let limits = server.run(&mut adaptive, 400);
        let settled = &limits[200..];
        let mean = f64::from(settled.iter().sum::<u32>()) / 200.0;
        assert!((35.0..=55.0).contains(&mean), "{mean}");
        let over = settled.iter().filter(|n| **n > 50).count();
        assert!(over < 60, "refused in {over} of 200 seconds");
    }

    #[test]
    fn a_server_that_slows_down_is_given_less_and_one_that_recovers_more() {
        let mut adaptive = ConcurrencyLimit::new(1, 20, 1_000);
        Server { base: 0.5, capacity: 60.0, ..GOOD }.run(&mut adaptive, 100);
        let before = adaptive.limit();
        Server { base: 0.5, capacity: 15.0, ..GOOD }.run(&mut adaptive, 60);
        let slow = adaptive.limit();
        assert!(slow < before / 2, "{before} then {slow}");
        Server { base: 0.5, capacity: 60.0, ..GOOD }.run(&mut adaptive, 100);
        assert!(adaptive.limit() > slow * 2, "{slow} then {}", adaptive.limit());
    }

    #[test]
    fn a_server_that_is_slower_for_good_is_not_given_less_for_ever() {
        let mut adaptive = ConcurrencyLimit::new(1, 20, 1_000);
        Server { base: 0.5, capacity: 60.0, ..GOOD }.run(&mut adaptive, 100);
        let limits = Server { base: 1.5, capacity: 60.0, ..GOOD }.run(&mut adaptive, 240);
        let low = limits[200..].iter().filter(|n| **n < 54).count();
        assert!(low <= 2, "only a probe is low: {:?}", &limits[200..]);
    }

    #[test]
    fn one_lost_answer_in_a_hundred_does_not_keep_it_from_the_capacity() {
        for capacity in [4.0, 30.0, 200.0] {
            let server = Server { capacity, lost_share: 0.01, ..GOOD };
            let limits = server.run(&mut ConcurrencyLimit::new(1, 4, 1_000), 300);
            assert_settled_at(capacity, &limits[200..240]);
        }
    }

    #[test]
    fn a_server_that_loses_what_is_too_much_is_not_given_much_more() {
        // Latency stays low, so that only the lost answers indicate the overload.
        let server = Server { drops_above: 40.0, ..GOOD };
        let limits = server.run(&mut ConcurrencyLimit::new(1, 4, 1_000), 300);
        let (low, high) = min_max(&limits[200..240]);
        assert!(low >= 25 && high <= 60, "{low}..{high}");
    }

    #[test]
    fn a_server_that_answers_nothing_is_hardly_asked() {
        let server = Server { lost_share: 1.0, ..GOOD };
        let limits = server.run(&mut ConcurrencyLimit::new(1, 100, 1_000), 100);
        assert_eq!(limits[99], 1, "{limits:?}");
    }

    #[test]
    fn latency_that_doubles_for_good_costs_a_few_windows() {
        let server = Server { base: 10.0, capacity: 100.0, ..GOOD };
        let mut adaptive = ConcurrencyLimit::new(1, 20, 150);
        let before = *server.run(&mut adaptive, 65).last().unwrap();
        let limits = Server { base: 20.0, ..server }.run(&mut adaptive, 50);
        let low = limits.iter().min().unwrap();
        assert!(*low > before / 4, "{before}, then {limits:?}");
        assert!(limits[15..].iter().all(|n| *n >= 90), "{before}, then {limits:?}");
    }

    #[test]
    fn a_capacity_that_collapses_is_not_taken_for_latency() {
        let server = Server { base: 0.5, capacity: 200.0, ..GOOD };
        let mut adaptive = ConcurrencyLimit::new(1, 20, 1_000);
        server.run(&mut adaptive, 110);
        let collapsed = Server { capacity: 4.0, ..server };
        let limits = collapsed.run(&mut adaptive, 150);
        let (_, high) = min_max(&limits[100..]);
        assert!(high <= 12, "{limits:?}");
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let mut adaptive = ConcurrencyLimit::new(1, 10, 100);
        let latency = Duration::from_secs(1);
        let quiet = CallWindow { answered: 5, latency, max_in_flight: 2, ..CallWindow::default() };
        for _ in 0..50 {
            adaptive.update(&quiet);
        }
        assert_eq!(adaptive.limit(), 10);
    }

    #[test]
    fn a_silent_window_changes_nothing() {
        let mut adaptive = ConcurrencyLimit::new(1, 10, 100);
        assert_eq!(adaptive.update(&CallWindow::default()), 10);
    }

    proptest::proptest! {
        #[test]
        fn it_never_leaves_its_bounds(
            start: u32, min in 0..50_u32, max in 0..5_000_u32,
            windows in proptest::collection::vec(
                (0..100_u32, 0..5_u32, 0..20_u32, 0..10_000_u64, 0..5_000_u32), 0..100,
            ),
        ) {
            let mut adaptive = ConcurrencyLimit::new(min, start, max);
            for (answered, rejected, failed, millis, max_in_flight) in windows {
                let latency = Duration::from_millis(millis);
                let window = CallWindow { answered, rejected, failed, latency, max_in_flight, queue_time: latency * 3 };
                let limit = adaptive.update(&window);
                proptest::prop_assert!(limit >= min.max(1) && limit <= max.max(min).max(1));
            }
        }
    }
}
