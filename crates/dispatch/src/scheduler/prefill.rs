//! How many tasks a worker gets ahead of its free threads.

use std::time::Duration;

/// Run time of the tasks that a worker gets ahead. It covers a slow answer of the server, and is so
/// short that few tasks wait at one worker while another is idle.
const PREFILL_TIME: Duration = Duration::from_millis(100);
/// Maximum threads' worth of prefilled tasks, for scripts of any run time.
const MAX_PREFILL: u32 = 2048;

/// Moving average of a worker's script run times.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct PrefillEstimator {
    mean: Option<Duration>,
}

impl PrefillEstimator {
    pub(super) fn on_end(&mut self, ran: Duration) {
        self.mean = Some(match self.mean {
            None => ran,
            Some(mean) => mean - mean / 8 + ran / 8,
        });
    }

    /// Threads' worth of tasks to assign beyond the worker's own threads. Zero until a script has
    /// ended: a prefilled task is not overtaken by a more urgent one.
    pub(super) fn credit(self, threads: u32) -> u32 {
        let Some(mean) = self.mean else { return 0 };
        let rounds = PREFILL_TIME.as_nanos() / mean.as_nanos().max(1);
        let rounds = u32::try_from(rounds).unwrap_or(MAX_PREFILL);
        rounds.saturating_mul(threads).min(MAX_PREFILL.max(threads))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(ran: Duration) -> u32 {
        let mut prefill = PrefillEstimator::default();
        for _ in 0..50 {
            prefill.on_end(ran);
        }
        prefill.credit(4)
    }

    #[test]
    fn quick_scripts_are_given_ahead_and_slow_ones_are_not() {
        assert_eq!(after(Duration::from_millis(10)), 40);
        assert_eq!(after(Duration::from_secs(1)), 0);
        assert_eq!(after(Duration::ZERO), MAX_PREFILL);
        assert_eq!(PrefillEstimator::default().credit(4), 0);
    }
}
