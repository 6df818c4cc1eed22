//! Names of queue systems: which base system, and in which of two roles.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// What a name ends with if scripts go to persistent workers.
const WORKER_SUFFIX: &str = "_worker";

/// A system that starts jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BaseSystem {
    /// Processes of this machine.
    Local,
    /// Slurm.
    Slurm,
    /// Grid Engine, whoever made it.
    Sge,
    /// OpenPBS, PBS Pro or Torque.
    Pbs,
    /// IBM Spectrum LSF.
    Lsf,
}

impl BaseSystem {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Local, Self::Slurm, Self::Sge, Self::Pbs, Self::Lsf];

    /// Its name, as people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Slurm => "slurm",
            Self::Sge => "sge",
            Self::Pbs => "pbs",
            Self::Lsf => "lsf",
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
        let known = Self::ALL.into_iter().find(|system| system.name() == name);
        known.ok_or_else(|| UnknownQueueSystem { name: name.to_owned() })
    }
}

/// Who runs scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The base system itself: each script is a job of its own.
    Direct,
    /// Persistent workers, which the base system started.
    Workers,
}

/// A queue system as people name it: `slurm`, or `slurm_worker` for workers that Slurm started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueueSystem {
    /// What starts jobs.
    pub base: BaseSystem,
    /// Who runs scripts.
    pub role: Role,
}

impl QueueSystem {
    /// The queue system of this name.
    pub fn parse(name: &str) -> Result<Self, UnknownQueueSystem> {
        let (base, role) = match name.strip_suffix(WORKER_SUFFIX) {
            Some(base) => (base, Role::Workers),
            None => (name, Role::Direct),
        };
        let base = base.parse().map_err(|_| UnknownQueueSystem { name: name.to_owned() })?;
        Ok(Self { base, role })
    }

    /// All names that there are.
    pub fn names() -> Vec<String> {
        let roles = [Role::Direct, Role::Workers];
        let all =
            roles.into_iter().flat_map(|role| BaseSystem::ALL.map(|base| Self { base, role }));
        all.map(|system| system.to_string()).collect()
    }
}

impl fmt::Display for QueueSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.role == Role::Workers { WORKER_SUFFIX } else { "" };
        write!(f, "{}{end}", self.base)
    }
}

impl FromStr for QueueSystem {
    type Err = UnknownQueueSystem;

    fn from_str(name: &str) -> Result<Self, UnknownQueueSystem> {
        Self::parse(name)
    }
}

/// Nobody knows a queue system of this name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("there is no queue system `{name}`; there are {}", QueueSystem::names().join(", "))]
pub struct UnknownQueueSystem {
    /// The name as it was given.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_the_base_and_the_role() {
        let direct = QueueSystem { base: BaseSystem::Slurm, role: Role::Direct };
        assert_eq!(QueueSystem::parse("slurm"), Ok(direct));
        let workers = QueueSystem { base: BaseSystem::Local, role: Role::Workers };
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
            let words = QueueSystem::parse(name).unwrap_err().to_string();
            assert!(words.starts_with(&format!("there is no queue system `{name}`")), "{words}");
            assert!(words.contains("local, slurm, sge, pbs, lsf, local_worker"), "{words}");
        }
    }
}
