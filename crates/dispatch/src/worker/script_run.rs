//! One run of a script, from its start until the last process in its group has ended.
//!
//! The command sets only the process group and the working directory, so that the standard library
//! can use `posix_spawn`: a fork with hooks costs more the larger the worker is. If the worker is
//! killed, its scripts are found by their mark (`longshore_process::OrphanReaper`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longshore::UnitId;
use longshore::time::{Clock, Timestamp};
use longshore::worker_session::Lease;
use longshore_process::{Exit, ExitWatcher, OutputReader, ProcessGroup, Subreaper};
use tokio::time::{sleep_until, timeout};
use wait4::{ResUse, Wait4};

use super::boundary::Boundary;
use super::cancel::{CancelSignal, StopReason};
use super::hardware;
use super::output::{Destination, FinishedOutput, OutputCapture};
use super::sentinel_files::SentinelFiles;
use super::stream_writer::OutputStreams;
use super::task_table::TaskStart;
use crate::scheduler::GPU;
use crate::script::{OutputLocation, RunEnd, RunReport, Script};
use crate::wire::{ScriptDefinition, TaskOrder};

/// The variable that contains the id of a script's unit.
pub(super) const UNIT_VARIABLE: &str = "LONGSHORE_UNIT_ID";

/// Variables that say how many threads a library uses.
const THREAD_VARIABLES: [&str; 8] = [
    "BLIS_NUM_THREADS",
    "JULIA_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
];

/// How long the result of a script check is valid.
const CHECK_TTL: Duration = Duration::from_secs(1);

/// What all runs of a worker share.
pub(super) struct WorkerContext {
    pub(super) host: String,
    pub(super) bash: PathBuf,
    /// Restricts the paths and variables of scripts.
    pub(super) boundary: Boundary,
    /// Environment that scripts inherit, with the orphan reaper's mark.
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) clock: Arc<dyn Clock>,
    /// Standard input, and discarded output.
    pub(super) dev_null: File,
    /// Writes output into shared files.
    pub(super) streams: OutputStreams,
    /// Kills processes that outlive their scripts, if the worker is a subreaper.
    pub(super) subreaper: Mutex<Option<Subreaper<UnitId>>>,
}

impl WorkerContext {
    /// Calls `action` with the subreaper, if there is one.
    pub(super) fn with_subreaper<T>(&self, action: impl FnOnce(&mut Subreaper<UnitId>) -> T) -> Option<T> {
        self.subreaper.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(action)
    }
}

/// A script definition with the cached result of its check. Checking a million runs one by one
/// would cost as much as starting a tenth of them.
pub(super) struct CheckedScript {
    pub(super) definition: ScriptDefinition,
    checked: Mutex<Option<(Instant, Result<PathBuf, String>)>>,
}

impl CheckedScript {
    pub(super) fn new(definition: ScriptDefinition) -> Self {
        Self { definition, checked: Mutex::new(None) }
    }

    fn checked(&self, check: impl FnOnce() -> Result<PathBuf, String>) -> Result<PathBuf, String> {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        match &*checked {
            Some((at, answer)) if at.elapsed() < CHECK_TTL => answer.clone(),
            _ => checked.insert((Instant::now(), check())).1.clone(),
        }
    }
}

/// Runs a script and reports its end. If the future is dropped, the whole group is killed.
pub(super) async fn run(
    context: Arc<WorkerContext>,
    start: TaskStart,
    script: Arc<CheckedScript>,
    cancel: Arc<CancelSignal>,
) -> (Lease, RunReport) {
    let lease = start.order.lease;
    let started = context.clock.now();
    if start.deadline.is_some_and(|until| until <= tokio::time::Instant::now()) {
        // The deadline passed while the task was queued.
        return (lease, report_unstarted(&context, &start.order, RunEnd::TimedOut));
    }
    let ended = ScriptRun { context: &context, start: &start, script: &script }.perform(&cancel).await;
    (lease, report(&context, &start.order, started, ended))
}

/// Runs a hook of the worker.
pub(super) async fn run_hook(context: Arc<WorkerContext>, path: PathBuf) -> Result<(), String> {
    let mut command = tokio::process::Command::new(&context.bash);
    command.arg(path).env_clear().envs(context.env.iter().cloned()).kill_on_drop(true);
    match command.status().await {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("it failed with {status}")),
        Err(error) => Err(error.to_string()),
    }
}

/// The report of a task that was not started.
pub(super) fn report_unstarted(context: &WorkerContext, order: &TaskOrder, end: RunEnd) -> RunReport {
    report(context, order, context.clock.now(), RunResult::new(end))
}

fn report(context: &WorkerContext, order: &TaskOrder, started: Timestamp, ended: RunResult) -> RunReport {
    let RunResult { end, used, tail, remarks, output } = ended;
    RunReport {
        end,
        host: context.host.clone(),
        queued: order.queued,
        started: started.as_micros(),
        ended: context.clock.now().as_micros(),
        cpu: used.as_ref().map_or(Duration::ZERO, |used| used.rusage.utime + used.rusage.stime),
        peak_memory: used.map_or(0, |used| used.rusage.maxrss),
        tail,
        remarks,
        output,
    }
}

/// How a run ended.
struct RunResult {
    end: RunEnd,
    used: Option<ResUse>,
    tail: String,
    remarks: Vec<String>,
    output: Option<OutputLocation>,
}

impl RunResult {
    fn new(end: RunEnd) -> Self {
        Self { end, used: None, tail: String::new(), remarks: Vec::new(), output: None }
    }
}

struct ScriptRun<'a> {
    context: &'a WorkerContext,
    start: &'a TaskStart,
    script: &'a CheckedScript,
}

impl ScriptRun<'_> {
    fn script(&self) -> &Script {
        &self.script.definition.script
    }

    async fn perform(&self, cancel: &CancelSignal) -> RunResult {
        // Before the cached check: an array's tasks may have been sent with different rights.
        let checked = self.context.boundary.check_rights(self.start.order.rights);
        let checked =
            checked.and_then(|()| self.script.checked(|| self.context.boundary.check(self.script())));
        let path = match checked {
            Ok(path) => path,
            Err(problem) => return RunResult::new(RunEnd::Refused(problem)),
        };
        let mut remarks = Vec::new();
        let boundary = &self.context.boundary;
        let sentinels = SentinelFiles::for_script(self.script(), self.start.order.index, boundary);
        if let Some(sentinels) = &sentinels {
            match sentinels.remove_old() {
                Ok(failures) => remarks.extend(failures),
                Err(problem) => return RunResult::new(RunEnd::Refused(problem)),
            }
        }
        let mut ended = self.spawn_and_supervise(path, cancel).await;
        if let Some(sentinels) = &sentinels {
            let failures = sentinels.write(&ended.end);
            if let (RunEnd::Exited(0), Some(failure)) = (&ended.end, failures.first()) {
                ended.end = RunEnd::Unrecorded(format!("its sentinel files cannot be written: {failure}"));
            }
            remarks.extend(failures);
        }
        ended.remarks.splice(0..0, remarks);
        ended
    }

    async fn spawn_and_supervise(&self, path: PathBuf, cancel: &CancelSignal) -> RunResult {
        let batch = self.script.definition.batch.as_deref();
        let destination = Destination::open(&self.script().output, &self.start.order, batch, self.context);
        let mut destination = match destination {
            Ok(destination) => destination,
            Err(problem) => return RunResult::new(RunEnd::NotStarted(problem)),
        };
        let (pin, cpus) = (self.script().pin, &self.start.cpus);
        if pin && cpus.is_empty() {
            let threads = self.start.order.threads;
            return RunResult::new(RunEnd::Refused(format!(
                "its {threads} threads cannot have processors of their own: the worker has fewer"
            )));
        }
        let child = self.command(path).and_then(|mut command| {
            let capture = destination.connect(&mut command, &self.context.dev_null)?;
            let mut spawn = || ProcessGroup::spawn(&mut command);
            let spawned = if pin { hardware::with_processors(cpus, spawn) } else { spawn() };
            Ok((spawned?, capture))
        });
        let ((child, group), capture) = match child {
            Ok(started) => started,
            Err(error) => return RunResult::new(spawn_failure(&error)),
        };
        self.supervise(child, group, capture, cancel).await
    }

    fn command(&self, path: PathBuf) -> io::Result<Command> {
        let script = self.script();
        let mut command = Command::new(&self.context.bash);
        if script.sentinels.is_some() {
            // The sentinel file gets the script's own exit code, not that of a pipe's last command.
            command.args(["-o", "pipefail"]);
        }
        if let Some(text) = &script.text {
            command.arg("-c").arg(text);
        }
        command.arg(path).args(&script.args).current_dir(&script.dir);
        command.env_clear().envs(self.default_env());
        command.envs(self.context.env.iter().map(|(name, value)| (name, value)));
        command.envs(&script.env).envs(self.script_env()).stdin(self.context.dev_null.try_clone()?);
        Ok(command)
    }

    /// Environment variables for libraries that would otherwise use every processor of the machine.
    /// The submitter and the worker may set them to other values.
    fn default_env(&self) -> Vec<(&'static str, String)> {
        let threads = self.start.order.threads.to_string();
        let mut env: Vec<_> = THREAD_VARIABLES.iter().map(|name| (*name, threads.clone())).collect();
        if self.script().pin {
            let places: Vec<String> = self.start.cpus.iter().map(|cpu| format!("{{{cpu}}}")).collect();
            env.extend([("OMP_PROC_BIND", "close".to_owned()), ("OMP_PLACES", places.join(","))]);
        }
        // Otherwise CUDA numbers GPUs by speed, and other tools by their slot.
        if self.start.ids.contains_key(GPU) {
            env.push(("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()));
        }
        env
    }

    /// Environment variables that describe the task.
    fn script_env(&self) -> BTreeMap<String, String> {
        let TaskStart { order, ids, .. } = self.start;
        let mut script_env = BTreeMap::from([
            (UNIT_VARIABLE.to_owned(), order.lease.unit.to_string()),
            ("LONGSHORE_ATTEMPT".to_owned(), order.attempt.to_string()),
            ("LONGSHORE_NTHR".to_owned(), order.threads.to_string()),
            ("LONGSHORE_HOST".to_owned(), self.context.host.clone()),
        ]);
        let mut set = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                script_env.insert(name.to_owned(), value);
            }
        };
        set("LONGSHORE_ARRAY_INDEX", order.index.map(|index| index.to_string()));
        set("LONGSHORE_LINE", order.line.clone());
        set("LONGSHORE_BATCH", self.script.definition.batch.clone());
        set("LONGSHORE_NAME", self.script().name.clone());
        let cpus: Vec<String> = self.start.cpus.iter().map(ToString::to_string).collect();
        set("LONGSHORE_CPUS", self.script().pin.then(|| cpus.join(",")));
        for (name, ids) in ids {
            let name: String = name.chars().map(to_env_char).collect();
            set(&format!("LONGSHORE_RESOURCE_{name}"), Some(ids.join(",")));
            if name == "GPU" {
                set(hardware::VISIBLE_GPUS, Some(ids.join(",")));
            }
        }
        script_env
    }

    async fn supervise(
        &self,
        mut child: Child,
        group: ProcessGroup,
        mut capture: Option<OutputCapture>,
        cancel: &CancelSignal,
    ) -> RunResult {
        let (leader, unit) = (group.leader(), self.start.order.lease.unit);
        self.context.with_subreaper(|subreaper| subreaper.on_start(leader, unit));
        let exit = ExitWatcher::new(leader);
        let mut remarks = set_limits(&child, &self.script().limits);
        let mut reader = OutputReader::new(read_output(capture.as_mut()));
        let stopped = async {
            tokio::select! {
                biased;
                () = exit.wait() => None,
                reason = cancel.cancelled() => Some(reason),
                () = self.time_limit() => Some(StopReason::TimedOut),
            }
        };
        let reason = reader.read_during(stopped).await;
        if reason.is_some() {
            // Keep reading meanwhile: a script may write much after TERM.
            group.terminate();
            let _ = reader.read_during(timeout(TERM_GRACE, exit.wait())).await;
        }
        reader.finish().await;
        // The process id stays valid until the process is waited for, so the group can be killed
        // now.
        group.release();
        // A process that waits in the kernel, as for a file system that hangs, does not end. The worker
        // must not wait for it; the subreaper does.
        let used = match timeout(KILL_GRACE, exit.wait()).await {
            Ok(()) => child.wait4().ok(),
            Err(_) => {
                remarks.push(format!(
                    "process {} did not end within {KILL_GRACE:?} after KILL: it waits in the kernel, as \
                     for a disk or a network file system that hangs",
                    leader.as_raw_nonzero()
                ));
                None
            }
        };
        let now = tokio::time::Instant::now();
        self.context.with_subreaper(|subreaper| subreaper.on_end(now, leader));
        let end = match (reason, &used) {
            (Some(StopReason::Cancelled), _) => RunEnd::Cancelled,
            (Some(StopReason::TimedOut), _) => RunEnd::TimedOut,
            (Some(StopReason::WorkerStopped), _) => RunEnd::Interrupted,
            (None, Some(used)) => match Exit::from(used.status) {
                Exit::Code(code) => RunEnd::Exited(code),
                Exit::Signal(signal) => RunEnd::Signalled(signal),
            },
            (None, None) => RunEnd::NotStarted("its exit status is unknown".into()),
        };
        let FinishedOutput { tail, location, problem } =
            capture.map(OutputCapture::finish).unwrap_or_default();
        let end = match (end, &problem) {
            (RunEnd::Exited(0), Some(problem)) => RunEnd::Unrecorded(problem.clone()),
            (end, _) => end,
        };
        remarks.extend(problem);
        RunResult { end, used, tail, remarks, output: location }
    }

    /// Waits until the time limit or the deadline.
    async fn time_limit(&self) {
        let now = tokio::time::Instant::now();
        let limit = self.script().time.and_then(|time| now.checked_add(time));
        match [limit, self.start.deadline].into_iter().flatten().min() {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
    }
}

/// Time between TERM and KILL.
const TERM_GRACE: Duration = Duration::from_secs(5);
/// How long the worker waits for the end of a process after KILL.
const KILL_GRACE: Duration = Duration::from_secs(5);

async fn read_output(capture: Option<&mut OutputCapture>) {
    if let Some(capture) = capture {
        capture.read_to_end().await;
    }
}

fn to_env_char(c: char) -> char {
    if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }
}

fn spawn_failure(error: &io::Error) -> RunEnd {
    match error.kind() {
        io::ErrorKind::ArgumentListTooLong | io::ErrorKind::InvalidInput => {
            RunEnd::Refused(format!("cannot start the script: {error}"))
        }
        // No processes or memory available: a retry may succeed.
        _ => RunEnd::NotStarted(format!("cannot start the script: {error}")),
    }
}

/// Sets resource limits by their `ulimit` names. Returns a remark for each that could not be set.
fn set_limits(child: &Child, limits: &BTreeMap<String, u64>) -> Vec<String> {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let mut remarks = Vec::new();
    for (name, most) in limits {
        let resource = match name.as_str() {
            "as" => Resource::As,
            "core" => Resource::Core,
            "cpu" => Resource::Cpu,
            "data" => Resource::Data,
            "fsize" => Resource::Fsize,
            "nofile" => Resource::Nofile,
            "nproc" => Resource::Nproc,
            "stack" => Resource::Stack,
            other => {
                remarks.push(format!("unknown limit `{other}`"));
                continue;
            }
        };
        let limit = Rlimit { current: Some(*most), maximum: Some(*most) };
        if let Err(error) = prlimit(Some(Pid::from_child(child)), resource, limit) {
            remarks.push(format!("cannot set limit `{name}`: {error}"));
        }
    }
    remarks
}
