//! A worker process from start to end. Reports each step to the scheduler, and leaves no process
//! behind.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::Interest;
use tokio::task::JoinSet;

use super::reader::Reader;
use super::spawn::{Ends, Process};
use super::stderr::{Tail, listen};
use super::worker::{Act, Left, Wish, Worker};
use super::{Habits, Workers};
use crate::error::{ErrorKind, WorkerRef};
use crate::pidfd::registered;
use crate::protocol::{Encoding, Fault, FromWorker, Heard, Hello, Ready, ToWorker, VERSION};
use crate::scheduler::Cause;
use crate::shared::{Shared, worker_ref};
use crate::warden::Warden;

/// How long the pipes of an exited worker are read for its last output.
const LINGER: Duration = Duration::from_millis(200);
/// Interval between two checks of a worker's memory.
const WEIGH: Duration = Duration::from_millis(500);

/// The task of one worker process.
pub(super) struct Life {
    pub(super) worker: Arc<Worker>,
    pub(super) shared: Arc<Shared>,
    pub(super) habits: Arc<Habits>,
    pub(super) workers: Arc<Workers>,
    pub(super) warden: Arc<Warden>,
}

/// A running process and the tasks that serve its pipes.
struct Running {
    process: Process,
    reader: Option<Reader>,
    /// Reads its standard error.
    listener: JoinSet<()>,
    /// Writes what did not fit into the pipe; ends with this.
    _writer: JoinSet<()>,
    tail: Arc<Tail>,
}

/// How a worker process ended.
enum End {
    /// It exited, or another process killed it.
    Exited,
    /// The pool kills it.
    Killed(Cause),
    /// It violated the protocol.
    Fault(Fault),
}

/// Why a worker did not become ready.
enum NotReady {
    Fault(String),
    Exited,
    NotWanted,
}

impl Life {
    pub(super) async fn live(self) {
        match self.start().await {
            Ok((running, ready)) => self.work(running, ready).await,
            Err(None) => self.shared.gone(self.worker.id, Cause::Closing),
            Err(Some(error)) => self.shared.start_failed(self.worker.id, error),
        }
        self.workers.remove(self.worker.id);
    }

    /// Starts the process and waits until it is ready. The error is `None` if the pool cancelled
    /// the start.
    async fn start(&self) -> Result<(Running, Ready), Option<ErrorKind>> {
        let mut running = self.spawn().await.map_err(|message| {
            let stderr = String::new();
            Some(ErrorKind::StartFailed { message, stderr })
        })?;
        let limit = self.shared.settings.start_timeout;
        let said = tokio::select! {
            said = tokio::time::timeout(limit, self.greet(&mut running)) => said,
            () = self.unwanted() => Ok(Err(NotReady::NotWanted)),
        };
        let why = match said {
            Ok(Ok(ready)) => return Ok((running, ready)),
            Ok(Err(why)) => why,
            Err(_) => NotReady::Fault(format!("not ready within {limit:?}")),
        };
        let exited = matches!(why, NotReady::Exited);
        let status = running.put_down(exited).await;
        let message = match why {
            NotReady::NotWanted => return Err(None),
            NotReady::Fault(message) => message,
            NotReady::Exited => format!("{} before it was ready", ended(status)),
        };
        Err(Some(ErrorKind::StartFailed { message, stderr: running.tail.text() }))
    }

    async fn spawn(&self) -> Result<Running, String> {
        let (habits, warden) = (Arc::clone(&self.habits), Arc::clone(&self.warden));
        let (pool, id) = (self.shared.name.clone(), self.worker.id);
        let start = move || Process::start(&habits, &pool, id, &warden);
        let cannot = |cause: &dyn std::fmt::Display| self.habits.program.cannot_run(cause);
        let (process, ends) = match tokio::task::spawn_blocking(start).await {
            Ok(Ok(started)) => started,
            Ok(Err(cause)) => return Err(cannot(&cause)),
            Err(cause) => return Err(cannot(&cause)),
        };
        self.attend(process, ends).map_err(|cause| cannot(&cause))
    }

    /// Registers the process's pipes with the runtime, and starts the tasks that serve them.
    fn attend(&self, mut process: Process, ends: Ends) -> std::io::Result<Running> {
        process.watch();
        let pipe = Arc::new(registered(ends.write, Interest::WRITABLE)?);
        let voice = registered(ends.read, Interest::READABLE)?;
        let complaints = registered(ends.stderr, Interest::READABLE)?;
        let tail = Arc::new(Tail::default());
        let (mut listener, mut writer) = (JoinSet::new(), JoinSet::new());
        let (pool, id) = (self.shared.name.clone(), self.worker.id);
        listener.spawn(listen(complaints, Arc::clone(&tail), pool, id));
        writer.spawn(Arc::clone(&self.worker).write(Arc::clone(&pipe)));
        if !self.worker.attach(process.pid(), process.leash(), pipe) {
            self.worker.kill(Wish::Kill(Cause::Closing));
        }
        let reader = Reader::new(voice, self.shared.settings.max_frame);
        Ok(Running { process, reader: Some(reader), listener, _writer: writer, tail })
    }

    /// Resolves once the pool cancels the start.
    async fn unwanted(&self) {
        loop {
            if matches!(self.worker.wished(), Some(Wish::Kill(_))) {
                return;
            }
            self.worker.changed.notified().await;
        }
    }

    async fn greet(&self, running: &mut Running) -> Result<Ready, NotReady> {
        self.worker.tell(&ToWorker::Hello(Hello {
            version: VERSION,
            pool: self.shared.name.clone(),
            worker: self.worker.id,
            encodings: vec![Encoding::Json, Encoding::Binary],
            max_frame: self.shared.settings.max_frame,
        }));
        let Some(reader) = &mut running.reader else { return Err(NotReady::Exited) };
        loop {
            let heard = tokio::select! {
                biased;
                heard = reader.next() => heard,
                () = running.process.ended() => {
                    // A message sent before the exit still counts.
                    let rest = tokio::time::timeout(LINGER, reader.next()).await;
                    rest.unwrap_or(Ok(None))
                }
            };
            match heard.map_err(|fault| NotReady::Fault(fault.0))? {
                None => return Err(NotReady::Exited),
                Some(Heard::Message(FromWorker::Ready(ready))) => {
                    reader.switch(ready.encoding);
                    return checked(ready);
                }
                Some(Heard::Message(FromWorker::Failed(message))) => {
                    return Err(NotReady::Fault(message));
                }
                Some(other) => self.worker.hear(&self.shared, other),
            }
        }
    }

    async fn work(&self, mut running: Running, ready: Ready) {
        let Some(reader) = running.reader.take() else { return };
        self.worker.open(&ready);
        let id = self.worker.id;
        self.shared.set_ahead(id, self.worker.concurrency() - 1);
        self.shared.learn(ready.operations);
        let mut voices = JoinSet::new();
        voices.spawn(reader.listen(Arc::clone(&self.worker), Arc::clone(&self.shared)));
        self.worker.proceed(&self.shared, self.shared.ready(id));
        self.worker.flush();
        let end = self.watch(&running, &mut voices).await;
        self.finish(running, voices, end).await;
    }

    /// Monitors the worker until it ends.
    async fn watch(&self, running: &Running, voices: &mut JoinSet<Result<(), Fault>>) -> End {
        let ping_every = self.habits.program.ping_every;
        let mut weighed = Instant::now();
        loop {
            let now = Instant::now();
            let until = match self.worker.look(now, ping_every) {
                Act::Kill(cause) => return End::Killed(cause),
                Act::Dismiss => return self.went_deaf(running).await,
                Act::Release(cause) => {
                    self.shared.abandon(self.worker.id);
                    self.worker.wish(Wish::End(cause));
                    continue;
                }
                Act::Wait(until) => until,
            };
            self.worker.close_input();
            let until =
                self.weigh(running, now, &mut weighed).map_or(until, |next| until.min(next));
            tokio::select! {
                () = running.process.ended() => return End::Exited,
                heard = voices.join_next() => return self.fell_silent(running, heard).await,
                () = self.worker.changed.notified() => {}
                () = tokio::time::sleep_until(until.into()) => {}
            }
        }
    }

    /// The worker has closed its input. It may still answer the current call, but can take no more.
    async fn went_deaf(&self, running: &Running) -> End {
        self.shared.abandon(self.worker.id);
        let limit = self.shared.settings.stop_timeout;
        match tokio::time::timeout(limit, running.process.ended()).await {
            Ok(()) => End::Exited,
            Err(_) => End::Fault(Fault::new("it closed its input")),
        }
    }

    /// The worker's output has ended, or is not valid. A worker that is about to exit gets the time
    /// to do so.
    async fn fell_silent(
        &self,
        running: &Running,
        heard: Option<Result<Result<(), Fault>, tokio::task::JoinError>>,
    ) -> End {
        match heard {
            Some(Ok(Err(fault))) => End::Fault(fault),
            _ => match tokio::time::timeout(LINGER, running.process.ended()).await {
                Ok(()) => End::Exited,
                Err(_) => End::Fault(Fault::new("it closed its output")),
            },
        }
    }

    /// Checks the memory of the process, if there is a limit. Returns when to check again.
    fn weigh(&self, running: &Running, now: Instant, weighed: &mut Instant) -> Option<Instant> {
        let limit = self.shared.settings.max_memory?;
        if now.duration_since(*weighed) >= WEIGH {
            *weighed = now;
            if resident(running.process.pid()).is_some_and(|used| used > limit) {
                self.shared.replace(self.worker.id, Cause::Memory);
            }
        }
        Some(*weighed + WEIGH)
    }

    /// Ends the worker: fails or requeues its calls, and leaves no process behind.
    async fn finish(&self, mut running: Running, mut voices: JoinSet<Result<(), Fault>>, end: End) {
        let (id, pid) = (self.worker.id, running.process.pid());
        if self.worker.has_worked() {
            // Stops the scheduler from assigning more calls. A worker that never had one is
            // reported below as a failed start.
            self.shared.abandon(id);
        }
        let exited = matches!(end, End::Exited);
        if exited {
            running.process.ended().await;
        }
        running.process.leash().kill();
        if !matches!(end, End::Fault(_)) {
            // Its last messages still count: they also tell which call was running.
            running.process.ended().await;
            let _ = tokio::time::timeout(LINGER, voices.join_next()).await;
        }
        drop(voices);
        let status = running.put_down(exited).await;
        let stderr = running.tail.text();
        let wish = self.worker.wished();
        let left = self.worker.close();
        self.account(&end, wish, status, stderr, left, worker_ref(id, Some(pid)));
    }

    /// Reports the end to the scheduler and the callers.
    fn account(
        &self,
        end: &End,
        wish: Option<Wish>,
        status: Option<ExitStatus>,
        stderr: String,
        left: Left,
        worker: Option<WorkerRef>,
    ) {
        let id = self.worker.id;
        let died = |stderr: &str| died(status, stderr.to_owned());
        let (cause, error) = match (end, wish) {
            (_, Some(Wish::Kill(Cause::Closing))) => (Cause::Closing, ErrorKind::ShuttingDown),
            (End::Fault(fault), _) => {
                (Cause::Protocol, ErrorKind::Protocol { message: fault.0.clone() })
            }
            (End::Killed(cause), _) => (*cause, died(&stderr)),
            (End::Exited, Some(Wish::Kill(cause) | Wish::End(cause))) => (cause, died(&stderr)),
            (End::Exited, None) => (Cause::Died, died(&stderr)),
        };
        let failed = matches!(cause, Cause::Died | Cause::Protocol);
        if failed && left.answered == 0 && left.begun.is_empty() {
            // It is the same as a failed start, and an immediate replacement would fail the same
            // way.
            let message = format!("{} as soon as it was ready", ended(status));
            self.shared.start_failed(id, ErrorKind::StartFailed { message, stderr });
        } else {
            self.shared.gone(id, cause);
        }
        left.begun.into_iter().for_each(|job| job.fail(error.clone(), worker));
        let shutting_down = matches!(error, ErrorKind::ShuttingDown);
        // After a protocol violation it is unknown which calls the worker has started.
        let doubtful = matches!(end, End::Fault(_));
        for job in left.sent {
            match shutting_down || (doubtful && !self.shared.known.is_idempotent(&job.operation)) {
                true => job.fail(error.clone(), worker),
                false => self.shared.put_back(job),
            }
        }
        for job in left.unbegun {
            match shutting_down {
                true => job.fail(error.clone(), worker),
                false => self.shared.put_back(job),
            }
        }
    }
}

impl Running {
    /// Kills the process if it has not exited, reaps it, and reads the rest of its standard error.
    async fn put_down(&mut self, ended: bool) -> Option<ExitStatus> {
        if ended {
            let _ = tokio::time::timeout(LINGER, self.process.ended()).await;
        }
        self.process.leash().kill();
        self.process.ended().await;
        let status = self.process.reap();
        // Its standard error ends with it, unless an unknown descendant holds it open.
        let _ = tokio::time::timeout(LINGER, self.listener.join_next()).await;
        status
    }
}

fn checked(ready: Ready) -> Result<Ready, NotReady> {
    match ready.version {
        VERSION => Ok(ready),
        other => Err(NotReady::Fault(format!("it speaks version {other}, not {VERSION}"))),
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

fn ended(status: Option<ExitStatus>) -> String {
    status.map_or_else(|| "ended".to_owned(), |status| format!("ended ({status})"))
}

/// Resident memory of a process in bytes, where the system reports it.
fn resident(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
