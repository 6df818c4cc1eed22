//! Which sessions are dead, judged by this process' own monotonic clock.
//!
//! A session is dead when its beat counter has not moved for its TTL *while we watched*. Wall
//! clocks are not asked, so a clock that jumps takes nobody's lease; and a store that was away
//! makes us see the same counters again only after it is back, so its outage starts the watch
//! anew instead of condemning everyone.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::name::SessionId;
use crate::session::Session;

/// A dead session and the beat it was last seen at. Reclaiming compares the beat again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dead {
    /// The session.
    pub session: SessionId,
    /// Its last beat.
    pub beats: u64,
}

/// Remembers when each session's beat last moved.
#[derive(Debug, Default)]
pub struct StallWatch {
    seen: HashMap<SessionId, (u64, Instant)>,
    looked: Option<Instant>,
}

impl StallWatch {
    /// Takes a fresh look at all sessions at `at`; returns those that have stalled. Call it at
    /// least every `patience`: a longer gap means that we were away, and the watch starts anew.
    pub fn look(&mut self, sessions: &[Session], at: Instant, patience: Duration) -> Vec<Dead> {
        if self.looked.is_some_and(|last| at.duration_since(last) > patience) {
            self.seen.clear();
        }
        self.looked = Some(at);
        let mut seen = HashMap::with_capacity(sessions.len());
        let mut dead = Vec::new();
        for session in sessions {
            let since = match self.seen.get(&session.id) {
                Some((beats, since)) if *beats == session.beats => *since,
                _ => at,
            };
            if at.duration_since(since) >= session.ttl {
                dead.push(Dead { session: session.id, beats: session.beats });
            }
            seen.insert(session.id, (session.beats, since));
        }
        self.seen = seen;
        dead
    }

    /// Forgets everything, as after the store was unreachable.
    pub fn forget(&mut self) {
        self.seen.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Order;
    use crate::time::Timestamp;

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
            order: Order::Work,
        }
    }

    #[test]
    fn a_session_is_dead_only_after_a_whole_ttl_of_watching() {
        let (mut watch, id, start) = (StallWatch::default(), SessionId::new(), Instant::now());
        let mut look = |seconds, beats| {
            watch.look(&[session(id, beats)], start + Duration::from_secs(seconds), TTL).len()
        };
        assert_eq!(look(0, 7), 0, "however long it was silent before, we have only just looked");
        assert_eq!(look(9, 7), 0);
        assert_eq!(look(10, 8), 0, "it moved");
        assert_eq!(look(19, 8), 0);
        assert_eq!(look(20, 8), 1);
    }

    #[test]
    fn a_gap_in_watching_starts_the_watch_anew() {
        let (mut watch, id, start) = (StallWatch::default(), SessionId::new(), Instant::now());
        let mut look = |seconds| {
            watch.look(&[session(id, 1)], start + Duration::from_secs(seconds), TTL).len()
        };
        assert_eq!(look(0), 0);
        assert_eq!(look(60), 0, "the store or this machine was away for a minute");
        assert_eq!(look(70), 1);
    }
}
