//! Names of queue systems: a base system and a role.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Suffix of the names of queue systems with persistent workers.
const WORKER_SUFFIX: &str = "_worker";

/// A system that starts jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BaseSystem {
    /// Processes on this machine.
    Local,
    /// Slurm.
    Slurm,
    /// Grid Engine, of any vendor.
    Sge,
    /// OpenPBS, PBS Pro or Torque.
    Pbs,
    /// IBM Spectrum LSF.
    Lsf,
    /// Kubernetes, through `kubectl`.
    Kubernetes,
}

impl BaseSystem {
    /// All base systems.
    pub const ALL: [Self; 6] = [Self::Local, Self::Slurm, Self::Sge, Self::Pbs, Self::Lsf, Self::Kubernetes];

    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Slurm => "slurm",
            Self::Sge => "sge",
            Self::Pbs => "pbs",
            Self::Lsf => "lsf",
            Self::Kubernetes => "kubernetes",
        }
    }
}

impl fmt::Display for BaseSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for BaseSystem {
    type Err = UnknownQueueSystem;

    fn from_str(name: &str) -> Result<Self, UnknownQueueSystem> {
        let found = Self::ALL.into_iter().find(|system| system.name() == name);
        found.ok_or_else(|| UnknownQueueSystem { name: name.to_owned() })
    }
}

/// What runs scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobRole {
    /// The base system: each script is a job.
    Direct,
    /// Persistent workers that the base system started.
    Workers,
}

/// A queue system: `slurm`, or `slurm_worker` for persistent workers started by Slurm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueueSystem {
    /// The base system.
    pub base: BaseSystem,
    /// What runs scripts.
    pub role: JobRole,
}

impl QueueSystem {
    /// Parses a name.
    pub fn parse(name: &str) -> Result<Self, UnknownQueueSystem> {
        let (base, role) = match name.strip_suffix(WORKER_SUFFIX) {
            Some(base) => (base, JobRole::Workers),
            None => (name, JobRole::Direct),
        };
        let base = base.parse().map_err(|_| UnknownQueueSystem { name: name.to_owned() })?;
        Ok(Self { base, role })
    }

    /// All names.
    pub fn names() -> Vec<String> {
        let roles = [JobRole::Direct, JobRole::Workers];
        let all = roles.into_iter().flat_map(|role| BaseSystem::ALL.map(|base| Self { base, role }));
        all.map(|system| system.to_string()).collect()
    }
}

impl fmt::Display for QueueSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.role == JobRole::Workers { WORKER_SUFFIX } else { "" };
        write!(f, "{}{end}", self.base)
    }
}

impl FromStr for QueueSystem {
    type Err = UnknownQueueSystem;

    fn from_str(name: &str) -> Result<Self, UnknownQueueSystem> {
        Self::parse(name)
    }
}

/// There is no queue system of this name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("there is no queue system `{name}`; there are {}", QueueSystem::names().join(", "))]
pub struct UnknownQueueSystem {
    /// The given name.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_the_base_and_the_role() {
        let direct = QueueSystem { base: BaseSystem::Slurm, role: JobRole::Direct };
        assert_eq!(QueueSystem::parse("slurm"), Ok(direct));
        let workers = QueueSystem { base: BaseSystem::Local, role: JobRole::Workers };
        assert_eq!(QueueSystem::parse("local_worker"), Ok(workers));
    }

    #[test]
    fn every_name_is_read_as_it_is_written() {
        for name in QueueSystem::names() {
            assert_eq!(QueueSystem::parse(&name).unwrap().to_string(), name);
        }
    }

    #[test]
    fn an_unknown_name_is_told_with_those_that_there_are() {
        for name in ["slrum", "worker", "_worker", "", "slurm_workers", "local_worker_worker"] {
            let message = QueueSystem::parse(name).unwrap_err().to_string();
            assert!(message.starts_with(&format!("there is no queue system `{name}`")), "{message}");
            assert!(message.contains("local, slurm, sge, pbs, lsf, kubernetes, local_worker"), "{message}");
        }
    }
}
