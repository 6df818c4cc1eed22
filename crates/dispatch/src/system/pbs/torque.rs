//! Torque: resources as nodes (`nodes=1:ppn=4`), lists as text.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Pbs, is_harmless, parse_exit};
use crate::system::command::{CommandOutput, CommandRunner};
use crate::system::duration;
use crate::system::error::SystemError;
use crate::system::job::Job;
use crate::system::job_script::ScriptWriter;
use crate::system::job_state::{JobEnd, JobEndCause, JobId, JobState};

/// Writes the directives for a job's resources.
pub(super) fn resources(script: &mut ScriptWriter<'_>, job: &Job) -> Result<(), SystemError> {
    script.directive(format_args!("-l nodes=1:ppn={}", job.threads));
    if let Some(memory) = job.memory {
        script.directive(format_args!("-l mem={memory}mb"));
    }
    if let Some(time) = job.time {
        script.directive(format_args!("-l walltime={}", duration::hours(time)));
    }
    script.reject_unsupported("projects", job.attributes.project.as_deref(), "name the account instead")?;
    script.checked_directive("the quality of service", "-l qos=", job.attributes.qos.as_deref())?;
    if let Some(array) = job.array {
        script.directive(format_args!("-t {}{}", array.range(), array.throttle_suffix()));
    }
    Ok(())
}

/// Submits a script as a file, because some imitations of Torque do not read standard input.
/// Slurm's imitation also ignores the directives for output and restart, so they are options of the
/// command.
pub(super) async fn submit(
    runner: &CommandRunner,
    job: &Job,
    script: &str,
) -> Result<CommandOutput, SystemError> {
    let file = TempScript::write(script)?;
    let path = file.0.display().to_string();
    let args = ["-r", "n", "-o", "/dev/null", "-j", "oe", &path];
    runner.run_with_input("qsub", &args, &job.dir, "").await
}

/// A temporary file with the script, removed after the submission.
struct TempScript(PathBuf);

impl TempScript {
    fn write(script: &str) -> Result<Self, SystemError> {
        static WRITTEN: AtomicU32 = AtomicU32::new(0);
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let name = format!("longshore-job-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let what = || format!("cannot create file {}", path.display());
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        let mut file = file.map_err(|error| SystemError::io(what(), error))?;
        let file_guard = Self(path.clone());
        file.write_all(script.as_bytes()).map_err(|error| SystemError::io(what(), error))?;
        Ok(file_guard)
    }
}

impl Drop for TempScript {
    fn drop(&mut self) {
        // If this fails, the system's cleaning of temporary files removes it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Queries jobs; completed jobs are included while they are listed.
pub(super) async fn query(pbs: &Pbs, ids: &[&str]) -> Result<Vec<(JobId, JobState)>, SystemError> {
    let output = pbs.runner.run("qstat", &[&["-f"], ids].concat()).await?;
    let mut complaints = output.clone();
    complaints.out.clear();
    if !output.is_ok() && !is_harmless(&complaints) {
        return Err(pbs.failure(&output));
    }
    Ok(parse_jobs(&output.out))
}

/// Parses a list of jobs, one attribute per line.
fn parse_jobs(output: &str) -> Vec<(JobId, JobState)> {
    let jobs = output.split("Job Id:").skip(1);
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

/// Negative codes are Torque's own: why the job did not run.
fn end(status: Option<&str>) -> JobEnd {
    let exit = status.and_then(|status| status.parse().ok()).and_then(parse_exit);
    JobEnd { exit, cause: if exit.is_some() { JobEndCause::Exited } else { JobEndCause::Unknown } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_process::Exit;

    #[test]
    fn a_list_tells_each_job() {
        let output = "Job Id: 7.head\n    Job_Name = a\n    job_state = C\n    exit_status = 271\n\n\
                    Job Id: 8.head\n    job_state = Q\n    comment = Not enough nodes\n";
        let ended = JobState::Ended(JobEnd::exited(Exit::Signal(15)));
        let waiting = JobState::Waiting { why: Some("Not enough nodes".to_owned()) };
        let wanted = vec![(JobId::new("7.head"), ended), (JobId::new("8.head"), waiting)];
        assert_eq!(parse_jobs(output), wanted);
    }
}
