//! Base systems: what starts jobs on this machine or on a cluster.
//!
//! One seam, [`System`], and one small file for each: this machine, Slurm, Grid Engine, PBS in two
//! dialects, LSF. A system is asked for the state of many jobs in one query; a job that it does not
//! know any more is [`JobState::Gone`] and never an error. What a job's script says is decided by a
//! pure function per system; `call` runs the system's commands; [`wait`] waits for many jobs.
//!
//! A system knows nothing of pools: whether a job is somebody's script or a persistent worker is the
//! business of [`QueueSystem`] and of whoever made the [`Job`].

mod command;
mod config;
mod duration;
mod error;
mod job;
mod job_script;
mod job_state;
mod local;
mod lsf;
mod pbs;
mod queue_system;
mod sge;
mod slurm;
mod wait_jobs;

use std::collections::BTreeMap;

use async_trait::async_trait;

pub use config::{PbsDialect, Retries, Site};
pub use error::SystemError;
pub use job::{Array, Job, Program, Terms};
pub use job_state::{Cause, End, Exit, JobId, JobState};
pub use queue_system::{BaseSystem, QueueSystem, Role, UnknownQueueSystem};
pub use wait_jobs::{Pace, wait};

/// What starts jobs. Everything can be asked again after a restart: a job is known by its id alone.
#[async_trait]
pub trait System: Send + Sync {
    /// Which of the systems it is.
    fn base(&self) -> BaseSystem;

    /// Its name, as people write it.
    fn name(&self) -> &'static str {
        self.base().name()
    }

    /// The text that is submitted for a job; for a system that submits no text, what it runs.
    fn script(&self, job: &Job) -> Result<String, SystemError>;

    /// Submits a job. Asked again, with growing pauses, while the system cannot be reached; what it
    /// refuses is told at once, in its own words.
    async fn submit(&self, job: &Job) -> Result<JobId, SystemError>;

    /// The state of jobs, each of them, in one query.
    async fn status(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, JobState>, SystemError>;

    /// Ends jobs. Those that have ended, or that nobody knows, need not be ended.
    async fn cancel(&self, ids: &[JobId]) -> Result<(), SystemError>;

    /// Jobs that wait or run and were submitted under these names; none where the system cannot say.
    async fn find(&self, _names: &[String]) -> Result<Vec<(String, JobId)>, SystemError> {
        Ok(Vec::new())
    }

    /// How jobs ended that [`status`](Self::status) does not know any more, as the system's books
    /// say. An end that is not in the books yet is left out; where there are no books, it is unknown.
    async fn ends(&self, gone: &[JobId]) -> Result<BTreeMap<JobId, End>, SystemError> {
        Ok(gone.iter().map(|id| (id.clone(), End::unknown())).collect())
    }
}

/// The base system of this name, whose commands are where `site` says.
pub fn system(base: BaseSystem, site: Site) -> Box<dyn System> {
    match base {
        BaseSystem::Local => Box::new(local::Local::new(site)),
        BaseSystem::Slurm => Box::new(slurm::Slurm::new(site)),
        BaseSystem::Sge => Box::new(sge::GridEngine::new(site)),
        BaseSystem::Pbs => Box::new(pbs::Pbs::new(site)),
        BaseSystem::Lsf => Box::new(lsf::Lsf::new(site)),
    }
}
