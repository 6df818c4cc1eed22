//! How many calls to have out at once, when nobody knows what the other side can take.
//!
//! Additive increase, multiplicative decrease, with a look at latency: while calls take about as
//! long as they did at their best, there is room for more; when they take clearly longer, they
//! wait for each other, and more of them would only wait longer; when the other side says that it
//! is too much, it is. Pure: [`Adaptive::next`] is told what a window of time brought and says how
//! many from now on.

use std::time::Duration;

/// The bounds and the present choice.
#[derive(Debug, Clone, PartialEq)]
pub struct Adaptive {
    min: f64,
    max: f64,
    limit: f64,
    /// The least mean latency since the last probe.
    best: Option<f64>,
    /// Windows until the next probe; in the last two of them calls are halved.
    until_probe: u32,
    /// Windows left in which nothing is added, after too much was said.
    hold: u32,
}

/// What a window of time brought.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Window {
    /// Calls that were answered.
    pub answered: u32,
    /// Calls that were refused as too much (rate limit, overload) or not answered in time.
    pub refused: u32,
    /// Mean time of an answered call.
    pub latency: Duration,
    /// Most calls out at once.
    pub busiest: u32,
}

/// Latency up to this many times the best counts as the best: noise.
const TOLERANCE: f64 = 1.5;
/// What is left after "too much".
const BACK: f64 = 0.7;
/// Windows without growth after "too much".
const HOLD: u32 = 5;
/// Windows from probe to probe. A probe halves the calls for two windows, one to settle and one to
/// measure: only with few calls out can it be seen how long one takes by itself. Without it a side
/// that became slower for good would be given less for ever, and a best that is forgotten little
/// by little would drift up with the waiting that it allows.
const PROBE_EVERY: u32 = 60;

impl Adaptive {
    /// Starts with `start` calls, and stays between `min` and `max`.
    pub fn new(min: u32, start: u32, max: u32) -> Self {
        let (min, max) = (f64::from(min.max(1)), f64::from(max.max(1)));
        let max = max.max(min);
        Self {
            min,
            max,
            limit: f64::from(start).clamp(min, max),
            best: None,
            until_probe: PROBE_EVERY,
            hold: 0,
        }
    }

    /// How many calls at once.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 1..=max")]
    pub fn limit(&self) -> u32 {
        let now = if self.until_probe < 2 { self.limit / 2.0 } else { self.limit };
        now.max(self.min).round() as u32
    }

    /// Learns from a window, and says how many calls at once from now on.
    pub fn next(&mut self, window: &Window) -> u32 {
        let probing = self.until_probe < 2;
        let measured = self.until_probe == 0;
        self.until_probe = self.until_probe.checked_sub(1).unwrap_or(PROBE_EVERY);
        self.hold = self.hold.saturating_sub(1);
        if window.refused > 0 {
            // The refusals of one moment are one piece of news.
            if self.hold == 0 {
                self.limit *= BACK;
                self.hold = HOLD;
            }
        } else if measured && window.answered > 0 {
            self.best = Some(seconds(window));
        } else if !probing && window.answered > 0 {
            self.by_latency(window);
        }
        self.limit = self.limit.clamp(self.min, self.max);
        self.limit()
    }

    fn by_latency(&mut self, window: &Window) {
        let now = seconds(window);
        let best = self.best.map_or(now, |best| best.min(now));
        self.best = Some(best);
        let gradient = (best * TOLERANCE / now).clamp(0.5, 1.0);
        if gradient < 1.0 {
            // Downwards at most a tenth at a time: one slow window is no trend.
            self.limit *= gradient.max(0.9);
        } else if self.hold == 0 && f64::from(window.busiest) >= self.limit * 0.8 {
            // More only if what is allowed is used: else nothing is known about more.
            self.limit += (self.limit.sqrt() / 2.0).max(1.0);
        }
    }
}

fn seconds(window: &Window) -> f64 {
    window.latency.as_secs_f64().max(1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers `capacity` calls at once in `base`; more wait for each other. Beyond
    /// `refuses` calls a second it refuses.
    struct Server {
        base: f64,
        capacity: f64,
        refuses: f64,
    }

    impl Server {
        /// One second with `n` calls out at once.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test")]
        fn second(&self, n: u32) -> Window {
            let latency = self.base * (f64::from(n) / self.capacity).max(1.0);
            let offered = f64::from(n) / latency;
            let (answered, refused) =
                (offered.min(self.refuses), (offered - self.refuses).max(0.0));
            Window {
                answered: answered as u32,
                refused: refused as u32,
                latency: Duration::from_secs_f64(latency),
                busiest: n,
            }
        }

        fn run(&self, adaptive: &mut Adaptive, seconds: u32) -> Vec<u32> {
            (0..seconds).map(|_| adaptive.next(&self.second(adaptive.limit()))).collect()
        }
    }

    const FREE: f64 = f64::INFINITY;

    #[test]
    fn it_finds_what_a_server_can_take() {
        for capacity in [4.0, 30.0, 200.0] {
            let server = Server { base: 0.8, capacity, refuses: FREE };
            let mut adaptive = Adaptive::new(1, 4, 1_000);
            let limits = server.run(&mut adaptive, 300);
            // Without the probes, which are meant to be low.
            let settled: Vec<u32> = limits[200..240].to_vec();
            let (low, high) = (settled.iter().min().unwrap(), settled.iter().max().unwrap());
            // Below the capacity throughput is lost; beyond the tolerance calls only wait.
            assert!(f64::from(*low) >= capacity * 0.9, "{capacity}: {low}..{high}");
            assert!(
                f64::from(*high) <= capacity * TOLERANCE * 1.5 + 3.0,
                "{capacity}: {low}..{high}"
            );
        }
    }

    #[test]
    fn it_stays_under_a_rate_limit_most_of_the_time() {
        let server = Server { base: 1.0, capacity: 1e9, refuses: 50.0 };
        let mut adaptive = Adaptive::new(1, 4, 1_000);
        let limits = server.run(&mut adaptive, 400);
        let settled = &limits[200..];
        let mean = f64::from(settled.iter().sum::<u32>()) / 200.0;
        assert!((35.0..=55.0).contains(&mean), "{mean}");
        let over = settled.iter().filter(|n| **n > 50).count();
        assert!(over < 60, "refused in {over} of 200 seconds");
    }

    #[test]
    fn a_server_that_slows_down_is_given_less_and_one_that_recovers_more() {
        let mut adaptive = Adaptive::new(1, 20, 1_000);
        Server { base: 0.5, capacity: 60.0, refuses: FREE }.run(&mut adaptive, 100);
        let before = adaptive.limit();
        Server { base: 0.5, capacity: 15.0, refuses: FREE }.run(&mut adaptive, 60);
        let slow = adaptive.limit();
        assert!(slow < before / 2, "{before} then {slow}");
        Server { base: 0.5, capacity: 60.0, refuses: FREE }.run(&mut adaptive, 100);
        assert!(adaptive.limit() > slow * 2, "{slow} then {}", adaptive.limit());
    }

    #[test]
    fn a_server_that_is_slower_for_good_is_not_given_less_for_ever() {
        let mut adaptive = Adaptive::new(1, 20, 1_000);
        Server { base: 0.5, capacity: 60.0, refuses: FREE }.run(&mut adaptive, 100);
        let limits = Server { base: 1.5, capacity: 60.0, refuses: FREE }.run(&mut adaptive, 240);
        let low = limits[200..].iter().filter(|n| **n < 54).count();
        assert!(low <= 2, "only a probe is low: {:?}", &limits[200..]);
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let mut adaptive = Adaptive::new(1, 10, 100);
        let quiet = Window { answered: 5, latency: Duration::from_secs(1), busiest: 2, refused: 0 };
        for _ in 0..50 {
            adaptive.next(&quiet);
        }
        assert_eq!(adaptive.limit(), 10);
    }

    #[test]
    fn a_silent_window_changes_nothing() {
        let mut adaptive = Adaptive::new(1, 10, 100);
        assert_eq!(adaptive.next(&Window::default()), 10);
    }

    proptest::proptest! {
        #[test]
        fn it_never_leaves_its_bounds(
            start: u32, min in 0..50_u32, max in 0..5_000_u32,
            windows in proptest::collection::vec((0..100_u32, 0..5_u32, 0..10_000_u64, 0..5_000_u32), 0..60),
        ) {
            let mut adaptive = Adaptive::new(min, start, max);
            for (answered, refused, millis, busiest) in windows {
                let latency = Duration::from_millis(millis);
                let limit = adaptive.next(&Window { answered, refused, latency, busiest });
                proptest::prop_assert!(limit >= min.max(1) && limit <= max.max(min).max(1));
            }
        }
    }
}
