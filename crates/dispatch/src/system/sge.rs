//! Grid Engine: Sun's and its successors.
//!
//! `qsub` submits jobs, one `qstat` queries all of the user's jobs, and `qdel` cancels jobs. An
//! ended job leaves the list at once. Its end appears in the accounting (`qacct`) a while later,
//! and is queried job by job.

use std::collections::{BTreeMap, BTreeSet};

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
        "unable to send message to qmaster",
        "unable to contact qmaster",
        "commlib error",
        "can't get configuration from qmaster",
        "got select error",
        "Connection refused",
    ],
    ambiguous: &["got read error", "got send timeout", "failed receiving gdi request", "got no response"],
};
/// The usual name of the parallel environment with all threads on one host.
const PARALLEL_ENVIRONMENT: &str = "smp";

/// The Grid Engine system.
#[derive(Debug)]
pub(super) struct GridEngine {
    runner: CommandRunner,
}

impl GridEngine {
    pub(super) fn new(site: SystemConfig) -> Self {
        Self { runner: CommandRunner::new(BaseSystem::Sge, site) }
    }

    /// Why jobs are in the error state.
    async fn error_reasons(&self, ids: &[&str]) -> Result<BTreeMap<JobId, String>, SystemError> {
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let output = self.runner.run("qstat", &["-j", &ids.join(",")]).await?;
        Ok(parse_error_reasons(&output.out))
    }

    async fn end(&self, id: &JobId) -> Result<Option<JobEnd>, SystemError> {
        let output = self.runner.run("qacct", &["-j", id.as_str()]).await?;
        if output.is_ok() {
            return Ok(parse_accounting(&output.out));
        }
        // The job, or the whole accounting file, does not exist yet.
        let message = output.message();
        if message.contains("not found") || message.contains("No such file") {
            return Ok(None);
        }
        Err(self.runner.failure(&output, &ERROR_PATTERNS))
    }
}

/// The id that `qsub` prints. For an array, the range follows: `4.1-3:1`.
fn parse_job_id(output: &str) -> Option<JobId> {
    JobId::from_digits(output.trim().split('.').next()?)
}

#[async_trait]
impl System for GridEngine {
    fn base(&self) -> BaseSystem {
        BaseSystem::Sge
    }

    fn script(&self, job: &Job) -> Result<String, SystemError> {
        script(job)
    }

    async fn submit(&self, job: &Job) -> Result<JobId, SystemError> {
        let qsub = ("qsub", &["-terse"][..]);
        self.runner.submit(qsub, job, &script(job)?, &ERROR_PATTERNS, parse_job_id).await
    }

    async fn status(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, JobState>, SystemError> {
        let output = self.runner.run("qstat", &["-xml", "-u", "$user"]).await?;
        if !output.is_ok() {
            return Err(self.runner.failure(&output, &ERROR_PATTERNS));
        }
        let jobs =
            parse_jobs(&output.out).ok_or_else(|| self.runner.unexpected_output("qstat", &output.out))?;
        let ours: BTreeSet<&str> = ids.iter().map(JobId::as_str).collect();
        let failed_ids = jobs.iter().filter(|(id, state)| state.contains('E') && ours.contains(id));
        let failed_ids: Vec<&str> = failed_ids.map(|(id, _)| *id).collect();
        let reasons = self.error_reasons(&failed_ids).await?;
        let found = jobs.into_iter().map(|(id, flags)| {
            let id = JobId::new(id);
            let state = state(flags, reasons.get(&id));
            (id, state)
        });
        Ok(merge_states(ids, found))
    }

    async fn cancel(&self, ids: &[JobId]) -> Result<(), SystemError> {
        for ids in ids.chunks(MAX_IDS) {
            let args: Vec<&str> = ids.iter().map(JobId::as_str).collect();
            let output = self.runner.run("qdel", &args).await?;
            let lines = output.out.lines().chain(output.err.lines());
            let bad = |line: &str| {
                let fine = ["does not exist", "has registered", "has deleted", "already in deletion"];
                !line.trim().is_empty() && !fine.iter().any(|pattern| line.contains(pattern))
            };
            if !output.is_ok() && lines.into_iter().any(bad) {
                return Err(self.runner.failure(&output, &ERROR_PATTERNS));
            }
        }
        Ok(())
    }

    async fn find(&self, names: &[String]) -> Result<Vec<(String, JobId)>, SystemError> {
        let sanitised: Vec<String> = names.iter().map(|name| scheduler_job_name(name)).collect();
        let output = self.runner.run("qstat", &["-j", &sanitised.join(",")]).await?;
        if !output.is_ok() && !output.message().contains("do not exist") {
            return Err(self.runner.failure(&output, &ERROR_PATTERNS));
        }
        // `job_number` precedes `job_name`.
        let (mut found, mut number) = (Vec::new(), None);
        for line in output.out.lines() {
            if let Some(text) = line.strip_prefix("job_number:") {
                number = Some(JobId::new(text.trim()));
            } else if let Some(text) = line.strip_prefix("job_name:")
                && let Some(at) = sanitised.iter().position(|name| name == text.trim())
            {
                found.extend(number.take().map(|number| (names[at].clone(), number)));
            }
        }
        Ok(found)
    }

    async fn ends(&self, gone: &[JobId]) -> Result<BTreeMap<JobId, JobEnd>, SystemError> {
        let mut ends = BTreeMap::new();
        for id in gone {
            ends.extend(self.end(id).await?.map(|end| (id.clone(), end)));
        }
        Ok(ends)
    }
}

/// A job's name in Grid Engine.
fn scheduler_job_name(name: &str) -> String {
    sanitise_name(name, 128)
}

/// The script for `qsub`.
fn script(job: &Job) -> Result<String, SystemError> {
    let mut script = ScriptWriter::new(BaseSystem::Sge, "#$", job, OutputOpenedBy::System)?;
    let terms = &job.attributes;
    script.directive(format_args!("-N {}", scheduler_job_name(&job.name)));
    script.directive("-S /bin/bash");
    script.directive("-cwd");
    script.directive("-V");
    script.directive("-r n");
    // If the site's environment has another name, the user passes it after `--`.
    let own = job.options.iter().any(|option| option.trim_start().starts_with("-pe "));
    if job.threads.get() > 1 && !own {
        script.directive(format_args!("-pe {PARALLEL_ENVIRONMENT} {}", job.threads));
    }
    if let Some(memory) = job.memory {
        // The limit applies per slot.
        let each = memory.div_ceil(u64::from(job.threads.get()));
        script.directive(format_args!("-l h_vmem={each}M"));
    }
    if let Some(time) = job.time {
        script.directive(format_args!("-l h_rt={}", duration::seconds(time)));
    }
    let (out, err) = script.output_paths();
    script.directive(format_args!("-o {out}"));
    match err {
        Some(err) => script.directive(format_args!("-e {err}")),
        None => script.directive("-j y"),
    }
    script.checked_directive("the queue", "-q ", terms.queue.as_deref())?;
    script.checked_directive("the account", "-A ", terms.account.as_deref())?;
    script.checked_directive("the project", "-P ", terms.project.as_deref())?;
    script.checked_directive("the reservation", "-ar ", terms.reservation.as_deref())?;
    script.reject_unsupported("quality of service", terms.qos.as_deref(), "leave it out")?;
    if terms.email.is_some() {
        script.checked_directive("the address", "-M ", terms.email.as_deref())?;
        script.directive("-m a");
    }
    if let Some(array) = job.array {
        if array.first == 0 {
            return Err(script.invalid_job("its arrays begin at 1"));
        }
        script.directive(format_args!("-t {}", array.range()));
        if let Some(most) = array.throttle {
            script.directive(format_args!("-tc {most}"));
        }
    }
    script.append_options();
    script.finish("SGE_TASK_ID")
}

/// The id and the state flags of each job in `qstat`'s XML.
fn parse_jobs(xml: &str) -> Option<Vec<(&str, &str)>> {
    xml.contains("<job_info").then_some(())?;
    let rows = xml.split("<job_list").skip(1);
    rows.map(|row| Some((element_text(row, "JB_job_number")?, element_text(row, "state")?))).collect()
}

/// The text of the first element with this name.
fn element_text<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text.trim())
}

/// State flags: `E` error, `h` hold, `q` queued, `w` waiting, `r` running, `t` transferring to its
/// host, `s`, `S`, `T` suspended, `d` being deleted, `R` restarted.
fn state(flags: &str, reason: Option<&String>) -> JobState {
    if flags.contains('E') {
        return JobState::Stuck { why: reason.cloned().unwrap_or_else(|| flags.to_owned()) };
    }
    if flags.contains(['q', 'w']) {
        let held = flags.contains('h').then(|| "it is held".to_owned());
        return JobState::Waiting { why: held };
    }
    JobState::Running
}

/// Parses the error reasons in the output of `qstat -j`.
fn parse_error_reasons(output: &str) -> BTreeMap<JobId, String> {
    let (mut reasons, mut id) = (BTreeMap::new(), None);
    for line in output.lines() {
        if let Some(number) = line.strip_prefix("job_number:") {
            id = Some(JobId::new(number.trim()));
        } else if let (Some(id), Some(rest)) = (&id, line.strip_prefix("error reason")) {
            let reason = rest.split_once(':').map_or(rest, |(_, reason)| reason).trim();
            reasons.entry(id.clone()).or_insert_with(|| reason.to_owned());
        }
    }
    reasons
}

/// Parses the output of `qacct`. The end of an array is the worst of its tasks'.
fn parse_accounting(output: &str) -> Option<JobEnd> {
    let value = |line: &str, name: &str| {
        let number = line.strip_prefix(name)?.split_whitespace().next()?;
        number.parse::<i32>().ok()
    };
    let mut failed = 0;
    let mut ends = Vec::new();
    for line in output.lines() {
        failed = value(line, "failed ").unwrap_or(failed);
        ends.extend(value(line, "exit_status ").map(|code| task_end(failed, code)));
    }
    let worst = ends.into_iter().map(JobState::Ended).reduce(JobState::merge);
    worst.and_then(|state| if let JobState::Ended(end) = state { Some(end) } else { None })
}

/// `failed` codes below 26 mean that the program did not run, or not on that host.
fn task_end(failed: i32, code: i32) -> JobEnd {
    let exit = Some(Exit::from_shell_code(code));
    match failed {
        0 | 100 => JobEnd { exit, cause: JobEndCause::Exited },
        37 => JobEnd { exit, cause: JobEndCause::TimeLimit },
        _ => JobEnd::unknown(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_say_where_a_job_is() {
        let waiting = |why: Option<&str>| JobState::Waiting { why: why.map(str::to_owned) };
        assert_eq!(state("qw", None), waiting(None));
        assert_eq!(state("hqw", None), waiting(Some("it is held")));
        for flags in ["t", "r", "Rr", "dr", "s", "T"] {
            assert_eq!(state(flags, None), JobState::Running, "{flags}");
        }
        assert_eq!(state("Eqw", None), JobState::Stuck { why: "Eqw".to_owned() });
    }

    #[test]
    fn the_books_tell_an_end_and_of_an_array_the_worst() {
        let accounting = |failed: &str, exit: &str| {
            format!("taskid       1\nfailed       {failed}\nexit_status  {exit}\n====\n")
        };
        let good = accounting("0    ", "0                   ");
        assert_eq!(parse_accounting(&good), Some(JobEnd::exited(Exit::Code(0))));
        let killed = accounting("100 : assumedly after job", "137                  (Killed)");
        assert_eq!(parse_accounting(&killed), Some(JobEnd::exited(Exit::Signal(9))));
        assert_eq!(parse_accounting(&format!("{good}{killed}{good}")), parse_accounting(&killed));
        let late = accounting("37  : qmaster enforced h_rt, h_cpu, or h_vmem limit", "137");
        assert_eq!(parse_accounting(&late).map(|end| end.cause), Some(JobEndCause::TimeLimit));
        assert_eq!(
            parse_accounting(&accounting("26  : opening input/output file", "0")),
            Some(JobEnd::unknown())
        );
        assert_eq!(parse_accounting("error: job id 3 not found"), None);
    }
}
