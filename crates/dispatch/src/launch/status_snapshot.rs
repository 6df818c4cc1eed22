//! What others see of a launcher without waiting for it: a command of its system may hang for long.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::scale::Size;

/// Why things are as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Explanation {
    /// Workers that are wanted.
    pub wanted: u32,
    /// Workers that are here.
    pub here: u32,
    /// Jobs whose workers have not come yet, with what their system says.
    pub pending: Vec<String>,
    /// What went wrong last.
    pub trouble: Option<String>,
    /// When it is tried again, in seconds from now.
    pub next_try: Option<u64>,
    /// What the system has been asked and has not answered: until it does, the rest is what was known
    /// before.
    #[serde(default)]
    pub asking: Option<Asking>,
}

/// A question that a system has not answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asking {
    /// What it was asked, for people.
    pub what: String,
    /// For how long, in seconds.
    pub seconds: u64,
}

/// A launcher as it was last seen, and what is wanted of it.
#[derive(Debug)]
pub struct LauncherStatus(Mutex<Snapshot>);

#[derive(Debug)]
struct Snapshot {
    size: Size,
    explanation: Explanation,
    /// When the next try is, on the server's clock.
    next_try: Duration,
    asking: Option<(&'static str, Instant)>,
}

impl LauncherStatus {
    /// Nothing was seen yet but what is wanted.
    pub(super) fn new(size: Size) -> Arc<Self> {
        let (explanation, next_try) = (Explanation::default(), Duration::ZERO);
        Arc::new(Self(Mutex::new(Snapshot { size, explanation, next_try, asking: None })))
    }

    fn snapshot(&self) -> MutexGuard<'_, Snapshot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is wanted of the pool's size.
    pub fn size(&self) -> Size {
        self.snapshot().size
    }

    /// Another size is wanted, from the next round on.
    pub fn set_size(&self, min: u32, max: u32) {
        let mut snapshot = self.snapshot();
        snapshot.size = Size { min, max: max.max(min), ..snapshot.size };
    }

    /// What the system has been asked and has not answered.
    pub fn pending_query(&self) -> Option<Asking> {
        let (what, since) = self.snapshot().asking?;
        Some(Asking { what: what.to_owned(), seconds: since.elapsed().as_secs() })
    }

    /// Why things are as they are, as far as it is known.
    pub fn explain(&self, now: Duration) -> Explanation {
        let asking = self.pending_query();
        let snapshot = self.snapshot();
        let left = snapshot.next_try.saturating_sub(now);
        let next_try = (!left.is_zero()).then_some(left.as_secs());
        Explanation { next_try, asking, ..snapshot.explanation.clone() }
    }

    /// Notes how things are; the next try is on the server's clock.
    pub(super) fn update(&self, explanation: Explanation, next_try: Duration) {
        let mut snapshot = self.snapshot();
        (snapshot.explanation, snapshot.next_try) = (explanation, next_try);
    }

    /// Notes that the system is asked something, until what is returned is dropped.
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
        let status = LauncherStatus::new(Size { min: 1, max: 1, threads: 1, idle });
        assert_eq!(status.pending_query(), None);
        let query = status.begin_query("for a worker");
        tokio::time::sleep(Duration::from_secs(7)).await;
        let asking = Asking { what: "for a worker".into(), seconds: 7 };
        assert_eq!(status.explain(Duration::ZERO).asking, Some(asking));
        drop(query);
        assert_eq!(status.pending_query(), None);
    }

    #[test]
    fn the_next_try_comes_nearer_without_another_round() {
        let second = Duration::from_secs(1);
        let status = LauncherStatus::new(Size { min: 1, max: 1, threads: 1, idle: second });
        status.update(Explanation { wanted: 1, ..Explanation::default() }, 10 * second);
        assert_eq!(status.explain(4 * second).next_try, Some(6));
        assert_eq!(status.explain(11 * second).next_try, None);
    }
}
