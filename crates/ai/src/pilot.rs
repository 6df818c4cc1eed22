//! "auto": how many questions at once, found out while they are asked.
//!
//! [`Gauge`] is where runs note how their questions fared and how long they had waited; [`Pilot`]
//! reads it now and then, asks the policy in core and resizes the worker. It decides nothing itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use longshore::WorkerControl;
use longshore::adaptive::{Adaptive, Window};
use tokio::time::Instant;

use crate::ask::Code;

/// Shortest window: below it a mean says little.
const SHORTEST: Duration = Duration::from_secs(1);
/// Longest window: a slow provider is judged by what came back meanwhile.
const LONGEST: Duration = Duration::from_secs(30);

/// How the questions of a process fare.
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

/// A question that is out.
#[derive(Debug)]
pub struct Out<'g> {
    gauge: &'g Gauge,
    since: Instant,
}

impl Gauge {
    /// A question goes out that had waited this long; it is back when the guard is dropped.
    pub fn ask(&self, waited: Duration) -> Out<'_> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.waited_micros.fetch_add(micros(waited), Ordering::Relaxed);
        let out = self.out.fetch_add(1, Ordering::Relaxed) + 1;
        self.busiest.fetch_max(out, Ordering::Relaxed);
        Out { gauge: self, since: Instant::now() }
    }

    /// Where an error is counted. A bad question says nothing about how many there are.
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

    /// What was noted since the last time.
    fn window(&self) -> Window {
        let answered = self.answered.swap(0, Ordering::Relaxed);
        let asked = self.asked.swap(0, Ordering::Relaxed);
        let mean = |sum: &AtomicU64, of: u32| {
            Duration::from_micros(sum.swap(0, Ordering::Relaxed) / u64::from(of.max(1)))
        };
        let busiest = self.busiest.swap(self.out.load(Ordering::Relaxed), Ordering::Relaxed);
        Window {
            answered,
            refused: self.refused.swap(0, Ordering::Relaxed),
            failed: self.failed.swap(0, Ordering::Relaxed),
            latency: mean(&self.micros, answered),
            waited: mean(&self.waited_micros, asked),
            busiest,
        }
    }
}

impl Out<'_> {
    /// What came back: an answer, or an error by its code.
    pub fn back(self, reply: Result<(), &str>) {
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

impl Drop for Out<'_> {
    fn drop(&mut self) {
        self.gauge.out.fetch_sub(1, Ordering::Relaxed);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Steers a worker by a gauge.
#[derive(Debug, Clone)]
pub struct Pilot(Arc<Gauge>);

impl Pilot {
    /// Steers by what is noted in `gauge`.
    pub fn new(gauge: Arc<Gauge>) -> Self {
        Self(gauge)
    }

    /// Resizes the worker again and again, for as long as it is awaited.
    pub async fn steer(&self, worker: &WorkerControl, start: u32, most: u32) {
        let mut adaptive = Adaptive::new(1, start, most);
        let mut wait = SHORTEST;
        loop {
            tokio::time::sleep(wait).await;
            let window = self.0.window();
            let slots = adaptive.next(&window);
            tracing::debug!(slots, ?window, "so many at once");
            worker.resize(slots);
            // Long enough for calls that went out at the new size to come back.
            if window.answered > 0 {
                wait = (window.latency * 2).clamp(SHORTEST, LONGEST);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(gauge: &Gauge) -> Out<'_> {
        gauge.ask(Duration::from_secs(1))
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_holds_what_was_noted_since_the_last() {
        let gauge = Gauge::default();
        let (first, second, still_out) = (out(&gauge), out(&gauge), out(&gauge));
        tokio::time::advance(Duration::from_millis(10)).await;
        first.back(Ok(()));
        tokio::time::advance(Duration::from_millis(20)).await;
        second.back(Ok(()));
        out(&gauge).back(Err("RATE_LIMITED"));
        for code in [Code::ProviderError, Code::Timeout, Code::InvalidRequest] {
            out(&gauge).back(Err(code.as_str()));
        }
        let window = gauge.window();
        assert_eq!((window.answered, window.busiest), (2, 3));
        assert_eq!((window.refused, window.failed), (1, 2), "a bad question is neither");
        assert_eq!(window.latency, Duration::from_millis(20));
        assert_eq!(window.waited, Duration::from_secs(1));
        assert_eq!(gauge.window(), Window { busiest: 1, ..Window::default() }, "one is still out");
        drop(still_out);
    }
}
