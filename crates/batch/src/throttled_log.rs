//! Warnings that many rows have for one cause: one log line, and after a minute one more with the number of rows in
//! between.
//!
//! All warnings that a row can cause go through [`warn`].

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Minimum time between two lines about one cause.
const INTERVAL: Duration = Duration::from_secs(60);
/// The most causes that are remembered. Beyond, the one that was reported first is forgotten.
const MAX_CAUSES: usize = 256;

/// The causes that this process has reported.
static REPORTED: Mutex<Throttle> = Mutex::new(Throttle::new());

/// Logs a warning as `cause: detail`, unless one with the same cause and scope was logged within a minute. `scope` tells
/// apart what an operator mends separately, as a batch or an error's code; `detail` may differ from row to row.
pub(crate) fn warn(cause: &'static str, scope: impl Display, detail: impl Display) {
    let key = format!("{cause} {scope}");
    let admitted = REPORTED.lock().unwrap_or_else(PoisonError::into_inner).admit(&key, Instant::now());
    match admitted {
        None => {}
        Some(0) => tracing::warn!("{cause}: {detail}"),
        Some(others) => tracing::warn!("{cause}: {detail} ({others} more of these since the last line)"),
    }
}

/// When causes were last reported, and how many warnings were left out since.
#[derive(Debug, Default)]
pub(crate) struct Throttle(BTreeMap<String, Reported>);

#[derive(Debug)]
struct Reported {
    at: Instant,
    left_out: u64,
}

impl Throttle {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Whether a warning of this cause is due: then how many were left out since the last one.
    pub(crate) fn admit(&mut self, cause: &str, now: Instant) -> Option<u64> {
        if let Some(reported) = self.0.get_mut(cause) {
            if now.duration_since(reported.at) < INTERVAL {
                reported.left_out += 1;
                return None;
            }
            reported.at = now;
            return Some(std::mem::take(&mut reported.left_out));
        }
        if self.0.len() >= MAX_CAUSES {
            let oldest =
                self.0.iter().min_by_key(|(_, reported)| reported.at).map(|(cause, _)| cause.clone());
            oldest.map(|cause| self.0.remove(&cause));
        }
        self.0.insert(cause.to_owned(), Reported { at: now, left_out: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_one_line_and_then_a_count_each_minute() {
        let (mut throttle, began) = (Throttle::new(), Instant::now());
        assert_eq!(throttle.admit("lock", began), Some(0));
        for row in 0..500 {
            assert_eq!(throttle.admit("lock", began + Duration::from_millis(row)), None);
        }
        assert_eq!(throttle.admit("credit", began), Some(0), "another cause has its own line");
        assert_eq!(throttle.admit("lock", began + INTERVAL), Some(500));
        assert_eq!(throttle.admit("lock", began + INTERVAL * 2), Some(0));
    }

    #[test]
    fn causes_that_never_repeat_use_bounded_memory() {
        let (mut throttle, began) = (Throttle::new(), Instant::now());
        for at in 0..10_000 {
            throttle.admit(&format!("cause {at}"), began + Duration::from_millis(at));
        }
        assert_eq!(throttle.0.len(), MAX_CAUSES);
        assert_eq!(throttle.admit("cause 9999", began + Duration::from_secs(10)), None, "the newest stay");
    }
}
