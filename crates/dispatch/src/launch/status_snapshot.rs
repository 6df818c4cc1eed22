//! Status of a launcher that other tasks read without waiting: a command of the base system may
//! hang for long.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::scaler::PoolSize;

/// Why the pool has the workers that it has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Explanation {
    /// Wanted workers.
    pub wanted: u32,
    /// Registered workers.
    #[serde(rename = "here")]
    pub registered: u32,
    /// Jobs without a registered worker, with the base system's reasons.
    pub pending: Vec<String>,
    /// The last error.
    #[serde(rename = "trouble")]
    pub last_error: Option<String>,
    /// Seconds until the next launch attempt.
    pub next_try: Option<u64>,
    /// The base system's pending query. Until it is answered, the other fields may be outdated.
    #[serde(default)]
    pub asking: Option<PendingQuery>,
}

/// A query that the base system has not answered yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingQuery {
    /// What was asked, to show.
    pub what: String,
    /// Seconds since the query began.
    pub seconds: u64,
}

/// The published status of a launcher, and the pool's wanted size.
#[derive(Debug)]
pub struct LauncherStatus(Mutex<Snapshot>);

#[derive(Debug)]
struct Snapshot {
    size: PoolSize,
    explanation: Explanation,
    /// When the next launch attempt is, in server uptime.
    next_try: Duration,
    asking: Option<(&'static str, Instant)>,
}

impl LauncherStatus {
    /// The status before the first round.
    pub(crate) fn new(size: PoolSize) -> Arc<Self> {
        let (explanation, next_try) = (Explanation::default(), Duration::ZERO);
        Arc::new(Self(Mutex::new(Snapshot { size, explanation, next_try, asking: None })))
    }

    fn snapshot(&self) -> MutexGuard<'_, Snapshot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pool's wanted size.
    pub fn size(&self) -> PoolSize {
        self.snapshot().size
    }

    /// Changes the wanted size from the next round on.
    pub fn set_size(&self, size: PoolSize) {
        self.snapshot().size = size;
    }

    /// The base system's pending query.
    pub fn pending_query(&self) -> Option<PendingQuery> {
        let (what, since) = self.snapshot().asking?;
        Some(PendingQuery { what: what.to_owned(), seconds: since.elapsed().as_secs() })
    }

    /// Explains the number of workers, as of the last round.
    pub fn explain(&self, now: Duration) -> Explanation {
        let asking = self.pending_query();
        let snapshot = self.snapshot();
        let left = snapshot.next_try.saturating_sub(now);
        let next_try = (!left.is_zero()).then_some(left.as_secs());
        Explanation { next_try, asking, ..snapshot.explanation.clone() }
    }

    /// Publishes the result of a round; `next_try` is in server uptime.
    pub(super) fn update(&self, explanation: Explanation, next_try: Duration) {
        let mut snapshot = self.snapshot();
        (snapshot.explanation, snapshot.next_try) = (explanation, next_try);
    }

    /// Records a pending query until the returned guard is dropped.
    pub(super) fn begin_query(&self, what: &'static str) -> impl Drop + '_ {
        self.snapshot().asking = Some((what, Instant::now()));
        QueryGuard(self)
    }
}

struct QueryGuard<'a>(&'a LauncherStatus);

impl Drop for QueryGuard<'_> {
    fn drop(&mut self) {
        self.0.snapshot().asking = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_question_is_seen_until_it_is_answered_or_nobody_waits_for_it() {
        let idle = Duration::from_secs(60);
        let status = LauncherStatus::new(PoolSize { min: 1, max: 1, idle, drain: idle });
        assert_eq!(status.pending_query(), None);
        let query = status.begin_query("for a worker");
        tokio::time::sleep(Duration::from_secs(7)).await;
        let asking = PendingQuery { what: "for a worker".into(), seconds: 7 };
        assert_eq!(status.explain(Duration::ZERO).asking, Some(asking));
        drop(query);
        assert_eq!(status.pending_query(), None);
    }

    #[test]
    fn the_next_try_comes_nearer_without_another_round() {
        let second = Duration::from_secs(1);
        let status = LauncherStatus::new(PoolSize { min: 1, max: 1, idle: second, drain: second });
        status.update(Explanation { wanted: 1, ..Explanation::default() }, 10 * second);
        assert_eq!(status.explain(4 * second).next_try, Some(6));
        assert_eq!(status.explain(11 * second).next_try, None);
    }
}
