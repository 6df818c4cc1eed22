//! PBS, in two dialects: OpenPBS (and PBS Professional), and Torque with what imitates it.
//!
//! Jobs are submitted by `qsub`, asked after by one `qstat` and ended by `qdel`. Which dialect it is
//! says `qstat --version`, unless the site says so. OpenPBS tells how a job ended where the server
//! keeps a history; Torque tells it for as long as it lists a job that is complete.

mod openpbs;
mod torque;

use std::collections::BTreeMap;

use async_trait::async_trait;
use tokio::sync::OnceCell;

use super::System;
use super::call::{Answer, CHUNK, Caller, Signs, again};
use super::error::SystemError;
use super::job::Job;
use super::name::BaseSystem;
use super::script::{Opens, Writer, tame};
use super::site::{Dialect, Site};
use super::state::{Exit, JobId, JobState, states};

const SIGNS: Signs = Signs {
    away: &[
        "cannot connect to server",
        "Cannot connect to",
        "Connection refused",
        "Unable to contact slurm controller",
        "Problem loading jobs",
        "Server is shutting down",
        "Server shutting down",
        "Unable to communicate",
    ],
    unclear: &[
        "Premature end of message",
        "End of File",
        "Communication failure",
        "Connection timed out",
        "Socket timed out",
    ],
};
/// What is not worth a complaint about an id.
const OVER: [&str; 5] = [
    "Unknown Job",
    "has finished",
    "invalid state for job",
    "Request invalid for state",
    "history",
];

/// The system.
#[derive(Debug)]
pub(super) struct Pbs {
    caller: Caller,
    found: OnceCell<Dialect>,
}

impl Pbs {
    pub(super) fn new(site: Site) -> Self {
        Self { caller: Caller::new(BaseSystem::Pbs, site), found: OnceCell::new() }
    }

    async fn dialect(&self) -> Result<Dialect, SystemError> {
        if let Some(told) = self.caller.site.dialect {
            return Ok(told);
        }
        let find = || async {
            let answer = self.caller.ask("qstat", &["--version"]).await?;
            let is_open = answer.out.contains("pbs_version") || answer.err.contains("pbs_version");
            Ok(if is_open { Dialect::OpenPbs } else { Dialect::Torque })
        };
        self.found.get_or_try_init(find).await.copied()
    }

    fn failure(&self, answer: &Answer) -> SystemError {
        self.caller.failure(answer, &SIGNS)
    }

    async fn look(
        &self,
        dialect: Dialect,
        ids: &[JobId],
    ) -> Result<Vec<(JobId, JobState)>, SystemError> {
        let ids: Vec<&str> = ids.iter().map(JobId::as_str).collect();
        match dialect {
            Dialect::OpenPbs => openpbs::look(self, &ids).await,
            Dialect::Torque => torque::look(self, &ids).await,
        }
    }
}

#[async_trait]
impl System for Pbs {
    fn base(&self) -> BaseSystem {
        BaseSystem::Pbs
    }

    fn script(&self, job: &Job) -> Result<String, SystemError> {
        let known = self.caller.site.dialect.or(self.found.get().copied());
        script(job, known.unwrap_or(Dialect::OpenPbs))
    }

    async fn submit(&self, job: &Job) -> Result<JobId, SystemError> {
        let dialect = self.dialect().await?;
        let script = script(job, dialect)?;
        job.make_folders()?;
        let script = &script;
        again(self.caller.site.retries, move || async move {
            let answer = match dialect {
                Dialect::OpenPbs => self.caller.tell("qsub", &[], &job.dir, script).await?,
                Dialect::Torque => torque::submit(&self.caller, job, script).await?,
            };
            let id = answer.out.trim();
            let is_id = id.starts_with(|sign: char| sign.is_ascii_digit())
                && !id.contains(char::is_whitespace);
            match answer.is_ok() {
                true if is_id => Ok(JobId::new(id)),
                true if answer.err.is_empty() && id.is_empty() => {
                    Err(self.caller.garbled("qsub", "nothing at all"))
                }
                _ => Err(self.failure(&answer)),
            }
        })
        .await
    }

    async fn status(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, JobState>, SystemError> {
        let dialect = self.dialect().await?;
        let mut seen = Vec::new();
        for ids in ids.chunks(CHUNK) {
            seen.extend(self.look(dialect, ids).await?);
        }
        Ok(states(ids, seen))
    }

    async fn cancel(&self, ids: &[JobId]) -> Result<(), SystemError> {
        for ids in ids.chunks(CHUNK) {
            let args: Vec<&str> = ids.iter().map(JobId::as_str).collect();
            let answer = self.caller.ask("qdel", &args).await?;
            if !answer.is_ok() && !only_over(&answer) {
                return Err(self.failure(&answer));
            }
        }
        Ok(())
    }
}

/// Whether all that a command complains about is that jobs have ended.
fn only_over(answer: &Answer) -> bool {
    let said = answer.err.lines().chain(answer.out.lines());
    let mut said = said.filter(|line| !line.trim().is_empty());
    said.all(|line| OVER.iter().any(|words| line.contains(words)))
}

/// What `qsub` is told.
fn script(job: &Job, dialect: Dialect) -> Result<String, SystemError> {
    // PBS keeps the output to itself until the job has ended.
    let mut script = Writer::new(BaseSystem::Pbs, "#PBS", job, Opens::Bash)?;
    let terms = &job.terms;
    // Fifteen letters are what every version takes.
    script.line(format_args!("-N {}", tame(&job.name, 15)));
    script.line("-S /bin/bash");
    script.line("-V");
    script.line("-r n");
    match dialect {
        Dialect::OpenPbs => openpbs::resources(&mut script, job)?,
        Dialect::Torque => torque::resources(&mut script, job)?,
    }
    let (out, _) = script.outputs();
    script.line(format_args!("-o {out}"));
    script.line("-j oe");
    script.word("the queue", "-q ", terms.queue.as_deref())?;
    script.word("the account", "-A ", terms.account.as_deref())?;
    let instead = "name the queue of the reservation instead";
    script.lacks("reservations by name", terms.reservation.as_deref(), instead)?;
    if terms.email.is_some() {
        script.word("the address", "-M ", terms.email.as_deref())?;
        script.line("-m a");
    }
    script.options();
    script.body(match dialect {
        Dialect::OpenPbs => "PBS_ARRAY_INDEX",
        Dialect::Torque => "PBS_ARRAYID",
    })
}

/// The exit in a PBS exit status: of a program that died of a signal it is that and 256.
fn exit(status: i64) -> Option<Exit> {
    let number = i32::try_from(status).ok()?;
    match number {
        256.. => Some(Exit::Signal(number - 256)),
        0..256 => Some(Exit::of_shell(number)),
        _ => None,
    }
}
