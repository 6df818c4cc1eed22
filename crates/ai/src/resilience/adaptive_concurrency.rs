//! Concurrency `auto`: adjusts a worker's slots to the provider while it runs.
//!
//! Runs report results and waiting times to a [`Gauge`]. [`AdaptiveConcurrency`] reads it periodically, applies
//! the policy in core and resizes the worker. It decides nothing itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use longshore::WorkerControl;
use longshore::concurrency_limit::{CallWindow, ConcurrencyLimit};
use tokio::time::Instant;

use crate::model_api::Code;

/// Shortest window: a mean over less time says little.
const MIN_WINDOW: Duration = Duration::from_secs(1);
/// Longest window: a slow provider is judged by the answers that arrived so far.
const MAX_WINDOW: Duration = Duration::from_secs(30);

/// Results of the calls of a process.
#[derive(Debug, Default)]
pub struct Gauge {
    out: AtomicU32,
    busiest: AtomicU32,
    answered: AtomicU32,
    refused: AtomicU32,
    failed: AtomicU32,
    micros: AtomicU64,
    asked: AtomicU32,
    waited_micros: AtomicU64,
}

/// A call in flight.
#[derive(Debug)]
pub struct GaugeGuard<'g> {
    gauge: &'g Gauge,
    since: Instant,
}

impl Gauge {
    /// Counts a call that had waited this long; it is in flight until the guard is dropped.
    pub fn start(&self, waited: Duration) -> GaugeGuard<'_> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.waited_micros.fetch_add(micros(waited), Ordering::Relaxed);
        let out = self.out.fetch_add(1, Ordering::Relaxed) + 1;
        self.busiest.fetch_max(out, Ordering::Relaxed);
        GaugeGuard { gauge: self, since: Instant::now() }
    }

    /// The counter of an error. An invalid question says nothing about the load.
    fn count_of(&self, error: &str) -> Option<&AtomicU32> {
        let is = |code: Code| error == code.as_str();
        if is(Code::RateLimited) {
            Some(&self.refused)
        } else if is(Code::ProviderError) || is(Code::Timeout) {
            Some(&self.failed)
        } else {
            None
        }
    }

    /// The counts since the last call of this method.
    fn window(&self) -> CallWindow {
        let answered = self.answered.swap(0, Ordering::Relaxed);
        let asked = self.asked.swap(0, Ordering::Relaxed);
        let mean = |sum: &AtomicU64, of: u32| {
            Duration::from_micros(sum.swap(0, Ordering::Relaxed) / u64::from(of.max(1)))
        };
        let busiest = self.busiest.swap(self.out.load(Ordering::Relaxed), Ordering::Relaxed);
        CallWindow {
            answered,
            rejected: self.refused.swap(0, Ordering::Relaxed),
            failed: self.failed.swap(0, Ordering::Relaxed),
            latency: mean(&self.micros, answered),
            queue_time: mean(&self.waited_micros, asked),
            max_in_flight: busiest,
        }
    }
}

impl GaugeGuard<'_> {
    /// Records the result: an answer, or an error by its code.
    pub fn finish(self, reply: Result<(), &str>) {
        let Self { gauge, since } = &self;
        match reply {
            Ok(()) => {
                gauge.answered.fetch_add(1, Ordering::Relaxed);
                gauge.micros.fetch_add(micros(since.elapsed()), Ordering::Relaxed);
            }
            Err(error) => {
                if let Some(count) = gauge.count_of(error) {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.gauge.out.fetch_sub(1, Ordering::Relaxed);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Resizes a worker by its gauge.
#[derive(Debug, Clone)]
pub struct AdaptiveConcurrency(Arc<Gauge>);

impl AdaptiveConcurrency {
    /// Resizes by what is recorded in `gauge`.
    pub fn new(gauge: Arc<Gauge>) -> Self {
        Self(gauge)
    }

    /// Resizes the worker periodically, until dropped.
    pub async fn run(&self, worker: &WorkerControl, start: u32, most: u32) {
        let mut adaptive = ConcurrencyLimit::new(1, start, most);
        let mut wait = MIN_WINDOW;
        loop {
            tokio::time::sleep(wait).await;
            let window = self.0.window();
            let slots = adaptive.update(&window);
            tracing::debug!(slots, ?window, "resizing the worker");
            worker.resize(slots);
            // Long enough for calls that started at the new size to end.
            if window.answered > 0 {
                wait = (window.latency * 2).clamp(MIN_WINDOW, MAX_WINDOW);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(gauge: &Gauge) -> GaugeGuard<'_> {
        gauge.start(Duration::from_secs(1))
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_holds_what_was_noted_since_the_last() {
        let gauge = Gauge::default();
        let (first, second, still_out) = (out(&gauge), out(&gauge), out(&gauge));
        tokio::time::advance(Duration::from_millis(10)).await;
        first.finish(Ok(()));
        tokio::time::advance(Duration::from_millis(20)).await;
        second.finish(Ok(()));
        out(&gauge).finish(Err("RATE_LIMITED"));
        for code in [Code::ProviderError, Code::Timeout, Code::InvalidRequest] {
            out(&gauge).finish(Err(code.as_str()));
        }
        let window = gauge.window();
        assert_eq!((window.answered, window.max_in_flight), (2, 3));
        assert_eq!((window.rejected, window.failed), (1, 2), "a bad question is neither");
        assert_eq!(window.latency, Duration::from_millis(20));
        assert_eq!(window.queue_time, Duration::from_secs(1));
        assert_eq!(
            gauge.window(),
            CallWindow { max_in_flight: 1, ..CallWindow::default() },
            "one is still out"
        );
        drop(still_out);
    }
}
