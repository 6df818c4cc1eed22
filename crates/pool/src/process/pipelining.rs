//! How many calls may wait in a worker's pipe, from its measured speed. A fast worker must not wait
//! for the pool between two calls. Behind a slow one no call should wait that another worker could
//! take.

use std::time::Duration;

/// Largest number of calls in the pipe beyond the running one.
const MOST: usize = 32;
/// Workers with a longer mean time per call get no calls ahead.
const QUICK: Duration = Duration::from_micros(200);
/// The calls in the pipe should take no longer than this in total.
const TOGETHER: Duration = Duration::from_micros(800);
/// Calls that are measured before any is sent ahead.
const ENOUGH: u32 = 8;

/// Measures calls, and derives how many may wait in the pipe.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Moving average of the time of a call, in nanoseconds.
    mean: u64,
    calls: u32,
    ahead: usize,
}

impl Pace {
    /// Records the time of a call. Returns the new number of calls ahead, if it changes.
    pub(super) fn took(&mut self, time: Duration) -> Option<usize> {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(1 << 48);
        self.mean = self.mean - self.mean / 8 + time / 8;
        self.calls = self.calls.saturating_add(1);
        let ahead = self.room();
        // Grows by doubling only, so that not every call updates the scheduler.
        let same = ahead == self.ahead || (ahead > self.ahead && ahead < self.ahead * 2);
        (!same).then(|| {
            self.ahead = ahead;
            ahead
        })
    }

    fn room(&self) -> usize {
        let mean = Duration::from_nanos(self.mean.max(1));
        if self.calls < ENOUGH || mean >= QUICK {
            return 0;
        }
        let fit = TOGETHER.as_nanos() / mean.as_nanos();
        let fit = usize::try_from(fit).unwrap_or(MOST).clamp(1, MOST);
        // Rounds down to a power of two.
        1 << fit.ilog2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead_after(times: impl IntoIterator<Item = u64>) -> usize {
        let mut pace = Pace::default();
        times.into_iter().for_each(|micros| _ = pace.took(Duration::from_micros(micros)));
        pace.ahead
    }

    #[test]
    fn a_new_worker_gets_one_call_at_a_time() {
        assert_eq!(ahead_after([1; 7]), 0);
    }

    #[test]
    fn a_quick_one_gets_many_ahead_and_a_slower_one_few() {
        assert_eq!(ahead_after([5; 50]), 32);
        assert_eq!(ahead_after([100; 50]), 8);
        assert_eq!(ahead_after([150; 50]), 4);
        assert_eq!(ahead_after([300; 50]), 0);
    }

    #[test]
    fn one_slow_call_is_enough_to_stop_it() {
        let times = std::iter::repeat_n(5, 50).chain([20_000]);
        assert_eq!(ahead_after(times), 0);
    }
}
