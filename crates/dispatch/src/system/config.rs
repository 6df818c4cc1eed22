//! Where a system's commands are, and how patient we are with them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// What a system needs to know about the place where it is used.
#[derive(Debug, Clone)]
pub struct Site {
    /// A folder in which commands are looked for before `PATH`.
    pub bin: Option<PathBuf>,
    /// Variables for the commands, such as `SLURM_CONF`; jobs inherit them.
    pub env: BTreeMap<String, String>,
    /// How long a command may take.
    pub limit: Duration,
    /// How often a job is submitted while the system cannot be reached.
    pub retries: Retries,
    /// Which PBS it is, if we are not to find out.
    pub dialect: Option<PbsDialect>,
}

impl Default for Site {
    fn default() -> Self {
        Self {
            bin: None,
            env: BTreeMap::new(),
            limit: Duration::from_secs(60),
            retries: Retries::default(),
            dialect: None,
        }
    }
}

/// How often something is tried, with pauses that double.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// How often in all, the first time included.
    pub tries: u32,
    /// The first pause.
    pub first_pause: Duration,
    /// The longest pause.
    pub max_pause: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { tries: 6, first_pause: Duration::from_secs(2), max_pause: Duration::from_secs(60) }
    }
}

impl Retries {
    /// The pause after so many tries, if there is to be another.
    pub(super) fn pause(self, tried: u32) -> Option<Duration> {
        let doubled = self.first_pause.saturating_mul(1 << tried.saturating_sub(1).min(20));
        (tried < self.tries).then(|| doubled.min(self.max_pause))
    }
}

/// Two families of PBS, whose commands have the same names and other options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PbsDialect {
    /// OpenPBS and PBS Professional: `select=1:ncpus=4`.
    OpenPbs,
    /// Torque, and what imitates it: `nodes=1:ppn=4`.
    Torque,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_end() {
        let seconds = Duration::from_secs;
        let retries = Retries { tries: 5, first_pause: seconds(2), max_pause: seconds(10) };
        let pauses: Vec<_> = (1..=5).map(|tried| retries.pause(tried)).collect();
        let wanted = [Some(2), Some(4), Some(8), Some(10), None];
        assert_eq!(pauses, wanted.map(|pause| pause.map(seconds)));
    }
}
