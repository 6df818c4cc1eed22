//! PBS in two dialects: OpenPBS (with PBS Professional), and Torque (with its imitations).
//!
//! `qsub` submits jobs, one `qstat` queries them, and `qdel` cancels them. If the site does not
//! name the dialect, `qstat --version` tells it. OpenPBS reports how a job ended if the server
//! keeps a history; Torque reports it for as long as it lists the completed job.

mod openpbs;
mod torque;

use std::collections::BTreeMap;

use async_trait::async_trait;
use longshore_process::Exit;
use tokio::sync::OnceCell;

use super::System;
use super::command::{CommandOutput, CommandRunner, ErrorPatterns, MAX_IDS, retry};
use super::config::{PbsDialect, SystemConfig};
use super::error::SystemError;
use super::job::Job;
use super::job_script::{OutputOpenedBy, ScriptWriter, sanitise_name};
use super::job_state::{JobId, JobState, merge_states};
use super::queue_system::BaseSystem;

const ERROR_PATTERNS: ErrorPatterns = ErrorPatterns {
    unreachable: &[
        "cannot connect to server",
        "Cannot connect to",
        "Connection refused",
        "Unable to contact slurm controller",
        "Problem loading jobs",
        "Server is shutting down",
        "Server shutting down",
        "Unable to communicate",
    ],
    ambiguous: &[
        "Premature end of message",
        "End of File",
        "Communication failure",
        "Connection timed out",
        "Socket timed out",
    ],
};
/// Errors about ended jobs.
const HARMLESS_ERRORS: [&str; 5] =
    ["Unknown Job", "has finished", "invalid state for job", "Request invalid for state", "history"];

/// The PBS system.
#[derive(Debug)]
pub(super) struct Pbs {
    runner: CommandRunner,
    detected: OnceCell<PbsDialect>,
}

impl Pbs {
    pub(super) fn new(site: SystemConfig) -> Self {
        Self { runner: CommandRunner::new(BaseSystem::Pbs, site), detected: OnceCell::new() }
    }

    async fn dialect(&self) -> Result<PbsDialect, SystemError> {
        if let Some(reported) = self.runner.site.dialect {
            return Ok(reported);
        }
        let find = || async {
            let output = self.runner.run("qstat", &["--version"]).await?;
            let is_open = output.out.contains("pbs_version") || output.err.contains("pbs_version");
            Ok(if is_open { PbsDialect::OpenPbs } else { PbsDialect::Torque })
        };
        self.detected.get_or_try_init(find).await.copied()
    }

    fn failure(&self, output: &CommandOutput) -> SystemError {
        self.runner.failure(output, &ERROR_PATTERNS)
    }

    async fn query(&self, dialect: PbsDialect, ids: &[JobId]) -> Result<Vec<(JobId, JobState)>, SystemError> {
        let ids: Vec<&str> = ids.iter().map(JobId::as_str).collect();
        match dialect {
            PbsDialect::OpenPbs => openpbs::query(self, &ids).await,
            PbsDialect::Torque => torque::query(self, &ids).await,
        }
    }
}

#[async_trait]
impl System for Pbs {
    fn base(&self) -> BaseSystem {
        BaseSystem::Pbs
    }

    fn script(&self, job: &Job) -> Result<String, SystemError> {
        let known = self.runner.site.dialect.or(self.detected.get().copied());
        script(job, known.unwrap_or(PbsDialect::OpenPbs))
    }

    async fn submit(&self, job: &Job) -> Result<JobId, SystemError> {
        let dialect = self.dialect().await?;
        let script = script(job, dialect)?;
        job.create_output_folders()?;
        let script = &script;
        retry(self.runner.site.retries, move || async move {
            let output = match dialect {
                PbsDialect::OpenPbs => self.runner.run_with_input("qsub", &[], &job.dir, script).await?,
                PbsDialect::Torque => torque::submit(&self.runner, job, script).await?,
            };
            let id = output.out.trim();
            let is_id = id.starts_with(|c: char| c.is_ascii_digit()) && !id.contains(char::is_whitespace);
            match output.is_ok() {
                true if is_id => Ok(JobId::new(id)),
                true if output.err.is_empty() && id.is_empty() => {
                    Err(self.runner.unexpected_output("qsub", "nothing at all"))
                }
                _ => Err(self.failure(&output)),
            }
        })
        .await
    }

    async fn status(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, JobState>, SystemError> {
        let dialect = self.dialect().await?;
        let mut found = Vec::new();
        for ids in ids.chunks(MAX_IDS) {
            found.extend(self.query(dialect, ids).await?);
        }
        Ok(merge_states(ids, found))
    }

    async fn cancel(&self, ids: &[JobId]) -> Result<(), SystemError> {
        for ids in ids.chunks(MAX_IDS) {
            let args: Vec<&str> = ids.iter().map(JobId::as_str).collect();
            let output = self.runner.run("qdel", &args).await?;
            if !output.is_ok() && !is_harmless(&output) {
                return Err(self.failure(&output));
            }
        }
        Ok(())
    }
}

/// Whether a command reports only errors about ended jobs.
fn is_harmless(output: &CommandOutput) -> bool {
    let output = output.err.lines().chain(output.out.lines());
    let mut output = output.filter(|line| !line.trim().is_empty());
    output.all(|line| HARMLESS_ERRORS.iter().any(|pattern| line.contains(pattern)))
}

/// The script for `qsub`.
fn script(job: &Job, dialect: PbsDialect) -> Result<String, SystemError> {
    // PBS writes its own output file only after the job's end.
    let mut script = ScriptWriter::new(BaseSystem::Pbs, "#PBS", job, OutputOpenedBy::Bash)?;
    let terms = &job.attributes;
    // All versions accept fifteen characters.
    script.directive(format_args!("-N {}", sanitise_name(&job.name, 15)));
    script.directive("-S /bin/bash");
    script.directive("-V");
    script.directive("-r n");
    match dialect {
        PbsDialect::OpenPbs => openpbs::resources(&mut script, job)?,
        PbsDialect::Torque => torque::resources(&mut script, job)?,
    }
    let (out, _) = script.output_paths();
    script.directive(format_args!("-o {out}"));
    script.directive("-j oe");
    script.checked_directive("the queue", "-q ", terms.queue.as_deref())?;
    script.checked_directive("the account", "-A ", terms.account.as_deref())?;
    let instead = "name the queue of the reservation instead";
    script.reject_unsupported("reservations by name", terms.reservation.as_deref(), instead)?;
    if terms.email.is_some() {
        script.checked_directive("the address", "-M ", terms.email.as_deref())?;
        script.directive("-m a");
    }
    script.append_options();
    script.finish(match dialect {
        PbsDialect::OpenPbs => "PBS_ARRAY_INDEX",
        PbsDialect::Torque => "PBS_ARRAYID",
    })
}

/// Decodes a PBS exit status: 256 and more is a signal.
fn parse_exit(status: i64) -> Option<Exit> {
    let number = i32::try_from(status).ok()?;
    match number {
        256.. => Some(Exit::Signal(number - 256)),
        0..256 => Some(Exit::from_shell_code(number)),
        _ => None,
    }
}
