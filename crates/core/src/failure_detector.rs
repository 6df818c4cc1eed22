//! Failure detector: finds dead sessions by this process' monotonic clock.
//!
//! A session is dead when its heartbeat counter has not moved for its TTL *while this process
//! watched*. Wall clocks are not used, so a clock that jumps revokes no lease. If the store was
//! unavailable, the observation starts anew afterwards, so that an outage does not make all
//! sessions look dead.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::name::SessionId;
use crate::worker_session::Session;

/// A dead session and its last heartbeat. Reclaiming compares the counter again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StalledSession {
    /// The session.
    pub session: SessionId,
    /// Its heartbeat counter.
    pub beats: u64,
}

/// Stores when each session's heartbeat counter last moved.
#[derive(Debug, Default)]
pub struct FailureDetector {
    last_beats: HashMap<SessionId, (u64, Instant)>,
    polled_at: Option<Instant>,
}

impl FailureDetector {
    /// Compares the sessions at `at` with earlier polls; returns the dead ones. Call it at least
    /// every `patience`: a longer gap means that this process was suspended, and the observation
    /// starts anew.
    pub fn poll(&mut self, sessions: &[Session], at: Instant, patience: Duration) -> Vec<StalledSession> {
        if self.polled_at.is_some_and(|last| at.duration_since(last) > patience) {
            self.last_beats.clear();
        }
        self.polled_at = Some(at);
        let mut last_beats = HashMap::with_capacity(sessions.len());
        let mut dead = Vec::new();
        for session in sessions {
            let since = match self.last_beats.get(&session.id) {
                Some((beats, since)) if *beats == session.beats => *since,
                _ => at,
            };
            if at.duration_since(since) >= session.ttl {
                dead.push(StalledSession { session: session.id, beats: session.beats });
            }
            last_beats.insert(session.id, (session.beats, since));
        }
        self.last_beats = last_beats;
        dead
    }

    /// Restarts the observation, as after an outage of the store.
    pub fn reset(&mut self) {
        self.last_beats.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;
    use crate::worker_session::WorkerCommand;

    const TTL: Duration = Duration::from_secs(10);

    fn session(id: SessionId, beats: u64) -> Session {
        Session {
            id,
            label: String::new(),
            version: String::new(),
            kinds: vec![],
            slots: 1,
            ttl: TTL,
            beats,
            opened_at: Timestamp::ZERO,
            beat_at: Timestamp::ZERO,
            cpu: None,
            held: 0,
            command: WorkerCommand::Work,
            process: None,
        }
    }

    #[test]
    fn a_session_is_dead_only_after_a_whole_ttl_of_watching() {
        let (mut watch, id, start) = (FailureDetector::default(), SessionId::new(), Instant::now());
        let mut look = |seconds, beats| {
            watch.poll(&[session(id, beats)], start + Duration::from_secs(seconds), TTL).len()
        };
        assert_eq!(look(0, 7), 0, "however long it was silent before, we have only just polled_at");
        assert_eq!(look(9, 7), 0);
        assert_eq!(look(10, 8), 0, "it moved");
        assert_eq!(look(19, 8), 0);
        assert_eq!(look(20, 8), 1);
    }

    #[test]
    fn a_gap_in_watching_starts_the_watch_anew() {
        let (mut watch, id, start) = (FailureDetector::default(), SessionId::new(), Instant::now());
        let mut look =
            |seconds| watch.poll(&[session(id, 1)], start + Duration::from_secs(seconds), TTL).len();
        assert_eq!(look(0), 0);
        assert_eq!(look(60), 0, "the store or this machine was away for a minute");
        assert_eq!(look(70), 1);
    }
}
