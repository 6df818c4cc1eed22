//! How quick a worker is, and so how many calls may wait in its pipe: a quick one must not wait for
//! us between two calls, and behind a slow one nobody should wait who could go elsewhere.

use std::time::Duration;

/// Calls in the pipe beyond the one it is at, at most.
const MOST: usize = 32;
/// Slower workers get none.
const QUICK: Duration = Duration::from_micros(200);
/// What waits in the pipe should take no longer than this.
const TOGETHER: Duration = Duration::from_micros(800);
/// Calls that must have been made before anything is said.
const ENOUGH: u32 = 8;

/// How quick a worker is.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The mean of the last few calls, in nanoseconds.
    mean: u64,
    calls: u32,
    ahead: usize,
}

impl Pace {
    /// A call took so long. How many calls it may have ahead from now on, if that changes.
    pub(super) fn took(&mut self, time: Duration) -> Option<usize> {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(1 << 48);
        self.mean = self.mean - self.mean / 8 + time / 8;
        self.calls = self.calls.saturating_add(1);
        let ahead = self.room();
        // In steps of two: not every call is worth a word.
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
        // Down to a power of two.
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
