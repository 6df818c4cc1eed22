//! Decides how a section scales with its queues' depth. Pure.

use std::time::Duration;

/// After this long with nothing ready or running, one process is removed.
const IDLE_BEFORE_SCALE_DOWN: Duration = Duration::from_secs(60);

/// The scaling decision for a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleDecision {
    /// More is ready than all its processes can hold: add one.
    Up,
    /// There was nothing to do for long: remove one.
    Down,
    /// No change.
    Same,
}

/// The scaling state of one section.
#[derive(Debug, Default)]
pub struct SectionScaler {
    idle_since: Option<Duration>,
}

impl SectionScaler {
    /// Decides from the units ready and running, and the slots of all processes together.
    pub fn decide(&mut self, ready: u64, running: u64, slots: u64, now: Duration) -> ScaleDecision {
        if ready > 0 {
            self.idle_since = None;
            return if ready > slots { ScaleDecision::Up } else { ScaleDecision::Same };
        }
        // The removed process might be the busy one, and a drain has a time limit.
        if running > 0 {
            self.idle_since = None;
            return ScaleDecision::Same;
        }
        let since = *self.idle_since.get_or_insert(now);
        if now.saturating_sub(since) < IDLE_BEFORE_SCALE_DOWN {
            return ScaleDecision::Same;
        }
        self.idle_since = Some(now);
        ScaleDecision::Down
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
        let mut scale = SectionScaler::default();
        assert_eq!(scale.decide(9, 8, 8, at(0)), ScaleDecision::Up);
        assert_eq!(scale.decide(9, 8, 16, at(2)), ScaleDecision::Same);
        assert_eq!(scale.decide(1, 9, 16, at(4)), ScaleDecision::Same);
    }

    #[test]
    fn one_goes_for_each_while_without_work() {
        let mut scale = SectionScaler::default();
        assert_eq!(scale.decide(0, 0, 8, at(0)), ScaleDecision::Same);
        assert_eq!(scale.decide(0, 0, 8, at(59)), ScaleDecision::Same);
        assert_eq!(scale.decide(0, 0, 8, at(60)), ScaleDecision::Down);
        assert_eq!(scale.decide(0, 0, 8, at(61)), ScaleDecision::Same, "the next one later");
        assert_eq!(scale.decide(1, 0, 8, at(100)), ScaleDecision::Same);
        assert_eq!(scale.decide(0, 0, 8, at(121)), ScaleDecision::Same, "there was work meanwhile");
        assert_eq!(scale.decide(0, 0, 8, at(181)), ScaleDecision::Down);
    }

    #[test]
    fn nobody_is_let_go_while_something_runs() {
        let mut scale = SectionScaler::default();
        for minute in 0..10 {
            assert_eq!(scale.decide(0, 1, 8, at(60 * minute)), ScaleDecision::Same);
        }
        assert_eq!(scale.decide(0, 0, 8, at(601)), ScaleDecision::Same);
        assert_eq!(scale.decide(0, 0, 8, at(661)), ScaleDecision::Down);
    }
}
