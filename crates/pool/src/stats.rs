//! Statistics of a pool.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use crate::error::ErrorKind;
use crate::metrics::{ExportedHistogram, PoolMetrics};
use crate::scheduler::{EndCause, PoolCounts};

/// A snapshot of a pool's statistics.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WorkerPoolStats {
    /// Workers, including starting ones.
    pub workers: usize,
    /// Workers that run a call.
    pub busy: usize,
    /// Workers that are not ready yet.
    pub starting: usize,
    /// Threads that were abandoned in the middle of a call and still run it.
    pub abandoned: usize,
    /// Calls that wait for a worker.
    pub queue_depth: usize,
    /// Maximum number of calls that wait for a worker.
    pub queue_limit: usize,
    /// Calls that wait for queue space.
    pub in_line: usize,
    /// Outcomes of all calls.
    #[serde(flatten)]
    pub calls: OperationStats,
    /// Outcomes by operation, for known operations.
    pub operations: BTreeMap<String, OperationStats>,
    /// Workers that ended, by cause.
    pub ended: BTreeMap<&'static str, u64>,
    /// How long calls waited for a worker.
    pub wait: Percentiles,
    /// How long calls took on a worker.
    pub run: Percentiles,
}

/// A distribution of durations; in seconds in JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// Number of measurements.
    pub count: u64,
    /// Median, accurate to a fifth.
    #[serde(serialize_with = "seconds")]
    pub p50: Duration,
    /// 95th percentile.
    #[serde(serialize_with = "seconds")]
    pub p95: Duration,
    /// 99th percentile.
    #[serde(serialize_with = "seconds")]
    pub p99: Duration,
}

fn seconds<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
}

/// Outcomes of the calls of one operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OperationStats {
    /// Calls that succeeded.
    pub done: u64,
    /// Calls that failed, except those below.
    pub failed: u64,
    /// Calls that timed out.
    pub timeouts: u64,
    /// Calls rejected because the queue was full.
    pub refused: u64,
}

/// The counters behind [`OperationStats`].
#[derive(Debug, Default)]
pub(crate) struct CallCounters {
    done: AtomicU64,
    failed: AtomicU64,
    timeouts: AtomicU64,
    refused: AtomicU64,
}

impl CallCounters {
    /// Counts a call by its outcome.
    pub(crate) fn count(&self, error: Option<&ErrorKind>) {
        let counter = match error {
            None => &self.done,
            Some(ErrorKind::Timeout { .. }) => &self.timeouts,
            Some(ErrorKind::Full { .. }) => &self.refused,
            Some(_) => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> OperationStats {
        OperationStats {
            done: self.done.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            timeouts: self.timeouts.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

/// The counters behind [`WorkerPoolStats`].
pub(crate) struct PoolCounters {
    pub(crate) calls: CallCounters,
    pub(crate) wait: DurationRecorder,
    pub(crate) run: DurationRecorder,
    ended: Mutex<BTreeMap<EndCause, u64>>,
    metrics: PoolMetrics,
}

impl PoolCounters {
    pub(crate) fn new(pool: &str) -> Self {
        let metrics = PoolMetrics::new(pool);
        Self {
            calls: CallCounters::default(),
            wait: DurationRecorder { histogram: Histogram::default(), exported: metrics.wait() },
            run: DurationRecorder { histogram: Histogram::default(), exported: metrics.run() },
            ended: Mutex::default(),
            metrics,
        }
    }

    pub(crate) fn count_end(&self, cause: EndCause) {
        self.metrics.ended(cause);
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        *ended.entry(cause).or_default() += 1;
    }

    pub(crate) fn ended(&self) -> BTreeMap<&'static str, u64> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.iter().map(|(cause, count)| (cause.name(), *count)).collect()
    }

    /// Updates the gauges.
    pub(crate) fn publish(&self, counts: impl FnOnce() -> PoolCounts) {
        self.metrics.publish(counts);
    }
}

/// Records durations for statistics and for metrics.
pub(crate) struct DurationRecorder {
    histogram: Histogram,
    exported: ExportedHistogram,
}

impl DurationRecorder {
    pub(crate) fn record(&self, time: Duration) {
        self.histogram.record(time);
        self.exported.record(time);
    }

    pub(crate) fn percentiles(&self) -> Percentiles {
        self.histogram.percentiles()
    }
}

/// A histogram with buckets that grow by about a fifth: four for each power of two of microseconds.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
}

const BUCKETS: usize = 160;

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS] }
    }
}

impl Histogram {
    pub(crate) fn record(&self, time: Duration) {
        self.buckets[bucket_of(time)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn percentiles(&self) -> Percentiles {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let count: u64 = counts.iter().sum();
        let at = |percent: u64| {
            let mut left = (count * percent).div_ceil(100);
            let index = counts.iter().position(|in_bucket| {
                left = left.saturating_sub(*in_bucket);
                left == 0
            });
            index.filter(|_| count > 0).map_or(Duration::ZERO, upper_bound)
        };
        Percentiles { count, p50: at(50), p95: at(95), p99: at(99) }
    }
}

/// The bucket of a duration: by its power of two, and the quarter of the way to the next.
fn bucket_of(time: Duration) -> usize {
    let tenths = u64::try_from(time.as_nanos() / 100).unwrap_or(u64::MAX).max(4);
    let power = tenths.ilog2();
    let quarter = (tenths >> (power - 2)) & 3;
    (((power - 2) * 4) as usize + quarter as usize).min(BUCKETS - 1)
}

/// The upper bound of a bucket.
fn upper_bound(bucket: usize) -> Duration {
    let (power, quarter) = ((bucket / 4) as u32 + 2, (bucket % 4) as u64);
    let tenths = (5 + quarter).checked_shl(power - 2).unwrap_or(u64::MAX);
    Duration::from_nanos(tenths.saturating_mul(100))
}

#[cfg(all(test, not(feature = "_shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_within_a_fifth_above_what_was_measured() {
        for micros in [1_u64, 7, 90, 1_000, 33_000, 5_000_000] {
            let histogram = Histogram::default();
            histogram.record(Duration::from_micros(micros));
            let p50 = histogram.percentiles().p50.as_secs_f64() * 1e6;
            let exact = micros as f64;
            assert!(p50 >= exact && p50 <= exact * 1.26, "{micros}: {p50}");
        }
    }

    #[test]
    fn nothing_measured_is_nothing() {
        assert_eq!(Histogram::default().percentiles(), Percentiles::default());
    }
}
