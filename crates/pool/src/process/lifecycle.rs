//! A worker process from start to end. Reports each step to the scheduler, and leaves no process
//! behind.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_process::{OUTPUT_LINGER, OrphanReaper, register_fd, resident_memory};
use tokio::io::Interest;
use tokio::task::JoinSet;

use super::reader::Reader;
use super::spawn::{ParentPipes, Process};
use super::stderr::{StderrTail, read_stderr};
use super::worker::{LivenessAction, StopRequest, UnfinishedCalls, Worker};
use super::{ProcessConfig, Workers};
use crate::error::{ErrorKind, WorkerRef};
use crate::protocol::{Decoded, Encoding, FromWorker, Hello, ProtocolError, Ready, ToWorker, VERSION};
use crate::scheduler::EndCause;
use crate::shared::{Shared, worker_ref};

/// Interval between two checks of a worker's memory.
const MEMORY_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Time between two attempts to drain a worker, while too many drain already.
const DRAIN_RETRY: Duration = Duration::from_secs(1);

/// The task of one worker process.
pub(super) struct WorkerLifecycle {
    pub(super) worker: Arc<Worker>,
    pub(super) shared: Arc<Shared>,
    pub(super) config: Arc<ProcessConfig>,
    pub(super) workers: Arc<Workers>,
    pub(super) reaper: Arc<OrphanReaper>,
}

/// A running process and the tasks that serve its pipes.
struct RunningProcess {
    process: Process,
    reader: Option<Reader>,
    /// Reads its standard error.
    stderr_task: JoinSet<()>,
    /// Writes what did not fit into the pipe; ends with this.
    _writer: JoinSet<()>,
    tail: Arc<StderrTail>,
}

/// How a worker process ended.
enum ProcessEnd {
    /// It exited, or another process killed it.
    Exited,
    /// The pool kills it.
    Killed(EndCause),
    /// It violated the protocol.
    Protocol(ProtocolError),
}

/// Why a worker did not become ready.
enum StartFailure {
    Error(String),
    Exited,
    Cancelled,
}

impl WorkerLifecycle {
    pub(super) async fn run(self) {
        match self.start().await {
            Ok((running, ready)) => self.work(running, ready).await,
            Err(None) => self.shared.worker_ended(self.worker.id, EndCause::Closing),
            Err(Some(error)) => self.shared.start_failed(self.worker.id, error),
        }
        self.workers.remove(self.worker.id);
    }

    /// Starts the process and waits until it is ready. The error is `None` if the pool cancelled
    /// the start.
    async fn start(&self) -> Result<(RunningProcess, Ready), Option<ErrorKind>> {
        let mut running = self.spawn().await.map_err(|message| {
            let stderr = String::new();
            Some(ErrorKind::StartFailed { message, stderr })
        })?;
        let limit = self.shared.settings.start_timeout;
        let result = tokio::select! {
            result = tokio::time::timeout(limit, self.handshake(&mut running)) => result,
            () = self.until_cancelled() => Ok(Err(StartFailure::Cancelled)),
        };
        let reason = match result {
            Ok(Ok(ready)) => return Ok((running, ready)),
            Ok(Err(reason)) => reason,
            Err(_) => StartFailure::Error(format!("not ready within {limit:?}")),
        };
        let exited = matches!(reason, StartFailure::Exited);
        let status = running.terminate(exited).await;
        let message = match reason {
            StartFailure::Cancelled => return Err(None),
            StartFailure::Error(message) => message,
            StartFailure::Exited => format!("{} before it was ready", describe_end(status)),
        };
        Err(Some(ErrorKind::StartFailed { message, stderr: running.tail.text() }))
    }

    async fn spawn(&self) -> Result<RunningProcess, String> {
        let (config, reaper) = (Arc::clone(&self.config), Arc::clone(&self.reaper));
        let (pool, id) = (self.shared.name.clone(), self.worker.id);
        let start = move || Process::start(&config, &pool, id, &reaper);
        let run_error = |cause: &dyn std::fmt::Display| self.config.program.cannot_run(cause);
        let (process, pipes) = match tokio::task::spawn_blocking(start).await {
            Ok(Ok(started)) => started,
            Ok(Err(cause)) => return Err(run_error(&cause)),
            Err(cause) => return Err(run_error(&cause)),
        };
        self.attach_io(process, pipes).map_err(|cause| run_error(&cause))
    }

    /// Registers the process's pipes with the runtime, and starts the tasks that serve them.
    fn attach_io(&self, process: Process, pipes: ParentPipes) -> std::io::Result<RunningProcess> {
        let pipe = Arc::new(register_fd(pipes.write, Interest::WRITABLE)?);
        let output = register_fd(pipes.read, Interest::READABLE)?;
        let stderr = register_fd(pipes.stderr, Interest::READABLE)?;
        let tail = Arc::new(StderrTail::default());
        let (mut stderr_task, mut writer) = (JoinSet::new(), JoinSet::new());
        let (pool, id) = (self.shared.name.clone(), self.worker.id);
        stderr_task.spawn(read_stderr(stderr, Arc::clone(&tail), pool, id));
        writer.spawn(Arc::clone(&self.worker).write(Arc::clone(&pipe)));
        if !self.worker.attach(process.pid(), process.kill_handle(), pipe) {
            self.worker.kill(StopRequest::Kill(EndCause::Closing));
        }
        let reader = Reader::new(output, self.shared.settings.max_frame);
        Ok(RunningProcess { process, reader: Some(reader), stderr_task, _writer: writer, tail })
    }

    /// Resolves once the pool cancels the start.
    async fn until_cancelled(&self) {
        loop {
            if matches!(self.worker.stop_request(), Some(StopRequest::Kill(_))) {
                return;
            }
            self.worker.changed.notified().await;
        }
    }

    async fn handshake(&self, running: &mut RunningProcess) -> Result<Ready, StartFailure> {
        self.worker.send_message(&ToWorker::Hello(Hello {
            version: VERSION,
            pool: self.shared.name.clone(),
            worker: self.worker.id,
            encodings: vec![Encoding::Json, Encoding::Binary],
            max_frame: self.shared.settings.max_frame,
        }));
        let Some(reader) = &mut running.reader else { return Err(StartFailure::Exited) };
        loop {
            let message = tokio::select! {
                biased;
                message = reader.next() => message,
                () = running.process.ended() => {
                    // A message sent before the exit still counts.
                    let rest = tokio::time::timeout(OUTPUT_LINGER, reader.next()).await;
                    rest.unwrap_or(Ok(None))
                }
            };
            match message.map_err(|error| StartFailure::Error(error.0))? {
                None => return Err(StartFailure::Exited),
                Some(Decoded::Message(FromWorker::Ready(ready))) => {
                    reader.switch(ready.encoding);
                    return check_version(ready);
                }
                Some(Decoded::Message(FromWorker::Failed(message))) => {
                    return Err(StartFailure::Error(message));
                }
                Some(other) => self.worker.on_message(&self.shared, other),
            }
        }
    }

    async fn work(&self, mut running: RunningProcess, ready: Ready) {
        let Some(reader) = running.reader.take() else { return };
        self.worker.mark_ready(&ready);
        let id = self.worker.id;
        self.shared.set_concurrency(id, self.worker.concurrency());
        self.shared.register_operations(ready.operations);
        let mut reader_task = JoinSet::new();
        reader_task.spawn(reader.run(Arc::clone(&self.worker), Arc::clone(&self.shared)));
        self.worker.execute(&self.shared, self.shared.ready(id));
        self.worker.prefetch(&self.shared);
        self.worker.flush();
        let end = self.watch(&running, &mut reader_task).await;
        self.finish(running, reader_task, end).await;
    }

    /// Monitors the worker until it ends.
    async fn watch(
        &self,
        running: &RunningProcess,
        reader_task: &mut JoinSet<Result<(), ProtocolError>>,
    ) -> ProcessEnd {
        let ping_every = self.config.program.ping_every;
        let mut checked_at = Instant::now();
        loop {
            let now = Instant::now();
            let until = match self.worker.check_liveness(now, ping_every) {
                LivenessAction::Kill(cause) => return ProcessEnd::Killed(cause),
                LivenessAction::AwaitExit => return self.input_closed(running).await,
                LivenessAction::Drain(cause) if self.drain() => {
                    self.worker.request_stop(StopRequest::Graceful(cause));
                    continue;
                }
                LivenessAction::Drain(_) => now + DRAIN_RETRY,
                LivenessAction::Wait(until) => until,
            };
            self.worker.close_input();
            let until =
                self.check_memory(running, now, &mut checked_at).map_or(until, |next| until.min(next));
            tokio::select! {
                () = running.process.ended() => return ProcessEnd::Exited,
                message = reader_task.join_next() => return self.output_closed(running, message).await,
                () = self.worker.changed.notified() => {}
                () = tokio::time::sleep_until(until.into()) => {}
            }
        }
    }

    /// One of the worker's calls hangs: gives it no more calls. Returns `false` if too many workers end
    /// their last calls already; then this one works on with the capacity that is left to it.
    fn drain(&self) -> bool {
        let id = self.worker.id;
        if self.worker.has_awaited_calls() {
            return self.shared.drain(id);
        }
        self.shared.abandon(id);
        true
    }

    /// The worker has closed its input. It may still answer the current call, but can take no more.
    async fn input_closed(&self, running: &RunningProcess) -> ProcessEnd {
        self.shared.abandon(self.worker.id);
        let limit = self.shared.settings.stop_timeout;
        match tokio::time::timeout(limit, running.process.ended()).await {
            Ok(()) => ProcessEnd::Exited,
            Err(_) => ProcessEnd::Protocol(ProtocolError::new("it closed its input")),
        }
    }

    /// The worker's output has ended, or is not valid. A worker that is about to exit gets the time
    /// to do so.
    async fn output_closed(
        &self,
        running: &RunningProcess,
        message: Option<Result<Result<(), ProtocolError>, tokio::task::JoinError>>,
    ) -> ProcessEnd {
        match message {
            Some(Ok(Err(error))) => ProcessEnd::Protocol(error),
            _ => match tokio::time::timeout(OUTPUT_LINGER, running.process.ended()).await {
                Ok(()) => ProcessEnd::Exited,
                Err(_) => ProcessEnd::Protocol(ProtocolError::new("it closed its output")),
            },
        }
    }

    /// Checks the memory of the process, if there is a limit. Returns when to check again.
    fn check_memory(
        &self,
        running: &RunningProcess,
        now: Instant,
        checked_at: &mut Instant,
    ) -> Option<Instant> {
        let limit = self.shared.settings.max_memory?;
        if now.duration_since(*checked_at) >= MEMORY_CHECK_INTERVAL {
            *checked_at = now;
            if resident_memory(running.process.pid()).is_some_and(|used| used > limit) {
                self.shared.replace(self.worker.id, EndCause::Memory);
            }
        }
        Some(*checked_at + MEMORY_CHECK_INTERVAL)
    }

    /// Ends the worker: fails or requeues its calls, and leaves no process behind.
    async fn finish(
        &self,
        mut running: RunningProcess,
        mut reader_task: JoinSet<Result<(), ProtocolError>>,
        end: ProcessEnd,
    ) {
        let (id, pid) = (self.worker.id, running.process.pid());
        if self.worker.was_given_calls() {
            // Stops the scheduler from assigning more calls. A worker that never had one is
            // reported below as a failed start.
            self.shared.abandon(id);
        }
        let exited = matches!(end, ProcessEnd::Exited);
        if exited {
            running.process.ended().await;
        }
        running.process.kill_handle().kill();
        if !matches!(end, ProcessEnd::Protocol(_)) {
            // Its last messages still count: they also tell which call was running.
            running.process.ended().await;
            let _ = tokio::time::timeout(OUTPUT_LINGER, reader_task.join_next()).await;
        }
        drop(reader_task);
        let status = running.terminate(exited).await;
        let stderr = running.tail.text();
        let stop_request = self.worker.stop_request();
        let unfinished = self.worker.close();
        self.report_end(&end, stop_request, status, stderr, unfinished, worker_ref(id, Some(pid)));
    }

    /// Reports the end to the scheduler and the callers.
    fn report_end(
        &self,
        end: &ProcessEnd,
        stop_request: Option<StopRequest>,
        status: Option<ExitStatus>,
        stderr: String,
        unfinished: UnfinishedCalls,
        worker: Option<WorkerRef>,
    ) {
        let id = self.worker.id;
        let died = |stderr: &str| died(status, stderr.to_owned());
        let (cause, error) = match (end, stop_request) {
            (_, Some(StopRequest::Kill(EndCause::Closing))) => (EndCause::Closing, ErrorKind::ShuttingDown),
            (ProcessEnd::Protocol(error), _) => {
                (EndCause::Protocol, ErrorKind::Protocol { message: error.0.clone() })
            }
            (ProcessEnd::Killed(cause), _) => (*cause, died(&stderr)),
            (ProcessEnd::Exited, Some(StopRequest::Kill(cause) | StopRequest::Graceful(cause))) => {
                (cause, died(&stderr))
            }
            (ProcessEnd::Exited, None) => (EndCause::Died, died(&stderr)),
        };
        let failed = matches!(cause, EndCause::Died | EndCause::Protocol);
        if failed && unfinished.answered == 0 && unfinished.started.is_empty() {
            // It is the same as a failed start, and an immediate replacement would fail the same
            // way.
            let message = format!("{} as soon as it was ready", describe_end(status));
            self.shared.start_failed(id, ErrorKind::StartFailed { message, stderr });
        } else {
            self.shared.worker_ended(id, cause);
        }
        let started_error = if unfinished.blocked { ErrorKind::Interrupted } else { error.clone() };
        unfinished.started.into_iter().for_each(|job| job.fail(started_error.clone(), worker));
        let shutting_down = matches!(error, ErrorKind::ShuttingDown);
        // After a protocol violation it is unknown which calls the worker has started.
        let uncertain = matches!(end, ProcessEnd::Protocol(_));
        for job in unfinished.sent {
            match shutting_down || (uncertain && !self.shared.registry.is_idempotent(&job.operation)) {
                true => job.fail(error.clone(), worker),
                false => self.shared.requeue(job),
            }
        }
        for job in unfinished.unsent {
            match shutting_down {
                true => job.fail(error.clone(), worker),
                false => self.shared.requeue(job),
            }
        }
    }
}

impl RunningProcess {
    /// Kills the process if it has not exited, reaps it, and reads the rest of its standard error.
    async fn terminate(&mut self, ended: bool) -> Option<ExitStatus> {
        if ended {
            let _ = tokio::time::timeout(OUTPUT_LINGER, self.process.ended()).await;
        }
        self.process.kill_handle().kill();
        self.process.ended().await;
        let status = self.process.reap();
        // Its standard error ends with it, unless an unknown descendant holds it open.
        let _ = tokio::time::timeout(OUTPUT_LINGER, self.stderr_task.join_next()).await;
        status
    }
}

fn check_version(ready: Ready) -> Result<Ready, StartFailure> {
    match ready.version {
        VERSION => Ok(ready),
        other => Err(StartFailure::Error(format!("it speaks version {other}, not {VERSION}"))),
    }
}

fn died(status: Option<ExitStatus>, stderr: String) -> ErrorKind {
    use std::os::unix::process::ExitStatusExt;
    ErrorKind::WorkerDied {
        exit: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
        stderr,
    }
}

fn describe_end(status: Option<ExitStatus>) -> String {
    status.map_or_else(|| "ended".to_owned(), |status| format!("ended ({status})"))
}
