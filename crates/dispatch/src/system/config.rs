//! Where a base system's commands are, and their timeouts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use longshore::exponential_delay;

/// Settings of a base system at this site.
#[derive(Debug, Clone)]
pub struct SystemConfig {
    /// Folder to search for commands before `PATH`.
    pub bin: Option<PathBuf>,
    /// Environment variables for the commands, such as `SLURM_CONF`; jobs inherit them.
    pub env: BTreeMap<String, String>,
    /// Timeout of a command.
    pub command_timeout: Duration,
    /// Retries of a submission while the system is unreachable.
    pub retries: RetryBackoff,
    /// The PBS dialect; `None` to detect it.
    pub dialect: Option<PbsDialect>,
}

impl Default for SystemConfig {
    fn default() -> Self {
        Self {
            bin: None,
            env: BTreeMap::new(),
            command_timeout: Duration::from_secs(60),
            retries: RetryBackoff::default(),
            dialect: None,
        }
    }
}

/// Number of attempts, with pauses that double.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryBackoff {
    /// Number of attempts, including the first.
    pub max_attempts: u32,
    /// Pause after the first attempt.
    pub first_pause: Duration,
    /// Maximum pause.
    pub max_pause: Duration,
}

impl Default for RetryBackoff {
    fn default() -> Self {
        Self { max_attempts: 6, first_pause: Duration::from_secs(2), max_pause: Duration::from_secs(60) }
    }
}

impl RetryBackoff {
    /// The pause after `tried` attempts; `None` if that was the last.
    pub(super) fn pause(self, tried: u32) -> Option<Duration> {
        let pause = exponential_delay(self.first_pause, self.max_pause, tried.saturating_sub(1));
        (tried < self.max_attempts).then_some(pause)
    }
}

/// Families of PBS: their commands have the same names and different options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PbsDialect {
    /// OpenPBS and PBS Professional: `select=1:ncpus=4`.
    OpenPbs,
    /// Torque and its imitations: `nodes=1:ppn=4`.
    Torque,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_end() {
        let seconds = Duration::from_secs;
        let retries = RetryBackoff { max_attempts: 5, first_pause: seconds(2), max_pause: seconds(10) };
        let pauses: Vec<_> = (1..=5).map(|tried| retries.pause(tried)).collect();
        let wanted = [Some(2), Some(4), Some(8), Some(10), None];
        assert_eq!(pauses, wanted.map(|pause| pause.map(seconds)));
    }
}
