//! `submit --script --qsys slurm`: submits a script as a job of a base system, without a pool.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use anyhow::Context;
use longshore::{Priority, UnitId};
use longshore_dispatch::system::{
    BaseSystem, Job, JobArray, JobEnd, JobEndCause, JobId, JobProgram, PollPolicy, SystemConfig, open_system,
    wait_for_jobs,
};

use super::submit_script::{script_path, variables, working_directory};
use super::wait::with_wait_limit;
use crate::args::script::{ArrayRange, OutputTarget, ScriptArgs};
use crate::args::submit::SubmitArgs;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;

/// Runs the command.
pub async fn run(typed: &SubmitArgs, base: BaseSystem, settings: &Settings) -> anyhow::Result<ExitCode> {
    check(typed, base)?;
    let job = job(&typed.script, typed.weight)?;
    let system = open_system(base, SystemConfig::default());
    let id = system.submit(&job).await?;
    if let Some(path) = job.stdout.as_deref().filter(|_| typed.script.output == OutputTarget::Tail) {
        settings.output.note(format!("its output goes to {}", path.display()));
    }
    if !typed.wait {
        let answer = serde_json::json!({ "job": id, "system": base.name() });
        settings.output.answer(&answer, || id.to_string())?;
        return Ok(ExitCode::Good);
    }
    settings.output.note(format!("job {id} of {base}"));
    let waiting = wait_for_jobs(&*system, std::slice::from_ref(&id), PollPolicy::default());
    let waiting = async { Ok(waiting.await?) };
    let ends = with_wait_limit(typed.wait_limit, "the job continues", waiting).await?;
    print_outcome(&id, ends.get(&id).copied().unwrap_or_else(JobEnd::unknown), settings)
}

/// Rejects options that a base system does not support.
fn check(typed: &SubmitArgs, base: BaseSystem) -> anyhow::Result<()> {
    let call = &typed.script;
    let only_pools = [
        ("a command after `--`", call.script.is_none()),
        ("--script -", call.is_stdin()),
        ("--snapshot", call.snapshot),
        ("--after", !typed.after.is_empty()),
        ("--key", typed.key.is_some()),
        ("--delay", typed.delay.is_some()),
        ("--at", typed.at.is_some()),
        ("--deadline", typed.deadline.is_some()),
        ("--each-line", call.each_line.is_some()),
        ("--max-fails", call.max_fails.is_some()),
        ("--retries", call.retries > 0),
        ("--sentinels", call.sentinels.is_some()),
        ("--limit", !call.limit.is_empty()),
        ("--pin", call.pin),
        ("--resource", !typed.resource.is_empty()),
        ("--priority", typed.priority != Priority::NORMAL),
        ("--output stream:DIR", matches!(call.output, OutputTarget::Stream(_))),
    ];
    match only_pools.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(usage(format!("{option} needs a pool; `{base}` has none")))
            .hint(format!("`--qsys {base}_worker` submits to a pool")),
        None => Ok(()),
    }
}

fn job(call: &ScriptArgs, slots: u32) -> anyhow::Result<Job> {
    let dir = std::env::current_dir().context("there is no working directory")?;
    let path = script_path(call, &dir)?;
    let work_dir = working_directory(call, &dir)?;
    let stem = path.file_stem().map_or_else(|| "job".into(), |stem| stem.to_string_lossy());
    let name = call.name.clone().unwrap_or_else(|| stem.into_owned());
    let stdout = match &call.output {
        OutputTarget::Files(path) => Some(dir.join(path)),
        OutputTarget::Tail => Some(default_output(&dir, &name)),
        OutputTarget::Nothing | OutputTarget::Stream(_) => None,
    };
    let program = JobProgram::Script { path, args: call.args.clone() };
    Ok(Job {
        threads: NonZeroU32::new(call.nthr.unwrap_or(slots)).unwrap_or(NonZeroU32::MIN),
        memory: call.mem.map(|size| size.0.div_ceil(1 << 20)),
        time: call.time.map(|span| span.0),
        stdout,
        stderr: call.stderr.as_deref().map(|path| dir.join(path)),
        env: variables(&call.env)?,
        array: call.array.as_ref().map(array).transpose()?,
        options: call.base_option.clone(),
        ..Job::new(name, program, work_dir)
    })
}

/// The default output file: in the working directory, as schedulers do.
fn default_output(dir: &Path, name: &str) -> PathBuf {
    let id = UnitId::new().to_string();
    let end = id.get(id.len().saturating_sub(8)..).unwrap_or_default();
    let tame: String = name.chars().map(|c| if c == '/' { '-' } else { c }).collect();
    dir.join(format!("{tame}-{end}.out"))
}

fn array(range: &ArrayRange) -> anyhow::Result<JobArray> {
    let whole = || usage("an array without a pool is one range, as 1-1000 or 1-1000%50");
    let [(first, last)] = range.ranges.as_slice() else { return Err(whole()) };
    let number = |number: &u64| u32::try_from(*number).map_err(|_| whole());
    let throttle = range.at_most.and_then(NonZeroU32::new);
    Ok(JobArray { first: number(first)?, last: number(last)?, throttle })
}

/// Prints how the job ended, and returns the exit code for it.
fn print_outcome(id: &JobId, end: JobEnd, settings: &Settings) -> anyhow::Result<ExitCode> {
    let code = end.exit.map(longshore_process::Exit::shell_code);
    let cause = match end.cause {
        JobEndCause::Exited => None,
        JobEndCause::Cancelled => Some("it was cancelled"),
        JobEndCause::TimeLimit => Some("it exceeded its time limit"),
        JobEndCause::Memory => Some("it exceeded its memory limit"),
        JobEndCause::NodeLost => Some("its node was lost"),
        JobEndCause::Preempted => Some("it was preempted"),
        JobEndCause::Unknown => Some("the system does not say how it ended"),
    };
    if settings.output.is_json() {
        let answer = serde_json::json!({ "job": id, "exit_code": code, "cause": cause });
        settings.output.json(&answer)?;
    } else if let Some(cause) = cause {
        settings.output.note(cause);
    } else if let Some(code) = code.filter(|code| *code != 0) {
        settings.output.note(format!("it ended with exit code {code}"));
    }
    Ok(match (code.and_then(|code| u8::try_from(code).ok()), end.cause) {
        (Some(code), JobEndCause::Exited) => ExitCode::Program(code),
        (Some(code), _) if code != 0 => ExitCode::Program(code),
        (_, JobEndCause::Cancelled) => ExitCode::Cancelled,
        (_, JobEndCause::Unknown) => ExitCode::Error,
        _ => ExitCode::Failures,
    })
}
