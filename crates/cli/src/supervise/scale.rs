//! How many processes of a section there should be, by what waits for them. Pure.

use std::time::Duration;

/// With nothing ready or running for this long, one process is let go.
const IDLE: Duration = Duration::from_secs(60);

/// What a look at the queues says about a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tendency {
    /// More is ready than all its processes can hold: one more.
    More,
    /// There was nothing to do for long: one fewer.
    Fewer,
    /// As it is.
    Same,
}

/// Watches one section.
#[derive(Debug, Default)]
pub struct Scale {
    idle_since: Option<Duration>,
}

impl Scale {
    /// So much is ready and so much runs, for processes that can run so many units at once, all together.
    pub fn look(&mut self, ready: u64, running: u64, slots: u64, now: Duration) -> Tendency {
        if ready > 0 {
            self.idle_since = None;
            return if ready > slots { Tendency::More } else { Tendency::Same };
        }
        // Whoever is let go may be the one at work, and a drain has an end.
        if running > 0 {
            self.idle_since = None;
            return Tendency::Same;
        }
        let since = *self.idle_since.get_or_insert(now);
        if now.saturating_sub(since) < IDLE {
            return Tendency::Same;
        }
        self.idle_since = Some(now);
        Tendency::Fewer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn one_more_comes_as_long_as_more_is_ready_than_all_can_hold() {
        let mut scale = Scale::default();
        assert_eq!(scale.look(9, 8, 8, at(0)), Tendency::More);
        assert_eq!(scale.look(9, 8, 16, at(2)), Tendency::Same);
        assert_eq!(scale.look(1, 9, 16, at(4)), Tendency::Same);
    }

    #[test]
    fn one_goes_for_each_while_without_work() {
        let mut scale = Scale::default();
        assert_eq!(scale.look(0, 0, 8, at(0)), Tendency::Same);
        assert_eq!(scale.look(0, 0, 8, at(59)), Tendency::Same);
        assert_eq!(scale.look(0, 0, 8, at(60)), Tendency::Fewer);
        assert_eq!(scale.look(0, 0, 8, at(61)), Tendency::Same, "the next one later");
        assert_eq!(scale.look(1, 0, 8, at(100)), Tendency::Same);
        assert_eq!(scale.look(0, 0, 8, at(121)), Tendency::Same, "there was work meanwhile");
        assert_eq!(scale.look(0, 0, 8, at(181)), Tendency::Fewer);
    }

    #[test]
    fn nobody_is_let_go_while_something_runs() {
        let mut scale = Scale::default();
        for minute in 0..10 {
            assert_eq!(scale.look(0, 1, 8, at(60 * minute)), Tendency::Same);
        }
        assert_eq!(scale.look(0, 0, 8, at(601)), Tendency::Same);
        assert_eq!(scale.look(0, 0, 8, at(661)), Tendency::Fewer);
    }
}
