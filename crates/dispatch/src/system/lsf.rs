//! IBM Spectrum LSF.
//!
//! `bsub` submits jobs, one `bjobs` queries them, and `bkill` cancels them. LSF lists ended jobs
//! for `CLEAN_PERIOD` (by default an hour).

use std::collections::BTreeMap;

use async_trait::async_trait;
use longshore_process::Exit;

use super::command::{CommandRunner, ErrorPatterns, MAX_IDS};
use super::config::SystemConfig;
use super::error::SystemError;
use super::job::Job;
use super::job_script::{OutputOpenedBy, ScriptWriter, sanitise_name};
use super::job_state::{JobEnd, JobEndCause, JobId, JobState, merge_states};
use super::queue_system::BaseSystem;
use super::{System, duration};

const ERROR_PATTERNS: ErrorPatterns = ErrorPatterns {
    unreachable: &[
        "LSF is down",
        "Cannot connect to LSF",
        "Failed in an LSF library call",
        "batch daemon not ready",
        "batch system daemon not responding",
        "still trying",
        "concurrent query limit exceeded",
        "Pending job threshold reached",
    ],
    ambiguous: &["Request timed out", "Communication timed out", "A socket operation has failed"],
};
/// Errors about unknown and forgotten ids.
const UNKNOWN_JOB: [&str; 2] = ["is not found", "No matching job found"];
/// Fields to query.
const QUERY_FIELDS: &str = "jobid stat exit_code exit_reason pend_reason delimiter='|'";
/// Without this, LSF's commands wait for an unreachable daemon for ever.
const NTRIES: (&str, &str) = ("LSB_NTRIES", "2");

/// The LSF system.
#[derive(Debug)]
pub(super) struct Lsf {
    runner: CommandRunner,
}

impl Lsf {
    pub(super) fn new(mut site: SystemConfig) -> Self {
        site.env.entry(NTRIES.0.to_owned()).or_insert_with(|| NTRIES.1.to_owned());
        Self { runner: CommandRunner::new(BaseSystem::Lsf, site) }
    }

    async fn query(&self, ids: &[JobId]) -> Result<Vec<(JobId, JobState)>, SystemError> {
        let mut args = vec!["-a", "-noheader", "-o", QUERY_FIELDS];
        args.extend(ids.iter().map(JobId::as_str));
        let output = self.runner.run("bjobs", &args).await?;
        let mut complaints = output.err.lines().filter(|line| !line.trim().is_empty());
        let is_unknown = |line: &str| UNKNOWN_JOB.iter().any(|pattern| line.contains(pattern));
        if !output.is_ok() && !complaints.all(is_unknown) {
            return Err(self.runner.failure(&output, &ERROR_PATTERNS));
        }
        let lines = output.out.lines().filter(|line| !line.trim().is_empty());
        lines.map(|line| state(line).ok_or_else(|| self.runner.unexpected_output("bjobs", line))).collect()
    }
}

#[async_trait]
impl System for Lsf {
    fn base(&self) -> BaseSystem {
        BaseSystem::Lsf
    }

    fn script(&self, job: &Job) -> Result<String, SystemError> {
        script(job)
    }

    async fn submit(&self, job: &Job) -> Result<JobId, SystemError> {
        self.runner.submit(("bsub", &[]), job, &script(job)?, &ERROR_PATTERNS, parse_job_id).await
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
            let output = self.runner.run("bkill", &args).await?;
            let fine = |line: &str| {
                let over = line.contains("already finished") || line.contains("being terminated");
                over || line.trim().is_empty() || UNKNOWN_JOB.iter().any(|pattern| line.contains(pattern))
            };
            if !output.is_ok() && !output.err.lines().all(fine) {
                return Err(self.runner.failure(&output, &ERROR_PATTERNS));
            }
        }
        Ok(())
    }
}

/// The script for `bsub`.
fn script(job: &Job) -> Result<String, SystemError> {
    // LSF writes its own output file only after the job's end, with a report appended.
    let mut script = ScriptWriter::new(BaseSystem::Lsf, "#BSUB", job, OutputOpenedBy::Bash)?;
    let terms = &job.attributes;
    let (name, array) = (sanitise_name(&job.name, 128), job.array);
    let tasks = array.map(|array| format!("[{}]{}", array.range(), array.throttle_suffix()));
    if array.is_some_and(|array| array.first == 0) {
        return Err(script.invalid_job("its arrays begin at 1"));
    }
    script.directive(format_args!("-J \"{name}{}\"", tasks.unwrap_or_default()));
    script.directive("-rn");
    script.directive(format_args!("-n {}", job.threads));
    script.directive("-R \"span[hosts=1]\"");
    if let Some(memory) = job.memory {
        script.directive(format_args!("-R \"rusage[mem={memory}]\""));
    }
    if let Some(time) = job.time {
        script.directive(format_args!("-W {}", duration::minutes(time)));
    }
    let (out, _) = script.output_paths();
    script.directive(format_args!("-oo {out}"));
    script.checked_directive("the queue", "-q ", terms.queue.as_deref())?;
    script.checked_directive("the project", "-P ", terms.project.as_deref())?;
    script.checked_directive("the reservation", "-U ", terms.reservation.as_deref())?;
    script.reject_unsupported("accounts", terms.account.as_deref(), "name the project instead")?;
    script.reject_unsupported("quality of service", terms.qos.as_deref(), "leave it out")?;
    if terms.email.is_some() {
        script.checked_directive("the address", "-u ", terms.email.as_deref())?;
        script.directive("-N");
    }
    script.append_options();
    script.finish("LSB_JOBINDEX")
}

/// The id in `Job <12> is submitted to queue <normal>.`
fn parse_job_id(output: &str) -> Option<JobId> {
    let (_, rest) = output.split_once("Job <")?;
    let (id, rest) = rest.split_once('>')?;
    JobId::from_digits(id).filter(|_| rest.contains("is submitted"))
}

/// Parses a line of `bjobs`. A field without a value is `-`.
fn state(line: &str) -> Option<(JobId, JobState)> {
    let fields: Vec<&str> = line.split('|').map(str::trim).collect();
    let [id, state, code, reason, why, ..] = fields[..] else { return None };
    let reported = |text: &str| Some(text.to_owned()).filter(|text| text != "-" && !text.is_empty());
    let state = match state {
        "PEND" | "WAIT" | "PROV" => JobState::Waiting { why: reported(why) },
        "PSUSP" => JobState::Stuck { why: "it is held".to_owned() },
        "RUN" | "USUSP" | "SSUSP" => JobState::Running,
        "DONE" => JobState::Ended(JobEnd::exited(Exit::Code(0))),
        "EXIT" => JobState::Ended(end(code, reason)),
        // Its host is unreachable or has lost it. With `-rn` it does not run elsewhere.
        "UNKWN" => JobState::Running,
        "ZOMBI" => JobState::Ended(JobEnd { exit: None, cause: JobEndCause::NodeLost }),
        _ => return None,
    };
    Some((JobId::new(id.split('[').next()?), state))
}

/// The end of a failed job.
fn end(code: &str, reason: &str) -> JobEnd {
    let cause = match reason.split([':', ' ']).next().unwrap_or_default() {
        "TERM_RUNLIMIT" | "TERM_CPULIMIT" | "TERM_DEADLINE" | "TERM_WINDOW" => JobEndCause::TimeLimit,
        "TERM_MEMLIMIT" | "TERM_SWAP" => JobEndCause::Memory,
        "TERM_OWNER" | "TERM_FORCE_OWNER" | "TERM_ADMIN" | "TERM_FORCE_ADMIN" => JobEndCause::Cancelled,
        "TERM_PREEMPT" => JobEndCause::Preempted,
        "TERM_ZOMBIE" | "TERM_RC_RECLAIM" | "TERM_HOST_LOST" => JobEndCause::NodeLost,
        _ => JobEndCause::Exited,
    };
    let exit = code.parse().ok().map(Exit::from_shell_code);
    JobEnd { exit: exit.filter(|exit| *exit != Exit::Code(0)), cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_the_state_and_who_ended_the_job() {
        let ended = |exit, cause| JobState::Ended(JobEnd { exit, cause });
        let why = Some("New job is waiting for scheduling".to_owned());
        let all = [
            ("PEND|-|-|New job is waiting for scheduling", JobState::Waiting { why }),
            ("PSUSP|-|-|-", JobState::Stuck { why: "it is held".to_owned() }),
            ("RUN|-|-|-", JobState::Running),
            ("DONE|-|-|-", ended(Some(Exit::Code(0)), JobEndCause::Exited)),
            ("EXIT|42|-|-", ended(Some(Exit::Code(42)), JobEndCause::Exited)),
            ("EXIT|139|-|-", ended(Some(Exit::Signal(11)), JobEndCause::Exited)),
            ("EXIT|-|TERM_OWNER: job killed by owner|-", ended(None, JobEndCause::Cancelled)),
            ("EXIT|140|TERM_RUNLIMIT: job killed|-", ended(Some(Exit::Signal(12)), JobEndCause::TimeLimit)),
            ("EXIT|137|TERM_MEMLIMIT: job killed|-", ended(Some(Exit::Signal(9)), JobEndCause::Memory)),
            ("ZOMBI|-|-|-", ended(None, JobEndCause::NodeLost)),
        ];
        for (output, wanted) in all {
            assert_eq!(state(&format!("7[2]|{output}")), Some((JobId::new("7"), wanted)), "{output}");
        }
        assert_eq!(state("7|NONSENSE|-|-|-"), None);
    }

    #[test]
    fn the_id_is_read_from_a_sentence() {
        let id = Some(JobId::new("12"));
        assert_eq!(parse_job_id("Job <12> is submitted to queue <normal>.\n"), id);
        assert_eq!(parse_job_id("Note.\nJob <12> is submitted to default queue <normal>."), id);
        assert_eq!(parse_job_id("Request aborted by esub. Job not submitted."), None);
    }
}
