//! The server's event loop: one task that owns the scheduler and exchanges messages with all
//! workers.
//!
//! It never waits for a single operation. Claims, results and heartbeats are store calls that run
//! concurrently, and messages to a worker are buffered in its channel. The scheduler makes all
//! decisions.

mod cut_off;
mod explain;
mod lost_workers;
mod pause;
mod shutdown;
mod status;
mod worker_messages;
mod workers;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use longshore::store::{FinishRequest, FinishResult, Heartbeat, HeartbeatReply};
use longshore::worker_session::Lease;
use longshore::{BatchId, Error, Outcome, Store, UnitId};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use self::cut_off::CutOffTasks;
pub(super) use self::explain::TaskExplanation;
use super::claimer::{ClaimedTasks, Claimer, PreparedTask, TaskData, or_pending};
use super::result_writer::{ResultWriter, WriteReport};
use super::script_cache::ScriptCache;
use super::unresolved_losses::UnresolvedLosses;
use super::worker_connection::{ConnectionId, WorkerSender};
use super::{ServerReport, Timing};
use crate::launch::scaler::PresentWorker;
use crate::launch::{AllocationTable, Demand};
use crate::request::{PoolStatus, ShutdownMode, WorkerAction, WorkerDetails};
use crate::scheduler::{Obstacle, ResourceRequest, TaskScheduler, WorkerKey, WorkerRecord};
use crate::script;
use crate::system::JobEndCause;
use crate::wire::{FromWorker, Register, TaskOrder, ToWorker, WorkerLoad};

/// Maximum number of events per turn of the loop.
const MAX_EVENTS: usize = 512;
/// If a turn of the loop took this long, the process was stalled (suspended machine, hanging disk),
/// and workers may have sent heartbeats that it could not read.
const STALL_THRESHOLD: Duration = Duration::from_secs(1);
/// Interval of maintenance without events.
const TICK: Duration = Duration::from_millis(100);

/// Minimum wait for workers after a restart. A worker that registered shortly before the crash is
/// missing from the state file. Longer than the longest pause between two of its connection
/// attempts.
const MIN_RESTORE_WAIT: Duration = Duration::from_secs(3);

/// What the core reacts to.
pub(super) enum Event {
    Registered(ConnectionId, Box<Register>, WorkerSender),
    Message(ConnectionId, FromWorker),
    Disconnected(ConnectionId),
    Status(oneshot::Sender<PoolStatus>),
    LauncherView(oneshot::Sender<LauncherView>),
    /// Say where this unit's task is, and why each worker is not given it.
    Explain(UnitId, ResourceRequest, oneshot::Sender<TaskExplanation>),
    /// Say which of these requests no worker of the pool can ever run, and why.
    FindUnfit(Vec<ResourceRequest>, oneshot::Sender<Vec<Vec<Obstacle>>>),
    /// Tell these workers to leave; their scripts may run on for this long.
    Release(Vec<WorkerKey>, Duration),
    /// Describe, drain or stop these workers.
    Workers(Vec<String>, WorkerAction, oneshot::Sender<Result<Vec<WorkerDetails>, String>>),
    /// A unit was cancelled: ask the store which.
    HeartbeatNow,
    /// An array was paused: return its units that have not started.
    ArrayPaused(BatchId),
    /// Why the jobs of lost workers ended.
    ExitReasons(Vec<(u64, JobEndCause)>),
    Shutdown(ShutdownMode),
}

/// What the launcher needs to know.
pub(super) struct LauncherView {
    pub(super) now: Duration,
    /// All claimed tasks.
    pub(super) demand: Vec<Demand>,
    pub(super) present: Vec<PresentWorker>,
    /// Launch numbers of lost workers without a known exit reason of their job.
    pub(super) lost: Vec<u64>,
    /// The pool shuts down: launch no more workers.
    pub(super) shutting_down: bool,
    /// The workers that are registered or expected to reconnect, by uid.
    pub(super) workers: BTreeMap<String, WorkerRecord>,
}

/// A registered worker, beside its scheduler entry.
struct ConnectedWorker {
    launch: Option<u64>,
    connection: ConnectionId,
    sender: WorkerSender,
    host: String,
    pid: u32,
    version: String,
    load: WorkerLoad,
    /// It was told to leave, by this server or by the system that it runs on.
    released: bool,
    /// The time limit with which this server told it so.
    drain: Option<Duration>,
}

/// State of the event loop.
pub(super) struct Core {
    store: Arc<dyn Store>,
    session: longshore::SessionId,
    timing: Timing,
    started_at: Instant,
    scheduler: TaskScheduler<TaskData>,
    scripts: ScriptCache,
    workers: BTreeMap<WorkerKey, ConnectedWorker>,
    connections: HashMap<ConnectionId, WorkerKey>,
    claimer: Claimer,
    results: ResultWriter,
    /// Leases that the server has got; the end of each is not recorded yet.
    held: HashSet<Lease>,
    unresolved: UnresolvedLosses<TaskData>,
    cut_off: CutOffTasks,
    /// How long to wait for a job's exit reason; zero if there is no launcher to ask.
    exit_reason_timeout: Duration,
    /// The workers that the pool launches.
    allocations: Option<Arc<AllocationTable>>,
    heartbeat: Option<BoxFuture<'static, longshore::Result<HeartbeatReply>>>,
    next_heartbeat: Instant,
    next_eviction: Instant,
    shutdown: Option<(ShutdownMode, Instant)>,
    /// When the last turn of the loop ended.
    last_turn: Instant,
    restore_deadline: Option<Duration>,
    /// Workers that were registered before the restart and have not reconnected, by uid.
    expected_workers: BTreeMap<String, WorkerRecord>,
    /// Units that workers must return because their array was paused.
    retracted: HashSet<UnitId>,
    report: ServerReport,
    /// Publishes the number of workers.
    worker_count: watch::Sender<usize>,
}

impl Core {
    pub(super) fn new(
        store: Arc<dyn Store>,
        session: longshore::SessionId,
        timing: Timing,
        worker_count: watch::Sender<usize>,
    ) -> Self {
        let now = Instant::now();
        Self {
            claimer: Claimer::new(Arc::clone(&store), session),
            results: ResultWriter::new(Arc::clone(&store), session),
            held: HashSet::new(),
            store,
            session,
            timing,
            started_at: now,
            scheduler: TaskScheduler::default(),
            scripts: ScriptCache::default(),
            workers: BTreeMap::new(),
            connections: HashMap::new(),
            unresolved: UnresolvedLosses::default(),
            cut_off: CutOffTasks::default(),
            exit_reason_timeout: Duration::ZERO,
            allocations: None,
            heartbeat: None,
            next_heartbeat: now,
            next_eviction: now,
            shutdown: None,
            last_turn: now,
            restore_deadline: None,
            expected_workers: BTreeMap::new(),
            retracted: HashSet::new(),
            report: ServerReport::default(),
            worker_count,
        }
    }

    fn now(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Waits this long for the exit reasons of lost workers' jobs.
    pub(super) fn with_exit_reason_timeout(mut self, timeout: Duration) -> Self {
        self.exit_reason_timeout = timeout;
        self
    }

    /// The pool launches workers of these allocations.
    pub(super) fn with_allocations(mut self, allocations: Option<Arc<AllocationTable>>) -> Self {
        self.allocations = allocations;
        self
    }

    /// Takes over the tasks that an earlier server process had claimed, under the leases that
    /// workers know. Workers have `restart_grace` to reconnect.
    pub(super) fn restore(
        &mut self,
        claimed: ClaimedTasks,
        worker_leases: &HashMap<UnitId, Lease>,
        workers: BTreeMap<String, WorkerRecord>,
    ) {
        let now = self.now();
        for task in self.register_scripts(claimed) {
            let worker_lease = worker_leases.get(&task.lease.unit).copied().unwrap_or(task.lease);
            let (lease, rank, request) = (task.lease, task.rank, task.request);
            self.scheduler.add_restored(now, (lease, worker_lease), rank, request, task.data);
        }
        self.expected_workers = workers;
        self.restore_deadline = Some(now + self.timing.restart_grace);
    }

    /// Runs until it is shut down and all results are written.
    pub(super) async fn run(mut self, mut events: mpsc::Receiver<Event>) -> ServerReport {
        let mut events_batch = Vec::with_capacity(MAX_EVENTS);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.is_shut_down() {
            let mut maintenance_due = false;
            tokio::select! {
                _ = events.recv_many(&mut events_batch, MAX_EVENTS) => {}
                claimed = self.claimer.next() => self.on_claimed(claimed),
                report = self.results.next() => report.into_iter().for_each(|it| self.on_written(it)),
                answer = or_pending(&mut self.heartbeat) => self.on_heartbeat_reply(answer),
                _ = tick.tick() => maintenance_due = true,
            }
            self.check_stall();
            if maintenance_due {
                self.run_maintenance();
            }
            for event in events_batch.drain(..) {
                self.on_event(event);
            }
            self.send_assignments();
            if self.scheduler.is_empty() {
                self.results.flush();
            } else {
                self.results.flush_due();
            }
            if self.shutdown.is_none() {
                self.claimer.claim_if_needed(&self.scheduler, &self.scripts);
            }
            self.last_turn = Instant::now();
        }
        self.close().await;
        self.report
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Registered(connection, register, sender) => {
                self.on_registered(connection, *register, sender);
            }
            Event::Message(connection, message) => self.on_message(connection, message),
            Event::Disconnected(connection) => self.on_disconnected(connection),
            Event::Status(answer) => _ = answer.send(self.status()),
            Event::LauncherView(answer) => _ = answer.send(self.view()),
            Event::Explain(unit, request, answer) => _ = answer.send(self.explain(unit, request)),
            Event::FindUnfit(requests, answer) => {
                _ = answer.send(requests.iter().map(|request| self.unfit(request)).collect());
            }
            Event::Release(workers, limit) => {
                workers.into_iter().for_each(|id| self.release_worker(id, limit));
            }
            Event::Workers(names, action, answer) => {
                let _ = answer.send(self.act_on_workers(&names, action));
            }
            Event::HeartbeatNow => {
                self.next_heartbeat = Instant::now();
                self.run_maintenance();
            }
            Event::ArrayPaused(array) => self.on_paused(array),
            Event::ExitReasons(reasons) => {
                for (launch, cause) in reasons {
                    let resolved = self.unresolved.on_exit_reason(launch, cause);
                    self.record_losses(resolved);
                }
            }
            Event::Shutdown(ending) => self.begin_shutdown(ending),
        }
    }

    fn on_claimed(&mut self, claimed: ClaimedTasks) {
        let now = self.now();
        for lease in &claimed.leases_after_failure {
            if !self.held.contains(lease) {
                tracing::warn!(unit = %lease.unit, "the answer to a claim was lost: returning its unit to the store");
                self.results.push(FinishRequest::new(*lease, Outcome::Interrupted), None);
            }
        }
        for task in self.register_scripts(claimed) {
            let unit = task.lease.unit;
            self.scheduler.add(now, task.lease, task.rank, task.request, task.data);
            self.return_to_worker(unit);
        }
    }

    /// Assigns script ids to the tasks. Fails units with an unreadable payload.
    fn register_scripts(&mut self, claimed: ClaimedTasks) -> Vec<PreparedTask> {
        let mut tasks = Vec::new();
        self.held.extend(claimed.tasks.iter().map(|task| task.lease));
        self.held.extend(claimed.rejected.iter().map(|(lease, _)| *lease));
        for (source, definition) in claimed.scripts {
            if self.scripts.id_of(&source).is_none() {
                self.scripts.insert(source, definition);
            }
        }
        for mut task in claimed.tasks {
            match self.scripts.id_of(&task.source) {
                Some(script_id) => {
                    self.scripts.add_use(script_id);
                    task.data.script_id = script_id;
                    task.request.time = self.scripts.time_limit(script_id);
                    tasks.push(task);
                }
                None => self.results.push(FinishRequest::new(task.lease, unreadable_payload()), None),
            }
        }
        for (lease, outcome) in claimed.rejected {
            self.results.push(FinishRequest::new(lease, outcome), None);
        }
        tasks
    }

    fn on_written(&mut self, report: WriteReport) {
        let mut recorded: BTreeMap<WorkerKey, Vec<Lease>> = BTreeMap::new();
        for (result, answer) in report.results {
            self.held.remove(&result.lease);
            if matches!(answer, FinishResult::LeaseLost) {
                tracing::warn!(unit = %result.lease.unit, "result rejected: the lease is lost");
            }
            match result.worker {
                Some((worker, lease)) => recorded.entry(worker).or_default().push(lease),
                None => self.cut_off.on_loss_written(self.started_at.elapsed(), result.lease.unit),
            }
        }
        for (worker, leases) in recorded {
            self.send(worker, ToWorker::ResultsRecorded(leases));
        }
        if report.session_gone {
            self.on_session_lost();
        }
    }

    /// The store expired the session: the server's leases are no longer valid.
    fn on_session_lost(&mut self) {
        tracing::error!("the store expired this server's session; shutting down");
        self.report.session_lost = true;
        self.begin_shutdown(ShutdownMode::Now);
    }

    /// Sends the scheduler's assignments to the workers.
    fn send_assignments(&mut self) {
        let now = self.now();
        let mut orders: BTreeMap<WorkerKey, Vec<TaskOrder>> = BTreeMap::new();
        for assignment in self.scheduler.schedule(now) {
            let Some(task) = self.scheduler.task(assignment.unit) else { continue };
            let order = task.data.to_order(task.worker_lease, &task.request);
            if let Some(definition) = self.scripts.take_unsent(task.data.script_id, assignment.worker) {
                let script_id = task.data.script_id;
                self.send(assignment.worker, ToWorker::Script(script_id, Box::new((*definition).clone())));
            }
            orders.entry(assignment.worker).or_default().push(order);
        }
        for (worker, orders) in orders {
            self.send(worker, ToWorker::Run(orders));
        }
    }

    fn send(&self, id: WorkerKey, message: ToWorker) {
        if let Some(worker) = self.workers.get(&id) {
            // If the connection has just broken, the worker gets this state when it registers
            // again.
            let _ = worker.sender.send(message);
        }
    }

    fn release_script(&mut self, script_id: u64) {
        for worker in self.scripts.release(script_id).into_iter().flatten() {
            self.send(worker, ToWorker::DropScript(script_id));
        }
    }

    /// Restarts the workers' liveness timeouts if this process was stalled since the last turn.
    fn check_stall(&mut self) {
        let stalled = self.last_turn.elapsed();
        if stalled >= STALL_THRESHOLD {
            tracing::warn!(?stalled, "this server was stalled; workers have their whole ttl again");
            self.scheduler.reset_liveness(self.now());
            self.last_turn = Instant::now();
        }
    }

    /// Periodic work.
    fn run_maintenance(&mut self) {
        let now = self.now();
        for id in self.scheduler.overdue(now, self.timing.worker_ttl, self.timing.reconnect_grace) {
            self.on_worker_lost(now, id);
        }
        for retraction in self.scheduler.tasks_to_retract() {
            let lease = self.scheduler.task(retraction.unit).map(|task| task.worker_lease);
            self.send(retraction.worker, ToWorker::Retract(lease.into_iter().collect()));
        }
        self.resolve_restored(now);
        self.expire_returned(now);
        let overdue = self.unresolved.expire(now);
        self.record_losses(overdue);
        if Instant::now() >= self.next_heartbeat && self.heartbeat.is_none() {
            self.next_heartbeat = Instant::now() + self.timing.store_ttl / 6;
            let (store, session, limit) = (Arc::clone(&self.store), self.session, self.timing.store_ttl / 3);
            self.heartbeat = Some(Box::pin(async move {
                // Reads every descendant process, of which there may be many.
                let cpu = tokio::task::spawn_blocking(longshore::cpu_time).await.ok().flatten();
                let beat = store.heartbeat(session, Heartbeat { cpu, ..Heartbeat::default() });
                // One without an answer, as on a connection that was cut, is repeated within the ttl.
                let late = |_| Err(Error::timed_out(format!("no answer to a heartbeat within {limit:?}")));
                tokio::time::timeout(limit, beat).await.unwrap_or_else(late)
            }));
        }
        if Instant::now() >= self.next_eviction && self.claimer.is_idle() {
            self.next_eviction = Instant::now() + Duration::from_secs(30);
            for (script_id, workers) in self.scripts.evict_unused() {
                for worker in workers {
                    self.send(worker, ToWorker::DropScript(script_id));
                }
            }
        }
        if let Some((ShutdownMode::Drain(_), until)) = self.shutdown
            && Instant::now() >= until
        {
            self.begin_shutdown(ShutdownMode::Now);
        }
    }

    fn on_heartbeat_reply(&mut self, answer: longshore::Result<HeartbeatReply>) {
        self.heartbeat = None;
        let answer = match answer {
            Ok(answer) => answer,
            Err(Error::SessionGone(_)) => return self.on_session_lost(),
            Err(error) => return tracing::warn!(%error, "heartbeat to the store failed"),
        };
        for unit in answer.cancel {
            match self.scheduler.withdraw(unit) {
                Some(task) => {
                    self.release_script(task.data.script_id);
                    self.results.push(FinishRequest::new(task.lease, Outcome::Cancel), None);
                }
                None => {
                    if let Some(worker) = self.scheduler.holder(unit) {
                        self.send(worker, ToWorker::Cancel(vec![unit]));
                    }
                }
            }
        }
        for unit in answer.to_release {
            self.return_to_store(unit);
        }
    }

    fn return_to_store(&mut self, unit: UnitId) {
        if let Some(task) = self.scheduler.withdraw(unit) {
            self.release_script(task.data.script_id);
            self.results.push(FinishRequest::new(task.lease, Outcome::Interrupted), None);
        }
    }
}

fn unreadable_payload() -> Outcome {
    let message =
        format!("the payload is neither a script nor an item of an array of kind `{}`", script::KIND);
    Outcome::Fail(longshore::Failure::new("bad-input", message))
}

/// Awaits the next future if there is one, and never resolves otherwise.
pub(super) async fn next_or_pending<T>(futures: &mut FuturesUnordered<BoxFuture<'static, T>>) -> T {
    match futures.next().await {
        Some(done) => done,
        None => std::future::pending().await,
    }
}
