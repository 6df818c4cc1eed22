//! How many calls to have out at once, when nobody knows what the other side can take.
//!
//! Additive increase, multiplicative decrease, with a look at latency: while calls take about as
//! long as they did at their best, there is room for more; when they take clearly longer, they
//! wait for each other, and more of them would only wait longer; when the other side says that it
//! is too much, it is. A few failures say nothing: some calls fail however few there are. Pure:
//! [`Adaptive::next`] is told what a window of time brought and says how many from now on.

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
    recent: Recent,
    slow: Slow,
}

/// What a window of time brought.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Window {
    /// Calls that were answered.
    pub answered: u32,
    /// Calls that the other side refused as too many (rate limit, overload).
    pub refused: u32,
    /// Calls that came to nothing for a reason that may have to do with their number: not answered
    /// in time, or the other side failed.
    pub failed: u32,
    /// Mean time of an answered call.
    pub latency: Duration,
    /// Most calls out at once.
    pub busiest: u32,
    /// How long the calls that went out had waited for their turn, on the average.
    pub waited: Duration,
}

/// Latency up to this many times the best counts as the best: noise.
const TOLERANCE: f64 = 1.5;
/// What is left after "too much".
const BACK: f64 = 0.7;
/// Windows without growth after "too much".
const HOLD: u32 = 5;
/// The share of refused calls from which on it is too much.
const REFUSED: f64 = 0.02;
/// The share of failed calls from which on it is too much.
const FAILED: f64 = 0.1;
/// Windows from probe to probe. A probe halves the calls for two windows, one to settle and one to
/// measure: only with few calls out can it be seen how long one takes by itself. Without it a side
/// that became slower for good would be given less for ever, and a best that is forgotten little
/// by little would drift up with the waiting that it allows.
const PROBE_EVERY: u32 = 60;
/// Windows in a row that were too slow, after which a probe does not wait for its time.
const SLOW_ROW: u32 = 5;
/// Half the calls that take at least this part of the time of all: they did not wait for each
/// other.
const SAME: f64 = 0.8;

/// Calls of the last few windows: one window may be too short to tell one in fifty from one in a
/// hundred.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Recent {
    answered: f64,
    refused: f64,
    failed: f64,
}

impl Recent {
    fn note(&mut self, window: &Window) {
        let note = |before: f64, now: u32| before * 0.8 + f64::from(now);
        self.answered = note(self.answered, window.answered);
        self.refused = note(self.refused, window.refused);
        self.failed = note(self.failed, window.failed);
    }

    /// Whether too many of the calls that might have been answered were not. One alone is an
    /// accident.
    fn exceeds(&self, bad: f64, share: f64) -> bool {
        bad > 1.0 && bad > (self.answered + bad) * share
    }
}

/// Windows in a row that were too slow.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Slow {
    row: u32,
    /// The limit before the first of them.
    from: f64,
    /// Latency in the last of them.
    latency: f64,
}

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
            recent: Recent::default(),
            slow: Slow::default(),
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
        self.recent.note(window);
        if self.is_too_much(window) {
            self.back_off();
        } else if measured && window.answered > 0 {
            self.measure(seconds(window));
        } else if !probing && window.answered > 0 {
            self.by_latency(window);
        }
        self.limit = self.limit.clamp(self.min, self.max);
        self.limit()
    }

    fn is_too_much(&self, window: &Window) -> bool {
        let Recent { refused, failed, .. } = self.recent;
        (window.refused > 0 && self.recent.exceeds(refused, REFUSED))
            || (window.failed > 0 && self.recent.exceeds(failed, FAILED))
    }

    fn back_off(&mut self) {
        self.slow = Slow::default();
        // The refusals of one moment are one piece of news.
        if self.hold == 0 {
            self.limit *= BACK;
            self.hold = HOLD;
        }
    }

    /// Learns from a probe how long a call takes by itself.
    fn measure(&mut self, now: f64) {
        let slow = std::mem::take(&mut self.slow);
        if slow.row == 0 {
            self.best = Some(now);
        } else if now >= slow.latency * SAME {
            // Fewer calls are no faster: it is not their number, and there was no need for less.
            self.best = Some(now);
            self.limit = slow.from;
        } else {
            // They still wait for each other, so this is not how long one takes by itself.
            self.best = self.best.map(|best| best.min(now));
        }
    }

    fn by_latency(&mut self, window: &Window) {
        let now = seconds(window);
        let best = self.best.map_or(now, |best| best.min(now));
        self.best = Some(best);
        let gradient = (best * TOLERANCE / now).clamp(0.5, 1.0);
        if gradient < 1.0 {
            self.note_slow(now);
            // Downwards at most a tenth at a time: one slow window is no trend.
            self.limit *= gradient.max(0.9);
            return;
        }
        self.slow = Slow::default();
        if self.hold == 0 && f64::from(window.busiest) >= self.limit * 0.8 {
            // More only if what is allowed is used: else nothing is known about more.
            self.limit += (self.limit.sqrt() / 2.0).max(1.0) * haste(window);
        }
    }

    /// Whether calls wait for each other, or the other side is slower for good, only a probe tells.
    fn note_slow(&mut self, latency: f64) {
        let Slow { row, from, .. } = self.slow;
        let from = if row == 0 { self.limit } else { from };
        self.slow = Slow { row: row + 1, from, latency };
        if row + 1 >= SLOW_ROW {
            self.until_probe = self.until_probe.min(1);
        }
    }
}

/// How many steps at a time: with a backlog that waits longer than calls take, several.
fn haste(window: &Window) -> f64 {
    (window.waited.as_secs_f64() / seconds(window)).clamp(1.0, 4.0)
}

fn seconds(window: &Window) -> f64 {
    window.latency.as_secs_f64().max(1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers `capacity` calls at once in `base`; more wait for each other. Beyond
    /// `refuses` calls a second it refuses. Of its answers this `lost` share does not arrive, and
    /// of those beyond `drowns` calls at once none.
    #[derive(Clone, Copy)]
    struct Server {
        base: f64,
        capacity: f64,
        refuses: f64,
        lost: f64,
        drowns: f64,
    }

    /// Refuses nothing, loses nothing.
    const GOOD: Server =
        Server { base: 0.8, capacity: FREE, refuses: FREE, lost: 0.0, drowns: FREE };

    impl Server {
        /// The `at`th window, of `length` seconds, with `n` calls out at once.
        fn window(&self, at: u32, length: f64, n: u32) -> Window {
            let latency = self.base * (f64::from(n) / self.capacity).max(1.0);
            let offered = f64::from(n) / latency * length;
            let refused = (offered - self.refuses * length).max(0.0);
            let drowned = (1.0 - self.drowns / f64::from(n)).max(0.0);
            let failed = (offered - refused) * (self.lost + drowned);
            Window {
                answered: whole(at, offered - refused - failed),
                refused: whole(at, refused),
                failed: whole(at, failed),
                latency: Duration::from_secs_f64(latency),
                busiest: n,
                waited: Duration::ZERO,
            }
        }

        /// Windows of a second each, or of twice the base latency if that is longer.
        fn run(&self, adaptive: &mut Adaptive, windows: u32) -> Vec<u32> {
            let length = (self.base * 2.0).max(1.0);
            let next = |at| adaptive.next(&self.window(at, length, adaptive.limit()));
            (0..windows).map(next).collect()
        }
    }

    /// Of an amount per window, what falls into the `at`th: whole calls, and none forgotten.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test")]
    fn whole(at: u32, amount: f64) -> u32 {
        let before = (f64::from(at) * amount).floor();
        ((f64::from(at) + 1.0) * amount).floor() as u32 - before as u32
    }

    /// The least and the most of windows among which there should be no probe.
    fn span(limits: &[u32]) -> (u32, u32) {
        (*limits.iter().min().unwrap(), *limits.iter().max().unwrap())
    }

    const FREE: f64 = f64::INFINITY;

    /// Below the capacity throughput is lost; beyond the tolerance calls only wait.
    fn settled_at(capacity: f64, limits: &[u32]) {
        let (low, high) = span(limits);
        assert!(f64::from(low) >= capacity * 0.9, "{capacity}: {low}..{high}");
        let most = capacity * TOLERANCE * 1.5 + 3.0;
        assert!(f64::from(high) <= most, "{capacity}: {low}..{high}");
    }

    #[test]
    fn it_finds_what_a_server_can_take() {
        for capacity in [4.0, 30.0, 200.0] {
            let server = Server { capacity, ..GOOD };
            let mut adaptive = Adaptive::new(1, 4, 1_000);
            let limits = server.run(&mut adaptive, 300);
            settled_at(capacity, &limits[200..240]);
        }
    }

    #[test]
    fn a_backlog_that_grows_old_is_met_with_haste() {
        let server = Server { capacity: 200.0, ..GOOD };
        let after = |waited| {
            let mut adaptive = Adaptive::new(1, 4, 1_000);
            for at in 0..10 {
                let window = server.window(at, 1.6, adaptive.limit());
                adaptive.next(&Window { waited, ..window });
            }
            adaptive.limit()
        };
        let (calm, behind) = (after(Duration::ZERO), after(Duration::from_secs(60)));
        assert!(behind > calm * 2, "{calm}, {behind}");
    }

    #[test]
    fn it_stays_under_a_rate_limit_most_of_the_time() {
        let server = Server { base: 1.0, refuses: 50.0, ..GOOD };
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
        let mut adaptive = Adaptive::new(1, 20, 1_000);
        Server { base: 0.5, capacity: 60.0, ..GOOD }.run(&mut adaptive, 100);
        let limits = Server { base: 1.5, capacity: 60.0, ..GOOD }.run(&mut adaptive, 240);
        let low = limits[200..].iter().filter(|n| **n < 54).count();
        assert!(low <= 2, "only a probe is low: {:?}", &limits[200..]);
    }

    #[test]
    fn one_lost_answer_in_a_hundred_does_not_keep_it_from_the_capacity() {
        for capacity in [4.0, 30.0, 200.0] {
            let server = Server { capacity, lost: 0.01, ..GOOD };
            let limits = server.run(&mut Adaptive::new(1, 4, 1_000), 300);
            settled_at(capacity, &limits[200..240]);
        }
    }

    #[test]
    fn a_server_that_loses_what_is_too_much_is_not_given_much_more() {
        // It answers what it answers in no time, so that only the lost answers tell.
        let server = Server { drowns: 40.0, ..GOOD };
        let limits = server.run(&mut Adaptive::new(1, 4, 1_000), 300);
        let (low, high) = span(&limits[200..240]);
        assert!(low >= 25 && high <= 60, "{low}..{high}");
    }

    #[test]
    fn a_server_that_answers_nothing_is_hardly_asked() {
        let server = Server { lost: 1.0, ..GOOD };
        let limits = server.run(&mut Adaptive::new(1, 100, 1_000), 100);
        assert_eq!(limits[99], 1, "{limits:?}");
    }

    #[test]
    fn latency_that_doubles_for_good_costs_a_few_windows() {
        let server = Server { base: 10.0, capacity: 100.0, ..GOOD };
        let mut adaptive = Adaptive::new(1, 20, 150);
        let before = *server.run(&mut adaptive, 65).last().unwrap();
        let limits = Server { base: 20.0, ..server }.run(&mut adaptive, 50);
        let low = limits.iter().min().unwrap();
        assert!(*low > before / 4, "{before}, then {limits:?}");
        assert!(limits[15..].iter().all(|n| *n >= 90), "{before}, then {limits:?}");
    }

    #[test]
    fn a_capacity_that_collapses_is_not_taken_for_latency() {
        let server = Server { base: 0.5, capacity: 200.0, ..GOOD };
        let mut adaptive = Adaptive::new(1, 20, 1_000);
        server.run(&mut adaptive, 110);
        let collapsed = Server { capacity: 4.0, ..server };
        let limits = collapsed.run(&mut adaptive, 150);
        let (_, high) = span(&limits[100..]);
        assert!(high <= 12, "{limits:?}");
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let mut adaptive = Adaptive::new(1, 10, 100);
        let latency = Duration::from_secs(1);
        let quiet = Window { answered: 5, latency, busiest: 2, ..Window::default() };
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
            windows in proptest::collection::vec(
                (0..100_u32, 0..5_u32, 0..20_u32, 0..10_000_u64, 0..5_000_u32), 0..100,
            ),
        ) {
            let mut adaptive = Adaptive::new(min, start, max);
            for (answered, refused, failed, millis, busiest) in windows {
                let latency = Duration::from_millis(millis);
                let window = Window { answered, refused, failed, latency, busiest, waited: latency * 3 };
                let limit = adaptive.next(&window);
                proptest::prop_assert!(limit >= min.max(1) && limit <= max.max(min).max(1));
            }
        }
    }
}
