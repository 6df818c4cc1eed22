//! Base systems: they start jobs on this machine or on a cluster.
//!
//! [`System`] has one implementation each for this machine, Slurm, Grid Engine, PBS (two dialects),
//! LSF and Kubernetes. The state of many jobs takes one query; a job that the system does not know any more is
//! [`JobState::Gone`], never an error. A function without I/O per system writes the job's script;
//! `command` runs the system's commands; [`wait_for_jobs`] waits for many jobs.
//!
//! A system does not know about pools: [`QueueSystem`] and the creator of a [`Job`] decide whether
//! the job is a user's script or a persistent worker.

mod command;
mod config;
mod duration;
mod error;
mod job;
mod job_script;
mod job_state;
mod kubernetes;
mod local;
mod lsf;
mod pbs;
mod queue_system;
mod sge;
mod slurm;
mod wait_jobs;

use std::collections::BTreeMap;

use async_trait::async_trait;

pub use config::{PbsDialect, RetryBackoff, SystemConfig};
pub use error::SystemError;
pub use job::{Job, JobArray, JobAttributes, JobProgram};
pub use job_state::{JobEnd, JobEndCause, JobId, JobState};
pub use longshore_process::Exit;
pub use queue_system::{BaseSystem, JobRole, QueueSystem, UnknownQueueSystem};
pub use wait_jobs::{PollPolicy, wait_for_jobs};

/// Starts and observes jobs. A job is identified by its id alone, so all queries work after a
/// restart.
#[async_trait]
pub trait System: Send + Sync {
    /// The kind of system.
    fn base(&self) -> BaseSystem;

    /// Its name, as users write it.
    fn name(&self) -> &'static str {
        self.base().name()
    }

    /// The script that is submitted for a job; for the local system, the command line.
    fn script(&self, job: &Job) -> Result<String, SystemError>;

    /// Submits a job. Retries with growing pauses while the system is unreachable. A rejection is
    /// returned at once, with the system's message.
    async fn submit(&self, job: &Job) -> Result<JobId, SystemError>;

    /// The state of each job, in one query.
    async fn status(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, JobState>, SystemError>;

    /// Cancels jobs. Ended and unknown jobs are not an error.
    async fn cancel(&self, ids: &[JobId]) -> Result<(), SystemError>;

    /// Waiting and running jobs with these names; empty if the system cannot look them up.
    async fn find(&self, _names: &[String]) -> Result<Vec<(String, JobId)>, SystemError> {
        Ok(Vec::new())
    }

    /// How jobs ended that [`status`](Self::status) does not know any more, by the system's
    /// accounting. A job that is not in the accounting yet is left out. Without accounting, the end
    /// is unknown.
    async fn ends(&self, gone: &[JobId]) -> Result<BTreeMap<JobId, JobEnd>, SystemError> {
        Ok(gone.iter().map(|id| (id.clone(), JobEnd::unknown())).collect())
    }
}

/// The base system of this kind, with its commands and settings in `site`.
pub fn open_system(base: BaseSystem, site: SystemConfig) -> Box<dyn System> {
    match base {
        BaseSystem::Local => Box::new(local::Local::new(site)),
        BaseSystem::Slurm => Box::new(slurm::Slurm::new(site)),
        BaseSystem::Sge => Box::new(sge::GridEngine::new(site)),
        BaseSystem::Pbs => Box::new(pbs::Pbs::new(site)),
        BaseSystem::Lsf => Box::new(lsf::Lsf::new(site)),
        BaseSystem::Kubernetes => Box::new(kubernetes::Kubernetes::new(site)),
    }
}
