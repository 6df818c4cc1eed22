//! Torque: nodes (`nodes=1:ppn=4`), and lists as text.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Pbs, exit, only_over};
use crate::system::call::{Answer, Caller};
use crate::system::error::SystemError;
use crate::system::job::Job;
use crate::system::script::Writer;
use crate::system::span;
use crate::system::state::{Cause, End, JobId, JobState};

/// What a job needs.
pub(super) fn resources(script: &mut Writer<'_>, job: &Job) -> Result<(), SystemError> {
    script.line(format_args!("-l nodes=1:ppn={}", job.threads));
    if let Some(memory) = job.memory {
        script.line(format_args!("-l mem={memory}mb"));
    }
    if let Some(time) = job.time {
        script.line(format_args!("-l walltime={}", span::hours(time)));
    }
    script.lacks("projects", job.terms.project.as_deref(), "name the account instead")?;
    script.word("the quality of service", "-l qos=", job.terms.qos.as_deref())?;
    if let Some(array) = job.array {
        script.line(format_args!("-t {}{}", array.range(), array.percent()));
    }
    Ok(())
}

/// Submits a script from a file: not all that imitates Torque reads its input. Slurm's imitation also
/// believes only its command line about the output, and about not running a job again.
pub(super) async fn submit(
    caller: &Caller,
    job: &Job,
    script: &str,
) -> Result<Answer, SystemError> {
    let file = Brief::write(script)?;
    let path = file.0.display().to_string();
    let args = ["-r", "n", "-o", "/dev/null", "-j", "oe", &path];
    caller.tell("qsub", &args, &job.dir, "").await
}

/// A script's file, there while it is submitted.
struct Brief(PathBuf);

impl Brief {
    fn write(script: &str) -> Result<Self, SystemError> {
        static WRITTEN: AtomicU32 = AtomicU32::new(0);
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let name = format!("longshore-job-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let what = || format!("no file {}", path.display());
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        let mut file = file.map_err(|error| SystemError::io(what(), error))?;
        let brief = Self(path.clone());
        file.write_all(script.as_bytes()).map_err(|error| SystemError::io(what(), error))?;
        Ok(brief)
    }
}

impl Drop for Brief {
    fn drop(&mut self) {
        // Whoever cleans up folders for temporary files will find it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The states of jobs, with those that are complete and still listed.
pub(super) async fn look(pbs: &Pbs, ids: &[&str]) -> Result<Vec<(JobId, JobState)>, SystemError> {
    let answer = pbs.caller.ask("qstat", &[&["-f"], ids].concat()).await?;
    let mut complaints = answer.clone();
    complaints.out.clear();
    if !answer.is_ok() && !only_over(&complaints) {
        return Err(pbs.failure(&answer));
    }
    Ok(read(&answer.out))
}

/// Jobs are told one after another, an attribute per line.
fn read(said: &str) -> Vec<(JobId, JobState)> {
    let jobs = said.split("Job Id:").skip(1);
    jobs.filter_map(|job| {
        let id = job.lines().next()?.trim();
        Some((JobId::new(id), state(job)?))
    })
    .collect()
}

fn state(job: &str) -> Option<JobState> {
    let value = |name: &str| {
        let mut values = job.lines().filter_map(|line| line.trim().split_once(" = "));
        values.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    Some(match value("job_state")? {
        "C" => JobState::Ended(end(value("exit_status"))),
        "R" | "E" | "S" => JobState::Running,
        _ => JobState::Waiting { why: value("comment").map(str::to_owned) },
    })
}

/// Below zero are Torque's own: why the job never ran.
fn end(status: Option<&str>) -> End {
    let exit = status.and_then(|status| status.parse().ok()).and_then(exit);
    End { exit, cause: if exit.is_some() { Cause::Itself } else { Cause::Unknown } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::state::Exit;

    #[test]
    fn a_list_tells_each_job() {
        let said = "Job Id: 7.head\n    Job_Name = a\n    job_state = C\n    exit_status = 271\n\n\
                    Job Id: 8.head\n    job_state = Q\n    comment = Not enough nodes\n";
        let ended = JobState::Ended(End::by_itself(Exit::Signal(15)));
        let waiting = JobState::Waiting { why: Some("Not enough nodes".to_owned()) };
        let wanted = vec![(JobId::new("7.head"), ended), (JobId::new("8.head"), waiting)];
        assert_eq!(read(said), wanted);
    }
}
