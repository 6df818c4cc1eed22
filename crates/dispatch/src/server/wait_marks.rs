//! Since when failures count for a client that waits for the pool.
//!
//! A script may fail before the client begins to wait, and the wait must report it. So failures count since a
//! wait last found the pool idle, or since the session's own first submission after its last wait, whichever
//! is earlier: a wait of one session takes no failure away from another.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore::Timestamp;

/// Maximum number of sessions with submissions that they have not waited for.
const MAX_SUBMITTERS: usize = 10_000;

/// The times since which failures count. All are the store's.
pub(super) struct WaitMarks {
    marks: Mutex<Marks>,
    /// How long the store keeps failed units.
    failed_retention: Duration,
}

struct Marks {
    /// When a wait last found the pool idle, or the pool began.
    idle_seen_at: Timestamp,
    /// The first submission of each session after its last wait.
    submitted_at: HashMap<String, Timestamp>,
}

/// Since when failures count for one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CountedSince {
    pub(super) at: Timestamp,
    /// Whether the store still has every unit that failed since the client's own first submission.
    pub(super) is_complete: bool,
}

impl WaitMarks {
    pub(super) fn new(idle_seen_at: Timestamp, failed_retention: Duration) -> Self {
        let marks = Marks { idle_seen_at, submitted_at: HashMap::new() };
        Self { marks: Mutex::new(marks), failed_retention }
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When a wait last found the pool idle.
    pub(super) fn idle_seen_at(&self) -> Timestamp {
        self.marks().idle_seen_at
    }

    /// Whether the session has submitted scripts since its last wait.
    pub(super) fn has_submitted(&self, submitter: &str) -> bool {
        self.marks().submitted_at.contains_key(submitter)
    }

    /// The session submits scripts, or begins to wait: from now on failures count for it until it has waited.
    pub(super) fn on_submit(&self, submitter: &str, now: Timestamp) {
        let mut marks = self.marks();
        if marks.submitted_at.len() < MAX_SUBMITTERS {
            marks.submitted_at.entry(submitter.to_owned()).or_insert(now);
        } else if !marks.submitted_at.contains_key(submitter) {
            // Its failures then count for every session.
            marks.idle_seen_at = marks.idle_seen_at.min(now);
        }
    }

    /// Since when failures count for this session.
    pub(super) fn counted_since(&self, submitter: Option<&str>, now: Timestamp) -> CountedSince {
        let marks = self.marks();
        let submitted_at = submitter.and_then(|submitter| marks.submitted_at.get(submitter)).copied();
        let pruned_until = now - self.failed_retention;
        // Other sessions' failures count as long as they are certain to be there when the wait ends.
        let shared = marks.idle_seen_at.max(now - self.failed_retention / 2);
        let at = submitted_at.map_or(shared, |at| at.min(shared));
        CountedSince {
            at: at.max(pruned_until),
            is_complete: submitted_at.is_none_or(|at| at >= pruned_until),
        }
    }

    /// A wait of this session found the pool idle, and reported the failures.
    pub(super) fn on_idle(&self, submitter: Option<&str>, now: Timestamp) {
        let mut marks = self.marks();
        marks.idle_seen_at = marks.idle_seen_at.max(now);
        if let Some(submitter) = submitter {
            marks.submitted_at.remove(submitter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETENTION: Duration = Duration::from_secs(1000);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(10_000 + seconds)
    }

    fn since(marks: &WaitMarks, submitter: &str, now: u64) -> Timestamp {
        let counted = marks.counted_since(Some(submitter), at(now));
        assert!(counted.is_complete);
        counted.at
    }

    #[test]
    fn a_wait_takes_no_failure_away_from_another_session() {
        let marks = WaitMarks::new(at(0), RETENTION);
        assert_eq!(since(&marks, "a", 5), at(0));
        marks.on_submit("a", at(10));
        marks.on_submit("b", at(20));
        marks.on_submit("b", at(25));
        marks.on_idle(Some("a"), at(30));
        assert_eq!((since(&marks, "a", 40), since(&marks, "b", 40)), (at(30), at(20)));
        assert!(marks.has_submitted("b") && !marks.has_submitted("a"));
        marks.on_idle(Some("b"), at(50));
        assert_eq!((since(&marks, "b", 60), marks.idle_seen_at()), (at(50), at(50)));
    }

    #[test]
    fn a_session_that_submits_after_another_hears_of_both() {
        let marks = WaitMarks::new(at(0), RETENTION);
        marks.on_submit("a", at(10));
        assert_eq!(since(&marks, "b", 20), at(0));
        marks.on_submit("b", at(20));
        assert_eq!(since(&marks, "b", 30), at(0));
    }

    #[test]
    fn what_may_have_been_pruned_is_no_success() {
        let marks = WaitMarks::new(at(0), RETENTION);
        marks.on_submit("a", at(10));
        let late = at(2000);
        let (own, other) = (marks.counted_since(Some("a"), late), marks.counted_since(None, late));
        assert_eq!((own.at, own.is_complete), (late - RETENTION, false));
        assert_eq!((other.at, other.is_complete), (late - RETENTION / 2, true));
    }

    #[test]
    fn more_sessions_than_are_kept_lose_no_failure() {
        let marks = WaitMarks::new(at(100), RETENTION);
        for number in 0..=MAX_SUBMITTERS {
            marks.on_submit(&number.to_string(), at(10));
        }
        assert_eq!(since(&marks, &MAX_SUBMITTERS.to_string(), 200), at(10));
    }
}
