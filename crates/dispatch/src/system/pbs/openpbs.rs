//! OpenPBS: resources as chunks (`select=1:ncpus=4`), lists as JSON.

use serde_json::Value;

use super::{Pbs, is_harmless, parse_exit};
use crate::system::duration;
use crate::system::error::SystemError;
use crate::system::job::Job;
use crate::system::job_script::ScriptWriter;
use crate::system::job_state::{JobEnd, JobEndCause, JobId, JobState};

/// Error of a server without a job history.
const NO_HISTORY: &str = "not configured to maintain job history";
/// Substate of a deleted job.
const DELETED_SUBSTATE: i64 = 91;

/// Writes the directives for a job's resources.
pub(super) fn resources(script: &mut ScriptWriter<'_>, job: &Job) -> Result<(), SystemError> {
    let memory = job.memory.map_or_else(String::new, |memory| format!(":mem={memory}mb"));
    script.directive(format_args!("-l select=1:ncpus={}{memory}", job.threads));
    if let Some(time) = job.time {
        script.directive(format_args!("-l walltime={}", duration::hours(time)));
    }
    script.checked_directive("the project", "-P ", job.attributes.project.as_deref())?;
    script.reject_unsupported("quality of service", job.attributes.qos.as_deref(), "leave it out")?;
    if let Some(array) = job.array {
        script.directive(format_args!("-J {}{}", array.range(), array.throttle_suffix()));
    }
    Ok(())
}

/// Queries jobs; with the ended ones if the server keeps a history.
pub(super) async fn query(pbs: &Pbs, ids: &[&str]) -> Result<Vec<(JobId, JobState)>, SystemError> {
    let list = ["-x", "-f", "-F", "json"];
    let mut output = pbs.runner.run("qstat", &[&list[..], ids].concat()).await?;
    if output.err.contains(NO_HISTORY) {
        output = pbs.runner.run("qstat", &[&list[1..], ids].concat()).await?;
    }
    let mut complaints = output.clone();
    complaints.out.clear();
    if !output.is_ok() && !is_harmless(&complaints) {
        return Err(pbs.failure(&output));
    }
    if output.out.trim().is_empty() {
        return Ok(Vec::new());
    }
    parse_jobs(&output.out).ok_or_else(|| pbs.runner.unexpected_output("qstat", &output.out))
}

fn parse_jobs(json: &str) -> Option<Vec<(JobId, JobState)>> {
    let output: Value = serde_json::from_str(json).ok()?;
    let Some(jobs) = output.get("Jobs") else { return Some(Vec::new()) };
    let jobs = jobs.as_object()?.iter();
    jobs.map(|(id, job)| Some((JobId::new(id), state(job)?))).collect()
}

fn state(job: &Value) -> Option<JobState> {
    let comment = job.get("comment").and_then(Value::as_str);
    Some(match job.get("job_state")?.as_str()? {
        "F" | "X" => JobState::Ended(end(job)),
        "R" | "E" | "B" | "S" | "U" => JobState::Running,
        _ => match comment {
            Some(why) if why.contains("Can Never Run") => JobState::Stuck { why: why.to_owned() },
            why => JobState::Waiting { why: why.map(str::to_owned) },
        },
    })
}

/// Negative codes are PBS's own: why it ended the job, or why the job did not run.
fn end(job: &Value) -> JobEnd {
    let number = |name: &str| job.get(name).and_then(Value::as_i64);
    let status = number("Exit_status");
    let cause = match status {
        Some(-29 | -28) => JobEndCause::TimeLimit,
        Some(-27 | -26) => JobEndCause::Memory,
        Some(0..) if number("substate") != Some(DELETED_SUBSTATE) => JobEndCause::Exited,
        _ if number("substate") == Some(DELETED_SUBSTATE) => JobEndCause::Cancelled,
        _ => JobEndCause::Unknown,
    };
    JobEnd { exit: status.and_then(parse_exit), cause }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_process::Exit;

    fn only(json: &str) -> JobState {
        let jobs = parse_jobs(&format!(r#"{{"timestamp":1,"Jobs":{{"0.vm":{json}}}}}"#)).unwrap();
        assert_eq!(jobs.len(), 1);
        jobs.into_iter().next().unwrap().1
    }

    #[test]
    fn a_finished_job_tells_its_exit_and_who_ended_it() {
        let end = |state: &str| only(&format!(r#"{{"job_state":"F",{state}}}"#));
        let itself = |exit| JobState::Ended(JobEnd::exited(exit));
        assert_eq!(end(r#""substate":92,"Exit_status":0"#), itself(Exit::Code(0)));
        assert_eq!(end(r#""substate":93,"Exit_status":5"#), itself(Exit::Code(5)));
        assert_eq!(end(r#""substate":93,"Exit_status":265"#), itself(Exit::Signal(9)));
        let cancelled = JobEnd { exit: Some(Exit::Signal(15)), cause: JobEndCause::Cancelled };
        assert_eq!(end(r#""substate":91,"Exit_status":271"#), JobState::Ended(cancelled));
        let late = JobEnd { exit: None, cause: JobEndCause::TimeLimit };
        assert_eq!(end(r#""substate":93,"Exit_status":-29"#), JobState::Ended(late));
    }

    #[test]
    fn a_job_that_can_never_run_is_stuck() {
        let why = "Can Never Run: Insufficient amount of resource: ncpus (R: 9999 A: 2 T: 2)";
        let state = only(&format!(r#"{{"job_state":"Q","comment":"{why}"}}"#));
        assert_eq!(state, JobState::Stuck { why: why.to_owned() });
    }

    #[test]
    fn a_server_that_is_away_has_no_jobs_to_tell() {
        assert_eq!(parse_jobs(r#"{"timestamp":1,"pbs_version":"23.06.06"}"#), Some(Vec::new()));
        assert_eq!(parse_jobs("qstat: something else"), None);
    }
}
