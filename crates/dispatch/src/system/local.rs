//! Runs jobs on this machine, each in its own process group.
//!
//! A job's id is the process id and start time of its leader. So a reused process id is not
//! mistaken for the job, and a restarted server finds its jobs. A job outlives the process that
//! submitted it. Threads and memory are not limited.

mod children;
mod leader;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use tokio::process::Command;

use super::command::remove_job_variables;
use super::config::SystemConfig;
use super::error::SystemError;
use super::job::Job;
use super::job_state::{JobId, JobState};
use super::queue_system::BaseSystem;
use super::{System, duration, job_script};
use children::{ChildJob, ChildTable};
use leader::Leader;

/// Time between TERM and KILL, also after the time limit.
const GRACE: Duration = Duration::from_secs(5);
/// Interval of checks whether cancelled jobs have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The local system.
#[derive(Debug)]
pub(super) struct Local {
    site: SystemConfig,
    /// Jobs of this process, which must wait for them and learns their exits.
    children: ChildTable,
}

impl Local {
    pub(super) fn new(site: SystemConfig) -> Self {
        Self { site, children: ChildTable::default() }
    }

    fn command(&self, job: &Job) -> Result<Command, SystemError> {
        let argv = argv(job)?;
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).current_dir(&job.dir).process_group(0);
        remove_job_variables(command.as_std_mut());
        command.envs(&self.site.env).envs(&job.env);
        let (out, err) = open_outputs(job)?;
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        Ok(command)
    }

    fn state(&self, id: &JobId) -> JobState {
        if let Some(state) = self.children.state(id) {
            return state;
        }
        let Some(leader) = Leader::parse(id.as_str()) else { return JobState::Gone };
        leader.state()
    }
}

#[async_trait]
impl System for Local {
    fn base(&self) -> BaseSystem {
        BaseSystem::Local
    }

    fn script(&self, job: &Job) -> Result<String, SystemError> {
        Ok(argv(job)?.iter().map(|argument| job_script::shell_quote(argument)).collect::<Vec<_>>().join(" "))
    }

    async fn submit(&self, job: &Job) -> Result<JobId, SystemError> {
        let mut command = self.command(job)?;
        let what = || format!("cannot start job `{}`", job.name);
        let child = command.spawn().map_err(|error| SystemError::io(what(), error))?;
        // The child has not been waited for, so its `/proc` entry exists.
        let leader = child.id().and_then(Leader::of);
        let leader =
            leader.ok_or_else(|| SystemError::io(what(), std::io::Error::other("it is not in /proc")))?;
        let id = JobId::new(leader.to_string());
        self.children.add(id.clone(), ChildJob { leader, child, time: job.time });
        Ok(id)
    }

    async fn status(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, JobState>, SystemError> {
        Ok(ids.iter().map(|id| (id.clone(), self.state(id))).collect())
    }

    async fn cancel(&self, ids: &[JobId]) -> Result<(), SystemError> {
        let live = |id: &&JobId| self.state(id).is_live();
        let left: Vec<&JobId> = ids.iter().filter(live).collect();
        let leaders: Vec<Leader> = left.iter().filter_map(|id| Leader::parse(id.as_str())).collect();
        left.iter().for_each(|id| self.children.cancel(id));
        leaders.iter().for_each(Leader::terminate);
        let ended = async {
            while left.iter().any(live) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        // Jobs that ignore TERM are killed below, with processes that others left behind.
        let _ = tokio::time::timeout(GRACE, ended).await;
        leaders.iter().for_each(Leader::kill);
        Ok(())
    }
}

/// The command line of a job.
fn argv(job: &Job) -> Result<Vec<String>, SystemError> {
    let bad = |what: String| SystemError::InvalidJob {
        system: BaseSystem::Local,
        job: job.name.escape_debug().to_string(),
        what,
    };
    job_script::check(job).map_err(bad)?;
    if job.array.is_some() {
        return Err(bad("it has no arrays; submit the tasks one by one".to_owned()));
    }
    if let Some(option) = job.options.first() {
        return Err(bad(format!("it has no options such as `{option}`")));
    }
    let argv = job.program.argv().ok_or_else(|| bad("the script's path is not text".to_owned()))?;
    let Some(time) = job.time else { return Ok(argv) };
    let (grace, limit) = (GRACE.as_secs().to_string(), duration::seconds(time).to_string());
    let timeout = ["timeout", "--kill-after", &grace, &limit].map(str::to_owned);
    Ok(timeout.into_iter().chain(argv).collect())
}

/// Opens a job's output files.
fn open_outputs(job: &Job) -> Result<(Stdio, Stdio), SystemError> {
    job.create_output_folders()?;
    let (out, err) = job.output_files();
    let Some(out) = out else {
        let err = err.map_or(Ok(Stdio::null()), |path| open(path).map(Into::into));
        return Ok((Stdio::null(), err?));
    };
    let out = open(out)?;
    let err = match err {
        Some(path) => open(path)?,
        None => {
            out.try_clone().map_err(|error| SystemError::io("cannot duplicate the output file", error))?
        }
    };
    Ok((out.into(), err.into()))
}

fn open(path: &Path) -> Result<File, SystemError> {
    File::create(path)
        .map_err(|error| SystemError::io(format!("cannot create file {}", path.display()), error))
}
