//! Grid Engine: Sun's and its heirs.
//!
//! Jobs are submitted by `qsub`, asked after by one `qstat` for all of the user's jobs and ended by
//! `qdel`. A job leaves the list as soon as it has ended; how it ended is in the books (`qacct`), a
//! while later and one job at a time.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use super::call::{CHUNK, Caller, Signs};
use super::error::SystemError;
use super::job::Job;
use super::name::BaseSystem;
use super::script::{Opens, Writer, tame};
use super::site::Site;
use super::state::{Cause, End, Exit, JobId, JobState, states};
use super::{System, span};

const SIGNS: Signs = Signs {
    away: &[
        "unable to send message to qmaster",
        "unable to contact qmaster",
        "commlib error",
        "can't get configuration from qmaster",
        "got select error",
        "Connection refused",
    ],
    unclear: &[
        "got read error",
        "got send timeout",
        "failed receiving gdi request",
        "got no response",
    ],
};
/// The parallel environment in which all threads are on one host, as nearly every site calls it.
const THREADS: &str = "smp";

/// The system.
#[derive(Debug)]
pub(super) struct GridEngine {
    caller: Caller,
}

impl GridEngine {
    pub(super) fn new(site: Site) -> Self {
        Self { caller: Caller::new(BaseSystem::Sge, site) }
    }

    /// Why jobs are in the error state, in the system's words.
    async fn reasons(&self, ids: &[&str]) -> Result<BTreeMap<JobId, String>, SystemError> {
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let answer = self.caller.ask("qstat", &["-j", &ids.join(",")]).await?;
        Ok(reasons(&answer.out))
    }

    async fn end(&self, id: &JobId) -> Result<Option<End>, SystemError> {
        let answer = self.caller.ask("qacct", &["-j", id.as_str()]).await?;
        if answer.is_ok() {
            return Ok(end(&answer.out));
        }
        // Not yet, or nothing at all yet.
        let words = answer.words();
        if words.contains("not found") || words.contains("No such file") {
            return Ok(None);
        }
        Err(self.caller.failure(&answer, &SIGNS))
    }
}

/// The id that `qsub` prints. An array's is followed by its range: 4.1-3:1.
fn submitted(said: &str) -> Option<JobId> {
    JobId::numbered(said.trim().split('.').next()?)
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
        self.caller.submit(qsub, job, &script(job)?, &SIGNS, submitted).await
    }

    async fn status(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, JobState>, SystemError> {
        let answer = self.caller.ask("qstat", &["-xml", "-u", "$user"]).await?;
        if !answer.is_ok() {
            return Err(self.caller.failure(&answer, &SIGNS));
        }
        let jobs = jobs(&answer.out).ok_or_else(|| self.caller.garbled("qstat", &answer.out))?;
        let ours: BTreeSet<&str> = ids.iter().map(JobId::as_str).collect();
        let wrong = jobs.iter().filter(|(id, state)| state.contains('E') && ours.contains(id));
        let wrong: Vec<&str> = wrong.map(|(id, _)| *id).collect();
        let reasons = self.reasons(&wrong).await?;
        let seen = jobs.into_iter().map(|(id, letters)| {
            let id = JobId::new(id);
            let state = state(letters, reasons.get(&id));
            (id, state)
        });
        Ok(states(ids, seen))
    }

    async fn cancel(&self, ids: &[JobId]) -> Result<(), SystemError> {
        for ids in ids.chunks(CHUNK) {
            let args: Vec<&str> = ids.iter().map(JobId::as_str).collect();
            let answer = self.caller.ask("qdel", &args).await?;
            let said = answer.out.lines().chain(answer.err.lines());
            let bad = |line: &str| {
                let fine =
                    ["does not exist", "has registered", "has deleted", "already in deletion"];
                !line.trim().is_empty() && !fine.iter().any(|words| line.contains(words))
            };
            if !answer.is_ok() && said.into_iter().any(bad) {
                return Err(self.caller.failure(&answer, &SIGNS));
            }
        }
        Ok(())
    }

    async fn find(&self, names: &[String]) -> Result<Vec<(String, JobId)>, SystemError> {
        let tame: Vec<String> = names.iter().map(|name| named(name)).collect();
        let answer = self.caller.ask("qstat", &["-j", &tame.join(",")]).await?;
        if !answer.is_ok() && !answer.words().contains("do not exist") {
            return Err(self.caller.failure(&answer, &SIGNS));
        }
        // A job's number comes before its name.
        let (mut found, mut number) = (Vec::new(), None);
        for line in answer.out.lines() {
            if let Some(text) = line.strip_prefix("job_number:") {
                number = Some(JobId::new(text.trim()));
            } else if let Some(text) = line.strip_prefix("job_name:")
                && let Some(at) = tame.iter().position(|tame| tame == text.trim())
            {
                found.extend(number.take().map(|number| (names[at].clone(), number)));
            }
        }
        Ok(found)
    }

    async fn ends(&self, gone: &[JobId]) -> Result<BTreeMap<JobId, End>, SystemError> {
        let mut ends = BTreeMap::new();
        for id in gone {
            ends.extend(self.end(id).await?.map(|end| (id.clone(), end)));
        }
        Ok(ends)
    }
}

/// A job's name as Grid Engine knows it.
fn named(name: &str) -> String {
    tame(name, 128)
}

/// What `qsub` is told.
fn script(job: &Job) -> Result<String, SystemError> {
    let mut script = Writer::new(BaseSystem::Sge, "#$", job, Opens::System)?;
    let terms = &job.terms;
    script.line(format_args!("-N {}", named(&job.name)));
    script.line("-S /bin/bash");
    script.line("-cwd");
    script.line("-V");
    script.line("-r n");
    // A site whose environment has another name says so after `--`.
    let own = job.options.iter().any(|option| option.trim_start().starts_with("-pe "));
    if job.threads.get() > 1 && !own {
        script.line(format_args!("-pe {THREADS} {}", job.threads));
    }
    if let Some(memory) = job.memory {
        // Counted per slot.
        let each = memory.div_ceil(u64::from(job.threads.get()));
        script.line(format_args!("-l h_vmem={each}M"));
    }
    if let Some(time) = job.time {
        script.line(format_args!("-l h_rt={}", span::seconds(time)));
    }
    let (out, err) = script.outputs();
    script.line(format_args!("-o {out}"));
    match err {
        Some(err) => script.line(format_args!("-e {err}")),
        None => script.line("-j y"),
    }
    script.word("the queue", "-q ", terms.queue.as_deref())?;
    script.word("the account", "-A ", terms.account.as_deref())?;
    script.word("the project", "-P ", terms.project.as_deref())?;
    script.word("the reservation", "-ar ", terms.reservation.as_deref())?;
    script.lacks("quality of service", terms.qos.as_deref(), "leave it out")?;
    if terms.email.is_some() {
        script.word("the address", "-M ", terms.email.as_deref())?;
        script.line("-m a");
    }
    if let Some(array) = job.array {
        if array.first == 0 {
            return Err(script.bad("its arrays begin at 1"));
        }
        script.line(format_args!("-t {}", array.range()));
        if let Some(most) = array.throttle {
            script.line(format_args!("-tc {most}"));
        }
    }
    script.options();
    script.body("SGE_TASK_ID")
}

/// The id and the letters of each job in `qstat`'s list.
fn jobs(xml: &str) -> Option<Vec<(&str, &str)>> {
    xml.contains("<job_info").then_some(())?;
    let rows = xml.split("<job_list").skip(1);
    rows.map(|row| Some((tag(row, "JB_job_number")?, tag(row, "state")?))).collect()
}

/// The text of the first element of this name.
fn tag<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text.trim())
}

/// What a job's letters mean: `E` error, `h` hold, `q` queued, `w` waiting, `r` running, `t` moving to
/// its host, `s`, `S`, `T` suspended, `d` being deleted, `R` restarted.
fn state(letters: &str, reason: Option<&String>) -> JobState {
    if letters.contains('E') {
        return JobState::Stuck { why: reason.cloned().unwrap_or_else(|| letters.to_owned()) };
    }
    if letters.contains(['q', 'w']) {
        let held = letters.contains('h').then(|| "it is held".to_owned());
        return JobState::Waiting { why: held };
    }
    JobState::Running
}

/// The error reasons in what `qstat -j` says.
fn reasons(said: &str) -> BTreeMap<JobId, String> {
    let (mut reasons, mut id) = (BTreeMap::new(), None);
    for line in said.lines() {
        if let Some(number) = line.strip_prefix("job_number:") {
            id = Some(JobId::new(number.trim()));
        } else if let (Some(id), Some(rest)) = (&id, line.strip_prefix("error reason")) {
            let words = rest.split_once(':').map_or(rest, |(_, words)| words).trim();
            reasons.entry(id.clone()).or_insert_with(|| words.to_owned());
        }
    }
    reasons
}

/// The end that the books tell; of an array, the worst.
fn end(said: &str) -> Option<End> {
    let value = |line: &str, name: &str| {
        let number = line.strip_prefix(name)?.split_whitespace().next()?;
        number.parse::<i32>().ok()
    };
    let mut failed = 0;
    let mut ends = Vec::new();
    for line in said.lines() {
        failed = value(line, "failed ").unwrap_or(failed);
        ends.extend(value(line, "exit_status ").map(|code| one_end(failed, code)));
    }
    let worst = ends.into_iter().map(JobState::Ended).reduce(JobState::with);
    worst.and_then(|state| if let JobState::Ended(end) = state { Some(end) } else { None })
}

/// Codes of `failed` below 26 mean that the program never ran, or not on that host.
fn one_end(failed: i32, code: i32) -> End {
    let exit = Some(Exit::of_shell(code));
    match failed {
        0 | 100 => End { exit, cause: Cause::Itself },
        37 => End { exit, cause: Cause::TimeLimit },
        _ => End::unknown(),
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
        for letters in ["t", "r", "Rr", "dr", "s", "T"] {
            assert_eq!(state(letters, None), JobState::Running, "{letters}");
        }
        assert_eq!(state("Eqw", None), JobState::Stuck { why: "Eqw".to_owned() });
    }

    #[test]
    fn the_books_tell_an_end_and_of_an_array_the_worst() {
        let book = |failed: &str, exit: &str| {
            format!("taskid       1\nfailed       {failed}\nexit_status  {exit}\n====\n")
        };
        let good = book("0    ", "0                   ");
        assert_eq!(end(&good), Some(End::by_itself(Exit::Code(0))));
        let killed = book("100 : assumedly after job", "137                  (Killed)");
        assert_eq!(end(&killed), Some(End::by_itself(Exit::Signal(9))));
        assert_eq!(end(&format!("{good}{killed}{good}")), end(&killed));
        let late = book("37  : qmaster enforced h_rt, h_cpu, or h_vmem limit", "137");
        assert_eq!(end(&late).map(|end| end.cause), Some(Cause::TimeLimit));
        assert_eq!(end(&book("26  : opening input/output file", "0")), Some(End::unknown()));
        assert_eq!(end("error: job id 3 not found"), None);
    }
}
