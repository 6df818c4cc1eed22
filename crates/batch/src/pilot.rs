//! `workers = "auto"`: how many rows at once, found out while they run.
//!
//! [`Gauge`] is where runs note how their questions fared; [`Pilot`] reads it now and then, asks the
//! policy in core and resizes the worker. It decides nothing itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use longshore::WorkerControl;
use longshore::adaptive::{Adaptive, Window};
use longshore_ai::{Answer, Code};
use tokio::time::Instant;

use crate::step::ReplyError;

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
}

/// A question that is out.
#[derive(Debug)]
pub struct Out<'g> {
    gauge: &'g Gauge,
    since: Instant,
}

impl Gauge {
    /// A question goes out; it is back when the guard is dropped.
    pub fn ask(&self) -> Out<'_> {
        let out = self.out.fetch_add(1, Ordering::Relaxed) + 1;
        self.busiest.fetch_max(out, Ordering::Relaxed);
        Out { gauge: self, since: Instant::now() }
    }

    /// Where an error is counted. A bad question says nothing about how many there are.
    fn count_of(&self, error: &ReplyError) -> Option<&AtomicU32> {
        let is = |code: Code| error.code == code.as_str();
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
        let micros = self.micros.swap(0, Ordering::Relaxed);
        let busiest = self.busiest.swap(self.out.load(Ordering::Relaxed), Ordering::Relaxed);
        Window {
            answered,
            refused: self.refused.swap(0, Ordering::Relaxed),
            failed: self.failed.swap(0, Ordering::Relaxed),
            latency: Duration::from_micros(micros / u64::from(answered.max(1))),
            busiest,
        }
    }
}

impl Out<'_> {
    /// What came back.
    pub fn back(self, reply: &Result<Answer, ReplyError>) {
        let Self { gauge, since } = &self;
        match reply {
            Ok(_) => {
                gauge.answered.fetch_add(1, Ordering::Relaxed);
                let micros = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
                gauge.micros.fetch_add(micros, Ordering::Relaxed);
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

/// Steers a worker by a gauge.
#[derive(Debug, Clone)]
pub struct Pilot(pub(crate) Arc<Gauge>);

impl Pilot {
    /// Resizes the worker again and again, for as long as it is awaited.
    pub async fn steer(&self, worker: &WorkerControl, start: u32, most: u32) {
        let mut adaptive = Adaptive::new(1, start, most);
        let mut wait = SHORTEST;
        loop {
            tokio::time::sleep(wait).await;
            let window = self.0.window();
            let slots = adaptive.next(&window);
            tracing::debug!(slots, ?window, "workers = auto");
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

    fn answer() -> Answer {
        Answer { simulated: true, ..Answer::default() }
    }

    fn error(code: Code) -> ReplyError {
        let (code, message) = (code.to_string(), String::new());
        ReplyError { code, message, retryable: true, retry_after: None }
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_holds_what_was_noted_since_the_last() {
        let gauge = Gauge::default();
        let (first, second, still_out) = (gauge.ask(), gauge.ask(), gauge.ask());
        tokio::time::advance(Duration::from_millis(10)).await;
        first.back(&Ok(answer()));
        tokio::time::advance(Duration::from_millis(20)).await;
        second.back(&Ok(answer()));
        gauge.ask().back(&Err(error(Code::RateLimited)));
        for code in [Code::ProviderError, Code::Timeout, Code::InvalidRequest] {
            gauge.ask().back(&Err(error(code)));
        }
        let window = gauge.window();
        assert_eq!((window.answered, window.busiest), (2, 3));
        assert_eq!((window.refused, window.failed), (1, 2), "a bad question is neither");
        assert_eq!(window.latency, Duration::from_millis(20));
        assert_eq!(gauge.window(), Window { busiest: 1, ..Window::default() }, "one is still out");
        drop(still_out);
    }
}
