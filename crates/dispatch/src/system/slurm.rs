//! Slurm.
//!
//! `sbatch` submits jobs, one `squeue` queries them, and `scancel` cancels them. Slurm lists ended
//! jobs for `MinJobAge` (by default five minutes). `sacct` is not used, because many sites have no
//! accounting. Jobs are never requeued, because the first run may still be running.

use std::collections::BTreeMap;

use async_trait::async_trait;
use longshore_process::Exit;

use super::command::{CommandOutput, CommandRunner, ErrorPatterns, MAX_IDS};
use super::config::SystemConfig;
use super::error::SystemError;
use super::job::Job;
use super::job_script::{OutputOpenedBy, ScriptWriter, sanitise_name};
use super::job_state::{JobEnd, JobEndCause, JobId, JobState, merge_states};
use super::queue_system::BaseSystem;
use super::{System, duration};

const ERROR_PATTERNS: ErrorPatterns = ErrorPatterns {
    unreachable: &[
        "Unable to contact slurm controller",
        "temporarily unable to accept",
        "Resource temporarily unavailable",
        "slurmctld is in standby mode",
        "Slurm backup controller in standby mode",
        "Connection refused",
        "Communication connection failure",
        "slurm_load_ctl_conf error",
        "DNS SRV lookup failed",
    ],
    ambiguous: &["Socket timed out", "Zero Bytes were transmitted", "Connection reset", "Unexpected message"],
};
/// Fields to query, each followed by `|`.
const QUERY_FIELDS: &str = "ArrayJobID:|,State:|,exit_code:|,Reason:|";
/// Error about unknown and forgotten ids.
const UNKNOWN_JOB: &str = "Invalid job id";

/// The Slurm system.
#[derive(Debug)]
pub(super) struct Slurm {
    runner: CommandRunner,
}

impl Slurm {
    pub(super) fn new(site: SystemConfig) -> Self {
        Self { runner: CommandRunner::new(BaseSystem::Slurm, site) }
    }

    async fn query(&self, ids: &[JobId]) -> Result<Vec<(JobId, JobState)>, SystemError> {
        let ids = ids.iter().map(JobId::as_str).collect::<Vec<_>>().join(",");
        let args = ["--noheader", "--states=all", "--jobs", &ids, "--Format", QUERY_FIELDS];
        let output = self.runner.run("squeue", &args).await?;
        if output.is_ok() {
            return self.parse_lines(&output.out);
        }
        if output.err.contains(UNKNOWN_JOB) { Ok(Vec::new()) } else { Err(self.failure(&output)) }
    }

    fn parse_lines(&self, output: &str) -> Result<Vec<(JobId, JobState)>, SystemError> {
        let lines = output.lines().filter(|line| !line.trim().is_empty());
        lines.map(|line| state(line).ok_or_else(|| self.runner.unexpected_output("squeue", line))).collect()
    }

    fn failure(&self, output: &CommandOutput) -> SystemError {
        self.runner.failure(output, &ERROR_PATTERNS)
    }
}

/// The id that `sbatch` prints. In a federation the cluster's name follows.
fn parse_job_id(output: &str) -> Option<JobId> {
    JobId::from_digits(output.trim().split(';').next()?)
}

#[async_trait]
impl System for Slurm {
    fn base(&self) -> BaseSystem {
        BaseSystem::Slurm
    }

    fn script(&self, job: &Job) -> Result<String, SystemError> {
        script(job)
    }

    async fn submit(&self, job: &Job) -> Result<JobId, SystemError> {
        let sbatch = ("sbatch", &["--parsable"][..]);
        self.runner.submit(sbatch, job, &script(job)?, &ERROR_PATTERNS, parse_job_id).await
    }

    async fn status(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, JobState>, SystemError> {
        let mut found = Vec::new();
        for ids in ids.chunks(MAX_IDS) {
            found.extend(self.query(ids).await?);
        }
        Ok(merge_states(ids, found))
    }

    async fn cancel(&self, ids: &[JobId]) -> Result<(), SystemError> {
        for ids in ids.chunks(MAX_IDS) {
            let args: Vec<&str> = ids.iter().map(JobId::as_str).collect();
            let output = self.runner.run("scancel", &args).await?;
            let is_error = |line: &&str| !line.contains(UNKNOWN_JOB) && !line.contains("already completing");
            if !output.is_ok() && output.err.lines().any(|line| is_error(&line)) {
                return Err(self.failure(&output));
            }
        }
        Ok(())
    }

    async fn find(&self, names: &[String]) -> Result<Vec<(String, JobId)>, SystemError> {
        let sanitised: Vec<String> = names.iter().map(|name| scheduler_job_name(name)).collect();
        let format = "ArrayJobID:|,Name:|";
        let args = ["--noheader", "--me", "--name", &sanitised.join(","), "--Format", format];
        let output = self.runner.run("squeue", &args).await?;
        if !output.is_ok() {
            return Err(self.failure(&output));
        }
        let jobs = output.out.lines().filter_map(|line| {
            let (id, name) = line.split_once('|')?;
            let name = name.trim().trim_end_matches('|');
            let at = sanitised.iter().position(|candidate| candidate == name)?;
            Some((names[at].clone(), JobId::new(id.trim())))
        });
        Ok(jobs.collect())
    }
}

/// A job's name in Slurm.
fn scheduler_job_name(name: &str) -> String {
    sanitise_name(name, 64)
}

/// The script for `sbatch`.
fn script(job: &Job) -> Result<String, SystemError> {
    let mut script = ScriptWriter::new(BaseSystem::Slurm, "#SBATCH", job, OutputOpenedBy::System)?;
    let terms = &job.attributes;
    script.directive(format_args!("--job-name={}", scheduler_job_name(&job.name)));
    script.directive("--no-requeue");
    script.directive("--nodes=1");
    script.directive("--ntasks=1");
    script.directive(format_args!("--cpus-per-task={}", job.threads));
    if let Some(memory) = job.memory {
        script.directive(format_args!("--mem={memory}M"));
    }
    if let Some(time) = job.time {
        script.directive(format_args!("--time={}", duration::days(time)));
    }
    let (out, err) = script.output_paths();
    script.directive(format_args!("--output={out}"));
    if let Some(err) = err {
        script.directive(format_args!("--error={err}"));
    }
    script.checked_directive("the partition", "--partition=", terms.queue.as_deref())?;
    script.checked_directive("the account", "--account=", terms.account.as_deref())?;
    script.checked_directive("the quality of service", "--qos=", terms.qos.as_deref())?;
    script.checked_directive("the reservation", "--reservation=", terms.reservation.as_deref())?;
    script.reject_unsupported("projects", terms.project.as_deref(), "name the account instead")?;
    if terms.email.is_some() {
        script.checked_directive("the address", "--mail-user=", terms.email.as_deref())?;
        script.directive("--mail-type=FAIL");
    }
    if let Some(array) = job.array {
        script.directive(format_args!("--array={}{}", array.range(), array.throttle_suffix()));
    }
    script.append_options();
    script.finish("SLURM_ARRAY_TASK_ID")
}

/// Parses a line of `squeue`.
fn state(line: &str) -> Option<(JobId, JobState)> {
    let mut fields = line.split('|').map(str::trim);
    let (id, state, exit, reason) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let why = || Some(reason.to_owned()).filter(|why| why != "None" && !why.is_empty());
    let ended = |cause| JobState::Ended(end(exit, cause));
    let state = match state {
        "PENDING" if is_permanent(reason) => JobState::Stuck { why: reason.to_owned() },
        "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_FED" | "RESV_DEL_HOLD" => {
            JobState::Waiting { why: why() }
        }
        "REQUEUE_HOLD" | "SPECIAL_EXIT" => JobState::Stuck { why: state.to_owned() },
        "COMPLETED" | "FAILED" => ended(JobEndCause::Exited),
        "CANCELLED" | "REVOKED" => ended(JobEndCause::Cancelled),
        "TIMEOUT" | "DEADLINE" => ended(JobEndCause::TimeLimit),
        "OUT_OF_MEMORY" => ended(JobEndCause::Memory),
        "NODE_FAIL" | "BOOT_FAIL" => ended(JobEndCause::NodeLost),
        "PREEMPTED" => ended(JobEndCause::Preempted),
        // In all other states (COMPLETING, SUSPENDED, SIGNALING, …) its processes may exist.
        _ => JobState::Running,
    };
    Some((JobId::new(id), state))
}

/// Whether the job will not start by itself.
fn is_permanent(reason: &str) -> bool {
    let held = ["JobHeldAdmin", "JobHeldUser", "BadConstraints", "InvalidAccount", "InvalidQOS"];
    held.contains(&reason) || reason == "DependencyNeverSatisfied" || reason.starts_with("launch failed")
}

/// A cancelled or killed job has exit 0 here, which is not its program's. A job out of memory has
/// an invalid signal number.
fn end(exit: &str, cause: JobEndCause) -> JobEnd {
    let exit = match exit.split_once(':') {
        Some((code, signal)) => code.parse().ok().zip(signal.parse().ok()).map(|pair| match pair {
            (code, 0) => Exit::Code(code),
            (_, signal) => Exit::Signal(signal),
        }),
        None => exit.parse().ok().map(Exit::from_wait_status),
    };
    let is_its_own = |exit: &Exit| match exit {
        Exit::Code(0) => cause == JobEndCause::Exited,
        Exit::Code(_) => true,
        Exit::Signal(signal) => *signal <= 64,
    };
    JobEnd { exit: exit.filter(is_its_own), cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(exit: Option<Exit>, cause: JobEndCause) -> JobState {
        JobState::Ended(JobEnd { exit, cause })
    }

    #[test]
    fn a_line_tells_the_state_and_who_ended_the_job() {
        let all = [
            ("PENDING|0|Resources", JobState::Waiting { why: Some("Resources".to_owned()) }),
            ("PENDING|0|None", JobState::Waiting { why: None }),
            ("PENDING|0|JobHeldAdmin", JobState::Stuck { why: "JobHeldAdmin".to_owned() }),
            ("RUNNING|0|None", JobState::Running),
            ("COMPLETING|0|None", JobState::Running),
            ("COMPLETED|0|None", ended(Some(Exit::Code(0)), JobEndCause::Exited)),
            ("FAILED|10752|NonZeroExitCode", ended(Some(Exit::Code(42)), JobEndCause::Exited)),
            ("FAILED|42:0|NonZeroExitCode", ended(Some(Exit::Code(42)), JobEndCause::Exited)),
            ("FAILED|0:11|RaisedSignal:11", ended(Some(Exit::Signal(11)), JobEndCause::Exited)),
            ("CANCELLED|15|None", ended(Some(Exit::Signal(15)), JobEndCause::Cancelled)),
            ("CANCELLED|0|Priority", ended(None, JobEndCause::Cancelled)),
            ("TIMEOUT|0|TimeLimit", ended(None, JobEndCause::TimeLimit)),
            ("OUT_OF_MEMORY|125|OutOfMemory", ended(None, JobEndCause::Memory)),
            ("NODE_FAIL|0|NodeDown", ended(None, JobEndCause::NodeLost)),
            ("PREEMPTED|0|None", ended(None, JobEndCause::Preempted)),
        ];
        for (output, wanted) in all {
            assert_eq!(state(&format!("7|{output}|")), Some((JobId::new("7"), wanted)), "{output}");
        }
        assert_eq!(state("slurm_load_jobs error"), None);
    }
}
