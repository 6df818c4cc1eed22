//! A pool's metrics for the crate `metrics`, with the feature of that name; without it they do
//! nothing.
//!
//! The handles are created when the pool opens: install the recorder before.

#[cfg(not(feature = "metrics"))]
pub(crate) use self::none::{CallCounter, ExportedHistogram, PoolMetrics};
#[cfg(feature = "metrics")]
pub(crate) use self::real::{CallCounter, ExportedHistogram, PoolMetrics};

use crate::error::ErrorKind;

/// Longest interval between two updates of the gauges.
pub(crate) const PUBLISH_INTERVAL: Option<std::time::Duration> = match cfg!(feature = "metrics") {
    true => Some(std::time::Duration::from_secs(1)),
    false => None,
};

/// The outcome of a call, as a label with few values.
#[cfg_attr(
    not(any(feature = "metrics", feature = "axum")),
    expect(dead_code, reason = "a label of metrics, and a word in responses")
)]
pub(crate) fn outcome_label(error: Option<&ErrorKind>) -> &'static str {
    match error {
        None => "ok",
        Some(ErrorKind::UnknownOperation { .. }) => "unknown_operation",
        Some(ErrorKind::BadArguments { .. }) => "bad_arguments",
        Some(ErrorKind::Handler { .. }) => "handler",
        Some(ErrorKind::Panic { .. }) => "panic",
        Some(ErrorKind::BadResult { .. }) => "bad_result",
        Some(ErrorKind::Timeout { .. }) => "timeout",
        Some(ErrorKind::Cancelled { .. }) => "cancelled",
        Some(ErrorKind::WorkerDied { .. }) => "worker_died",
        Some(ErrorKind::Interrupted) => "interrupted",
        Some(ErrorKind::Protocol { .. }) => "protocol",
        Some(ErrorKind::StartFailed { .. }) => "start_failed",
        Some(ErrorKind::Full { .. }) => "full",
        Some(ErrorKind::TooLarge { .. }) => "too_large",
        Some(ErrorKind::ShuttingDown) => "shutting_down",
    }
}

#[cfg(feature = "metrics")]
mod real {
    use std::sync::Arc;
    use std::time::Duration;

    use metrics::{Counter, Gauge, Histogram, SharedString, counter, gauge, histogram};

    use super::outcome_label;
    use crate::error::ErrorKind;
    use crate::scheduler::{EndCause, PoolCounts};

    /// A pool's metrics.
    pub(crate) struct PoolMetrics {
        pool: Arc<str>,
        depth: Gauge,
        busy: Gauge,
        idle: Gauge,
        starting: Gauge,
        abandoned: Gauge,
    }

    /// A histogram of seconds.
    pub(crate) struct ExportedHistogram(Histogram);

    /// Counts the calls of an operation.
    pub(crate) struct CallCounter {
        pool: Arc<str>,
        operation: Arc<str>,
        ok: Counter,
    }

    impl PoolMetrics {
        pub(crate) fn new(pool: &str) -> Self {
            let pool: Arc<str> = pool.into();
            let workers = |state: &'static str| gauge!("longshore_pool_workers", "pool" => name(&pool), "state" => state);
            Self {
                depth: gauge!("longshore_pool_queue_depth", "pool" => name(&pool)),
                busy: workers("busy"),
                idle: workers("idle"),
                starting: workers("starting"),
                abandoned: workers("abandoned"),
                pool,
            }
        }

        pub(crate) fn wait(&self) -> ExportedHistogram {
            ExportedHistogram(histogram!("longshore_pool_wait_seconds", "pool" => name(&self.pool)))
        }

        pub(crate) fn run(&self) -> ExportedHistogram {
            ExportedHistogram(histogram!("longshore_pool_run_seconds", "pool" => name(&self.pool)))
        }

        pub(crate) fn ended(&self, cause: EndCause) {
            let pool = name(&self.pool);
            let cause = cause.name();
            counter!("longshore_pool_worker_ends_total", "pool" => pool, "cause" => cause).increment(1);
        }

        pub(crate) fn publish(&self, counts: impl FnOnce() -> PoolCounts) {
            let counts = counts();
            let idle = counts.workers.saturating_sub(counts.busy + counts.starting);
            self.depth.set((counts.queue + counts.overflow) as f64);
            self.busy.set(counts.busy as f64);
            self.idle.set(idle as f64);
            self.starting.set(counts.starting as f64);
            self.abandoned.set(counts.abandoned as f64);
        }
    }

    impl ExportedHistogram {
        pub(crate) fn record(&self, time: Duration) {
            self.0.record(time);
        }
    }

    impl CallCounter {
        pub(crate) fn new(pool: &str, operation: &str) -> Self {
            let (pool, operation) = (pool.into(), operation.into());
            let ok = calls(&pool, &operation, outcome_label(None));
            Self { pool, operation, ok }
        }

        pub(crate) fn count(&self, error: Option<&ErrorKind>) {
            match error {
                None => self.ok.increment(1),
                Some(_) => calls(&self.pool, &self.operation, outcome_label(error)).increment(1),
            }
        }
    }

    fn calls(pool: &Arc<str>, operation: &Arc<str>, outcome: &'static str) -> Counter {
        let (pool, operation) = (name(pool), name(operation));
        counter!(
            "longshore_pool_calls_total",
            "pool" => pool, "operation" => operation, "outcome" => outcome
        )
    }

    fn name(text: &Arc<str>) -> SharedString {
        SharedString::from_shared(Arc::clone(text))
    }
}

#[cfg(not(feature = "metrics"))]
mod none {
    use std::time::Duration;

    use crate::error::ErrorKind;
    use crate::scheduler::{EndCause, PoolCounts};

    /// Does nothing.
    pub(crate) struct PoolMetrics;

    /// Does nothing.
    pub(crate) struct ExportedHistogram;

    /// Does nothing.
    pub(crate) struct CallCounter;

    impl PoolMetrics {
        pub(crate) fn new(_: &str) -> Self {
            Self
        }

        pub(crate) fn wait(&self) -> ExportedHistogram {
            ExportedHistogram
        }

        pub(crate) fn run(&self) -> ExportedHistogram {
            ExportedHistogram
        }

        pub(crate) fn ended(&self, _: EndCause) {}

        pub(crate) fn publish(&self, _: impl FnOnce() -> PoolCounts) {}
    }

    impl ExportedHistogram {
        pub(crate) fn record(&self, _: Duration) {}
    }

    impl CallCounter {
        pub(crate) fn new(_: &str, _: &str) -> Self {
            Self
        }

        pub(crate) fn count(&self, _: Option<&ErrorKind>) {}
    }
}
