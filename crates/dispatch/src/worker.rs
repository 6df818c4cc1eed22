//! A worker: takes scripts from a server, runs them, and reports their ends until the server
//! acknowledges them.
//!
//! One task does everything: a script costs it little, and nothing needs a lock. Its tasks are in
//! `task_table`; a broken connection does not affect them.

mod boundary;
mod cancel;
pub mod hardware;
mod lifetime;
mod options;
mod output;
mod script_check;
mod script_run;
mod sentinel_files;
mod server_loop;
mod signal_grace;
mod stream_writer;
mod task_table;

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use longshore::time::SystemClock;
use longshore::worker_session::Lease;
use longshore::{Backoff, SessionId, UnitId};
use longshore_process::{OrphanReaper, Subreaper};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use self::boundary::Boundary;
use self::cancel::{CancelSignal, StopReason};
pub(crate) use self::lifetime::interrupts_after;
pub use self::options::{DispatchWorkerError, Hooks, ProgramCommand, WorkerOptions, WorkerSummary};
use self::script_run::{CheckedScript, WorkerContext};
use self::signal_grace::SignalGrace;
use self::stream_writer::OutputStreams;
use self::task_table::TaskTable;
use crate::access::Access;
use crate::connection::{ConnectError, ServerConnection, connect};
use crate::script::{RunEnd, RunReport};
use crate::wire::{PeerRole, TaskEvent};

/// Stands for a drain limit that is too long to add to a time.
const MAX_DRAIN: Duration = Duration::from_secs(365 * 86_400);
/// How long running scripts may take to end at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Works until there is nothing left to do, or until a command ends it.
// Boxed, so that it is compiled in this crate. In the caller's it would be optimised less.
pub fn run(
    options: WorkerOptions,
    commands: mpsc::Receiver<ProgramCommand>,
    connected: impl Fn(std::net::SocketAddr) + Send + 'static,
) -> BoxFuture<'static, Result<WorkerSummary, DispatchWorkerError>> {
    Box::pin(run_worker(options, commands, Box::new(connected)))
}

async fn run_worker(
    options: WorkerOptions,
    mut commands: mpsc::Receiver<ProgramCommand>,
    connected: Box<dyn Fn(std::net::SocketAddr) + Send>,
) -> Result<WorkerSummary, DispatchWorkerError> {
    let mut worker = Worker::new(options)?;
    let hooks = worker.options.hooks.clone();
    if let Some(hook) = hooks.before {
        let run = script_run::run_hook(Arc::clone(&worker.context), hook.clone()).await;
        run.map_err(|problem| DispatchWorkerError::Hook(hook, problem))?;
    }
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
    let (mut disconnected_at, mut reported) = (Instant::now(), false);
    let folder = worker.options.folder.clone();
    let ended = loop {
        let mut connecting = pin!(find_server(folder.clone()));
        let connection = loop {
            worker.start_scripts();
            let wakeup = worker.next_wakeup();
            tokio::select! {
                connection = &mut connecting => break Some(connection),
                Some((lease, report)) = worker.running.next() => worker.on_end(lease, report),
                command = commands.recv() => {
                    worker.on_command(command.unwrap_or(ProgramCommand::Stop));
                    if worker.tasks.is_idle() {
                        break None;
                    }
                }
                () = sleep_until(wakeup) => worker.check_deadlines(),
            }
        };
        let Some(connection) = connection else { break Ok(()) };
        match connection {
            Ok(connection) => {
                if let Some(address) = connection.address {
                    connected(address);
                }
                backoff.reset();
                reported = false;
                match worker.serve(connection, &mut commands).await {
                    Ok(()) => break Ok(()),
                    Err(error) => tracing::warn!(%error, "the connection to the server broke"),
                }
                disconnected_at = Instant::now();
            }
            Err(error @ ConnectError::Refused(_)) => break Err(error),
            Err(error) if disconnected_at.elapsed() >= worker.options.server_lost => {
                break Err(error);
            }
            Err(error) if !reported => {
                reported = true;
                let limit = worker.options.server_lost;
                tracing::warn!(%error, "no connection to the server of {}; trying for {limit:?}", folder.display());
            }
            Err(error) => tracing::debug!(%error, "cannot connect to the server yet"),
        }
        // Scripts continue while there is no server.
        let until = Instant::now() + backoff.next_wait();
        worker.run_until(until).await;
    };
    worker.close().await;
    if let Some(hook) = hooks.after
        && let Err(problem) = script_run::run_hook(Arc::clone(&worker.context), hook.clone()).await
    {
        tracing::warn!(hook = %hook.display(), problem, "the hook after the last script failed");
    }
    ended?;
    Ok(worker.summary)
}

async fn find_server(folder: PathBuf) -> Result<ServerConnection, ConnectError> {
    connect(&Access::read(&folder, PeerRole::Worker)?, PeerRole::Worker).await
}

struct Worker {
    options: WorkerOptions,
    context: Arc<WorkerContext>,
    uid: String,
    started: Instant,
    tasks: TaskTable,
    scripts: HashMap<u64, Arc<CheckedScript>>,
    cancel_signals: HashMap<UnitId, Arc<CancelSignal>>,
    signal_grace: SignalGrace,
    running: FuturesUnordered<BoxFuture<'static, (Lease, RunReport)>>,
    /// Events to report to the server.
    events: Vec<TaskEvent>,
    idle_since: Instant,
    phase: Phase,
    summary: WorkerSummary,
    /// Kills scripts that are left behind if this process is killed.
    _reaper: Arc<OrphanReaper>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Working,
    Draining(Instant),
    Leaving,
}

impl Worker {
    fn new(options: WorkerOptions) -> Result<Self, DispatchWorkerError> {
        let reaper = OrphanReaper::shared();
        let mut env = options.env.clone();
        let (name, mark) = reaper.mark();
        // The reaper kills processes with the mark when the worker ends, even if they left their
        // script's group.
        reaper.sweep();
        let subreaper =
            options.kills_orphans.then(|| Subreaper::new((name, &mark), script_run::UNIT_VARIABLE));
        let subreaper = subreaper.transpose().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot become a subreaper: processes that leave their script's group live until the worker ends");
            None
        });
        env.push((name.into(), mark.into()));
        let uid = SessionId::new().to_string();
        let context = WorkerContext {
            host: host(),
            bash: find_bash().ok_or(DispatchWorkerError::NoBash)?,
            boundary: Boundary::new(&options.roots, &options.allowed_env)?,
            env,
            clock: Arc::new(SystemClock),
            dev_null: File::options().read(true).write(true).open("/dev/null")?,
            streams: OutputStreams::new(uid.clone()),
            subreaper: Mutex::new(subreaper),
        };
        let threads = options.threads.max(1);
        let now = Instant::now();
        Ok(Self {
            tasks: TaskTable::new(
                threads,
                options.resources.clone(),
                options.resource_names.clone(),
                hardware::processors(),
            ),
            options: WorkerOptions { threads, ..options },
            context: Arc::new(context),
            uid,
            started: now,
            scripts: HashMap::new(),
            cancel_signals: HashMap::new(),
            signal_grace: SignalGrace::default(),
            running: FuturesUnordered::new(),
            events: Vec::new(),
            idle_since: now,
            phase: Phase::Working,
            summary: WorkerSummary::default(),
            _reaper: reaper,
        })
    }

    /// Runs scripts without a server.
    async fn run_until(&mut self, until: Instant) {
        loop {
            self.start_scripts();
            tokio::select! {
                Some((lease, report)) = self.running.next() => self.on_end(lease, report),
                () = sleep_until(until) => break,
            }
        }
        self.check_deadlines();
    }

    /// Starts queued scripts as far as resources are free.
    fn start_scripts(&mut self) {
        while let Some(start) = self.tasks.start_next() {
            let lease = start.order.lease;
            let Some(script) = self.scripts.get(&start.order.script_id).cloned() else {
                let reason = "the server sent no definition of the script".to_owned();
                let report =
                    script_run::report_unstarted(&self.context, &start.order, RunEnd::NotStarted(reason));
                self.events.extend(self.tasks.finish(lease, report));
                continue;
            };
            self.events.push(TaskEvent::Started(lease));
            let cancel = Arc::new(CancelSignal::default());
            self.cancel_signals.insert(lease.unit, Arc::clone(&cancel));
            let run = script_run::run(Arc::clone(&self.context), start, script, cancel);
            self.running.push(Box::pin(run));
        }
    }

    fn on_end(&mut self, lease: Lease, report: RunReport) {
        if let Some((lease, report)) = self.signal_grace.classify(lease, report) {
            self.record_end(lease, report);
        }
    }

    /// The process that hosts the worker was asked to drain or stop.
    fn on_command(&mut self, command: ProgramCommand) {
        for (lease, report) in self.signal_grace.on_shutdown() {
            self.record_end(lease, report);
        }
        self.apply_command(command);
    }

    fn record_end(&mut self, lease: Lease, report: RunReport) {
        self.cancel_signals.remove(&lease.unit);
        match report.end {
            RunEnd::Exited(0) => self.summary.done += 1,
            RunEnd::Interrupted => self.summary.interrupted += 1,
            _ => self.summary.failed += 1,
        }
        self.events.extend(self.tasks.finish(lease, report));
        self.idle_since = Instant::now();
    }

    fn apply_command(&mut self, command: ProgramCommand) {
        match (command, self.phase) {
            (ProgramCommand::Drain, Phase::Working) => self.drain(self.options.drain),
            (ProgramCommand::Drain, _) => {}
            (ProgramCommand::Stop, _) => {
                self.phase = Phase::Leaving;
                self.events.extend(self.tasks.return_queued(None));
                let running = self.cancel_signals.keys().copied().collect();
                self.cancel_all(running, StopReason::WorkerStopped);
            }
        }
    }

    /// Accepts no more tasks. Scripts that run longer than `limit`, or until the worker's lifetime ends,
    /// are interrupted; the limit of a later call replaces an earlier one.
    fn drain(&mut self, limit: Duration) {
        if self.phase == Phase::Leaving {
            return;
        }
        let until = Instant::now() + limit.min(MAX_DRAIN);
        self.phase = Phase::Draining(self.interrupts_at().map_or(until, |end| until.min(end)));
        self.events.extend(self.tasks.return_queued(None));
    }

    fn is_finished(&self) -> bool {
        self.phase != Phase::Working && self.tasks.is_empty() && self.events.is_empty()
    }

    /// Stops running scripts.
    async fn close(&mut self) {
        self.on_command(ProgramCommand::Stop);
        let until = Instant::now() + SHUTDOWN_TIMEOUT;
        while !self.running.is_empty() && Instant::now() < until {
            tokio::select! {
                Some((lease, report)) = self.running.next() => self.on_end(lease, report),
                () = sleep_until(until) => {}
            }
        }
    }
}

/// Name of this machine.
fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

fn find_bash() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let standard = ["/bin", "/usr/bin"].map(PathBuf::from);
    let mut candidates = std::env::split_paths(&path).chain(standard).map(|folder| folder.join("bash"));
    candidates.find(|path| path.is_file())
}
