//! How many calls may wait in a worker's pipe, from its measured speed. A fast worker must not wait
//! for the pool between two calls. Behind a slow one no call should wait that another worker could
//! take.

use std::time::Duration;

/// Largest number of calls in the pipe beyond the running one.
const MAX_PREFETCH: usize = 32;
/// Workers with a longer mean time per call get no calls ahead.
const MAX_CALL_TIME: Duration = Duration::from_micros(200);
/// The calls in the pipe should take no longer than this in total.
const MAX_PIPELINE_TIME: Duration = Duration::from_micros(800);
/// Calls that are measured before any is sent ahead.
const MIN_SAMPLES: u32 = 8;

/// Measures calls, and derives how many may wait in the pipe.
#[derive(Debug, Default)]
pub(super) struct PipelineDepth {
    /// Moving average of the time of a call, in nanoseconds.
    mean: u64,
    calls: u32,
    prefetch: usize,
}

impl PipelineDepth {
    /// Records the time of a call. Returns the new number of calls ahead, if it changes.
    pub(super) fn record(&mut self, time: Duration) -> Option<usize> {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(1 << 48);
        self.mean = self.mean - self.mean / 8 + time / 8;
        self.calls = self.calls.saturating_add(1);
        let prefetch = self.prefetch_for_mean();
        // Grows by doubling only, so that not every call updates the scheduler.
        let same = prefetch == self.prefetch || (prefetch > self.prefetch && prefetch < self.prefetch * 2);
        (!same).then(|| {
            self.prefetch = prefetch;
            prefetch
        })
    }

    fn prefetch_for_mean(&self) -> usize {
        let mean = Duration::from_nanos(self.mean.max(1));
        if self.calls < MIN_SAMPLES || mean >= MAX_CALL_TIME {
            return 0;
        }
        let fit = MAX_PIPELINE_TIME.as_nanos() / mean.as_nanos();
        let fit = usize::try_from(fit).unwrap_or(MAX_PREFETCH).clamp(1, MAX_PREFETCH);
        // Rounds down to a power of two.
        1 << fit.ilog2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefetch_after(times: impl IntoIterator<Item = u64>) -> usize {
        let mut pipeline = PipelineDepth::default();
        times.into_iter().for_each(|micros| _ = pipeline.record(Duration::from_micros(micros)));
        pipeline.prefetch
    }

    #[test]
    fn a_new_worker_gets_one_call_at_a_time() {
        assert_eq!(prefetch_after([1; 7]), 0);
    }

    #[test]
    fn a_quick_one_gets_many_ahead_and_a_slower_one_few() {
        assert_eq!(prefetch_after([5; 50]), 32);
        assert_eq!(prefetch_after([100; 50]), 8);
        assert_eq!(prefetch_after([150; 50]), 4);
        assert_eq!(prefetch_after([300; 50]), 0);
    }

    #[test]
    fn one_slow_call_is_enough_to_stop_it() {
        let times = std::iter::repeat_n(5, 50).chain([20_000]);
        assert_eq!(prefetch_after(times), 0);
    }
}
