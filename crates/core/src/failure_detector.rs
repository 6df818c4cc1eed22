//! Failure detector: finds dead sessions by this process' monotonic clock.
//!
//! A session is dead when its heartbeat counter has not moved for its TTL *while this process
//! watched*. Wall clocks are not used, so a clock that jumps revokes no lease. Only the time between
//! an answer of the store and the next poll counts, and of each such interval at most a share of the
//! TTL: a slow poll, or a process that was suspended, delays the detection and neither ends nor
//! voids it. After a failed poll a session must be silent for some more polls; after a longer outage of
//! the store the observation starts anew, so that an outage does not make all sessions look dead.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::name::SessionId;

/// How often a session is polled within its TTL. One interval between two polls counts as at most
/// this share of the TTL.
pub const POLLS_PER_TTL: u32 = 5;
/// How much of the silence counts after a failed poll, in polls.
const MAX_POLLS_KEPT: u32 = 3;
/// The shortest interval between two polls.
pub const MIN_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// What the failure detector must know of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionBeats {
    /// The session.
    pub session: SessionId,
    /// Without a heartbeat for this long it counts as dead.
    pub ttl: Duration,
    /// Its heartbeat counter.
    pub beats: u64,
    /// The identity of its process: see [`NewSession::process`](crate::worker_session::NewSession::process).
    pub process: Option<String>,
}

/// A dead session and its last heartbeat. Reclaiming compares the counter again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StalledSession {
    /// The session.
    pub session: SessionId,
    /// Its heartbeat counter.
    pub beats: u64,
}

/// Stores for how long each session's heartbeat counter has not moved.
#[derive(Debug, Default)]
pub struct FailureDetector {
    silences: HashMap<SessionId, (u64, Duration)>,
    answered_at: Option<Instant>,
    /// A poll failed after `answered_at`.
    interrupted: bool,
}

impl FailureDetector {
    /// Compares the counters, for which the store was asked at `asked_at` and which it returned at
    /// `answered_at`, with those of earlier polls. Returns the dead sessions.
    pub fn poll(
        &mut self,
        sessions: &[SessionBeats],
        asked_at: Instant,
        answered_at: Instant,
    ) -> Vec<StalledSession> {
        let elapsed =
            self.answered_at.map_or(Duration::ZERO, |last| asked_at.saturating_duration_since(last));
        let interrupted = std::mem::take(&mut self.interrupted);
        self.answered_at = Some(answered_at);
        let mut silences = HashMap::with_capacity(sessions.len());
        let mut dead = Vec::new();
        for &SessionBeats { session, ttl, beats, .. } in sessions {
            let silence = match self.silences.get(&session) {
                Some((before, _)) if *before == beats && interrupted && elapsed > ttl / 2 => Duration::ZERO,
                Some((before, silence)) if *before == beats && interrupted => {
                    (*silence).min(ttl / POLLS_PER_TTL * MAX_POLLS_KEPT)
                }
                Some((before, silence)) if *before == beats => {
                    *silence + elapsed.min((ttl / POLLS_PER_TTL).max(MIN_POLL_INTERVAL))
                }
                _ => Duration::ZERO,
            };
            if silence >= ttl {
                dead.push(StalledSession { session, beats });
            }
            silences.insert(session, (beats, silence));
        }
        self.silences = silences;
        dead
    }

    /// Records that the store did not answer a poll.
    pub fn poll_failed(&mut self) {
        self.interrupted = true;
    }

    /// Restarts the observation, as after a long time without polls.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    /// A detector of one session, polled at seconds since the start.
    struct Watch(FailureDetector, SessionId, Instant);

    impl Watch {
        fn new() -> Self {
            Self(FailureDetector::default(), SessionId::new(), Instant::now())
        }

        /// Whether the session is dead after a poll from `asked` to `answered`.
        fn is_dead(&mut self, asked: u64, answered: u64, beats: u64) -> bool {
            let Self(detector, session, start) = self;
            let at = |seconds| *start + Duration::from_secs(seconds);
            let beats = SessionBeats { session: *session, ttl: TTL, beats, process: None };
            !detector.poll(&[beats], at(asked), at(answered)).is_empty()
        }
    }

    #[test]
    fn a_session_is_dead_only_after_a_whole_ttl_of_watching() {
        let mut watch = Watch::new();
        for second in 0..10 {
            assert!(!watch.is_dead(second, second, 7), "the first poll only begins the watch");
        }
        assert!(!watch.is_dead(10, 10, 8), "it moved");
        for second in 11..20 {
            assert!(!watch.is_dead(second, second, 8));
        }
        assert!(watch.is_dead(20, 20, 8));
    }

    #[test]
    fn a_suspended_detector_counts_little_of_the_time_in_which_it_did_not_watch() {
        let mut watch = Watch::new();
        assert!(!watch.is_dead(0, 0, 1));
        assert!(!watch.is_dead(600, 600, 1), "the whole machine may have been suspended");
        let dead_at = (601..).find(|&second| watch.is_dead(second, second, 1));
        assert_eq!(dead_at, Some(608));
    }

    #[test]
    fn a_failed_poll_delays_the_detection_and_an_outage_starts_it_anew() {
        let mut watch = Watch::new();
        let mut found = None;
        for second in 0..60 {
            // One poll of each ttl fails.
            match second % 10 == 9 {
                true => watch.0.poll_failed(),
                false if watch.is_dead(second, second, 1) => {
                    found.get_or_insert(second);
                }
                false => {}
            }
        }
        assert_eq!(found, Some(14));
        let mut watch = Watch::new();
        assert!((0..9).all(|second| !watch.is_dead(second, second, 1)));
        watch.0.poll_failed();
        let dead_at = (60..).find(|&second| watch.is_dead(second, second, 1));
        assert_eq!(dead_at, Some(70), "a whole ttl after the outage");
    }

    #[test]
    fn a_dead_session_is_found_however_long_each_poll_takes() {
        let (mut watch, mut asked) = (Watch::new(), 0);
        while !watch.is_dead(asked, asked + 20, 1) {
            asked += 22;
            assert!(asked < 600, "never found");
        }
        assert_eq!(asked, 5 * 22, "the time of the polls themselves does not count");
    }
}
