//! State that callers and workers of a pool share: the scheduler under its lock, the backend, the
//! counters.
//!
//! Each event is one decision of the scheduler under the lock. Its effects follow outside of the
//! lock.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Notify;

use crate::backend::{Backend, CancelReason, Isolation};
use crate::call_state::{CallState, CancelResult};
use crate::detached_calls::DetachedCalls;
use crate::error::{CancelEffect, ErrorKind, WorkerRef};
use crate::job::Job;
use crate::operation::Operation;
use crate::operation_registry::OperationRegistry;
use crate::scheduler::{
    BackendCommand, CallAdmission, EndCause, NextAction, PoolCounts, Ticket, WorkerId, WorkerScheduler,
};
use crate::settings::{OnTimeout, PoolSettings, WhenQueueFull};
use crate::stats::PoolCounters;
use crate::suspects::SuspectCalls;
use crate::sync::{Mutex, MutexGuard, lock};

/// Bytes of a worker's standard error in a log line.
const MAX_LOGGED_STDERR: usize = 1_000;

/// State that callers and workers share.
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) settings: PoolSettings,
    pub(crate) counters: PoolCounters,
    pub(crate) registry: OperationRegistry,
    /// Calls that run alone on a worker.
    pub(crate) suspects: SuspectCalls,
    /// Waits for calls without a caller.
    pub(crate) detached: DetachedCalls,
    state: Mutex<State>,
    backend: Box<dyn Backend>,
    /// Wakes tasks that wait for a change of the workers.
    pub(crate) changed: Notify,
    /// Wakes the maintenance task before its time.
    pub(crate) maintenance_due: Notify,
}

struct State {
    scheduler: WorkerScheduler<Job>,
    /// The error of the last failed start; `None` once a worker became ready.
    start_error: Option<ErrorKind>,
    /// Number of failed starts.
    start_failures: u64,
}

/// What happened to a submitted call.
pub(crate) enum SubmitResult {
    /// A worker has it, or it waits under this ticket.
    Accepted(Option<Ticket>),
    /// No worker can run it.
    Rejected(Box<(Job, ErrorKind)>),
    /// The queue is full.
    Full {
        /// Calls in the queue.
        depth: usize,
    },
}

/// Result of the latest starts of workers.
pub(crate) struct StartStatus {
    pub(crate) error: Option<ErrorKind>,
    pub(crate) failures: u64,
}

impl Shared {
    pub(crate) fn new(name: String, settings: PoolSettings, backend: Box<dyn Backend>) -> Self {
        let scheduler = WorkerScheduler::new(settings.clone(), backend.isolation() == Isolation::Threads);
        let shared = Self {
            counters: PoolCounters::new(&name),
            registry: OperationRegistry::new(&name),
            suspects: SuspectCalls::default(),
            detached: DetachedCalls::new(),
            name,
            settings,
            state: Mutex::new(State { scheduler, start_error: None, start_failures: 0 }),
            backend,
            changed: Notify::new(),
            maintenance_due: Notify::new(),
        };
        if let Some(operations) = shared.backend.operations() {
            shared.register_operations(operations);
        }
        shared
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Ends a decision of the scheduler: unlocks, and wakes the maintenance task if the scheduler
    /// requests it.
    fn unlock(&self, mut state: MutexGuard<'_, State>) {
        debug_assert_eq!(state.scheduler.invariant_violation(), None);
        let maintenance_requested = state.scheduler.take_maintenance_request();
        drop(state);
        if maintenance_requested {
            self.maintenance_due.notify_one();
        }
    }

    /// How far the program is isolated from the workers.
    pub(crate) fn isolation(&self) -> Isolation {
        self.backend.isolation()
    }

    /// A worker, as errors identify it.
    pub(crate) fn describe_worker(&self, id: WorkerId) -> Option<WorkerRef> {
        worker_ref(id, self.backend.pid(id))
    }

    /// Stores the operations that a worker reported.
    pub(crate) fn register_operations(&self, operations: Vec<Operation>) {
        self.registry.update(operations);
    }

    /// Submits a call.
    pub(crate) fn submit(self: &Arc<Self>, job: Job, when_full: WhenQueueFull) -> SubmitResult {
        let (now, priority) = (job.sent, job.priority);
        let mut state = self.state();
        let admission = state.scheduler.submit(job, priority, when_full, now);
        self.finish_submit(state, admission)
    }

    fn finish_submit(
        self: &Arc<Self>,
        state: MutexGuard<'_, State>,
        admission: CallAdmission<Job>,
    ) -> SubmitResult {
        match admission {
            CallAdmission::Assigned(id, job) => {
                self.unlock(state);
                self.dispatch(id, job);
                SubmitResult::Accepted(None)
            }
            CallAdmission::Queued(ticket, start) => {
                self.unlock(state);
                start.into_iter().for_each(|id| self.backend.start(self, id));
                SubmitResult::Accepted(Some(ticket))
            }
            CallAdmission::Full(_) => {
                let depth = state.scheduler.counts().queue;
                self.unlock(state);
                SubmitResult::Full { depth }
            }
            CallAdmission::Closing(job) => {
                self.unlock(state);
                SubmitResult::Rejected(Box::new((job, ErrorKind::ShuttingDown)))
            }
            CallAdmission::NoWorker(job) => {
                let reason = state.start_error.clone().unwrap_or_else(no_worker_error);
                self.unlock(state);
                SubmitResult::Rejected(Box::new((job, reason)))
            }
        }
    }

    fn dispatch(self: &Arc<Self>, id: WorkerId, job: Job) {
        if let Some(job) = self.start_call(id, job) {
            return self.backend.dispatch(self, id, job);
        }
        match self.call_skipped(id) {
            NextAction::Run(job) => self.backend.dispatch(self, id, job),
            NextAction::Stop(cause) => self.backend.stop(self, id, cause),
            NextAction::Wait => {}
        }
    }

    /// Starts a call on a worker, unless it was cancelled or has timed out.
    fn start_call(&self, id: WorkerId, job: Job) -> Option<Job> {
        let now = Instant::now();
        if job.deadline <= now {
            let after = job.limit();
            job.fail(ErrorKind::Timeout { after, effect: CancelEffect::NotStarted }, None);
            return None;
        }
        let started = job.call_state.assign(id);
        if started {
            job.span.record("worker", id);
            self.counters.wait.record(now.duration_since(job.sent));
        }
        started.then_some(job)
    }

    /// A worker is ready. Returns its first action.
    pub(crate) fn ready(self: &Arc<Self>, id: WorkerId) -> NextAction<Job> {
        let mut state = self.state();
        state.start_error = None;
        let (next, command) = state.scheduler.ready(id, Instant::now());
        self.unlock(state);
        self.changed.notify_waiters();
        command.into_iter().for_each(|command| self.execute(command));
        self.start_next(id, next)
    }

    /// A worker could not be started.
    pub(crate) fn start_failed(&self, id: WorkerId, error: ErrorKind) {
        let (pool, message) = (&self.name, "a worker could not be started");
        let logged = error.clone().with_short_stderr(MAX_LOGGED_STDERR);
        // Until a worker was ready, the error is returned to the caller that opens the pool.
        match self.registry.list().is_empty() {
            true => tracing::debug!(%pool, worker = id, error = %logged, "{message}"),
            false => tracing::warn!(%pool, worker = id, error = %logged, "{message}"),
        }
        let mut state = self.state();
        let rejected = state.scheduler.start_failed(id, Instant::now());
        state.fail(&error);
        self.unlock(state);
        rejected.into_iter().for_each(|job| job.fail(error.clone(), None));
        self.changed.notify_waiters();
    }

    /// A worker has answered a call. Returns its next action.
    pub(crate) fn finished(self: &Arc<Self>, id: WorkerId) -> NextAction<Job> {
        let mut state = self.state();
        let next = state.scheduler.finished(id, Instant::now());
        self.unlock(state);
        self.start_next(id, next)
    }

    /// The next action of a worker.
    pub(crate) fn next(self: &Arc<Self>, id: WorkerId) -> NextAction<Job> {
        let mut state = self.state();
        let next = state.scheduler.next(id);
        self.unlock(state);
        self.start_next(id, next)
    }

    /// Skips calls that were cancelled meanwhile.
    fn start_next(self: &Arc<Self>, id: WorkerId, mut next: NextAction<Job>) -> NextAction<Job> {
        while let NextAction::Run(job) = next {
            if let Some(job) = self.start_call(id, job) {
                return NextAction::Run(job);
            }
            let mut state = self.state();
            next = state.scheduler.call_skipped(id, Instant::now());
            self.unlock(state);
        }
        next
    }

    /// A worker skips a call that it was given. Returns its next action.
    pub(crate) fn call_skipped(self: &Arc<Self>, id: WorkerId) -> NextAction<Job> {
        let mut state = self.state();
        let next = state.scheduler.call_skipped(id, Instant::now());
        self.unlock(state);
        self.start_next(id, next)
    }

    /// Another call for a busy worker that may prefetch some ([`Shared::set_prefetch`]).
    pub(crate) fn prefetch_next(self: &Arc<Self>, id: WorkerId) -> Option<Job> {
        let mut state = self.state();
        let job = state.scheduler.prefetch_next(id);
        self.unlock(state);
        match self.start_next(id, NextAction::Run(job?)) {
            NextAction::Run(job) => Some(job),
            NextAction::Stop(cause) => {
                self.backend.stop(self, id, cause);
                None
            }
            NextAction::Wait => None,
        }
    }

    /// A worker has ended, gracefully or not.
    pub(crate) fn worker_ended(&self, id: WorkerId, cause: EndCause) {
        tracing::debug!(pool = %self.name, worker = id, cause = cause.name(), "a worker ended");
        let mut state = self.state();
        let (rejected, failed_early) = state.scheduler.worker_ended(id, cause, Instant::now());
        // Under the lock, so that a reader sees both changes or none.
        self.counters.count_end(cause);
        let error = state.start_error.clone().unwrap_or_else(ended_before_first_call);
        if failed_early {
            state.fail(&error);
        }
        self.unlock(state);
        rejected.into_iter().for_each(|job| job.fail(error.clone(), None));
        self.changed.notify_waiters();
    }

    /// Requeues a call that a worker had and never started.
    pub(crate) fn requeue(self: &Arc<Self>, job: Job) {
        if !job.call_state.unassign() {
            return;
        }
        let priority = job.priority;
        let mut state = self.state();
        let admission = state.scheduler.requeue(job, priority, Instant::now());
        if let SubmitResult::Rejected(rejected) = self.finish_submit(state, admission) {
            let (job, reason) = *rejected;
            job.fail(reason, None);
        }
    }

    /// Requests that a worker is replaced.
    pub(crate) fn replace(&self, id: WorkerId, cause: EndCause) {
        let mut state = self.state();
        state.scheduler.replace(id, cause);
        self.unlock(state);
    }

    /// Sets how many calls a worker may be given in addition to the running one.
    pub(crate) fn set_prefetch(&self, id: WorkerId, prefetch: usize) {
        self.state().scheduler.set_prefetch(id, prefetch);
    }

    /// Sets how many calls a worker runs at once.
    pub(crate) fn set_concurrency(&self, id: WorkerId, concurrency: usize) {
        self.state().scheduler.set_concurrency(id, concurrency);
    }

    /// Lets a worker with a hanging call end its other calls beside a replacement. Returns `false` if
    /// too many workers do so: then it works on.
    pub(crate) fn drain(&self, id: WorkerId) -> bool {
        let mut state = self.state();
        let drains = state.scheduler.drain(id);
        self.unlock(state);
        drains
    }

    /// Marks a worker that is being killed: it gets no more calls, and no longer counts against
    /// `max`.
    pub(crate) fn abandon(&self, id: WorkerId) {
        let mut state = self.state();
        state.scheduler.abandon(id);
        self.unlock(state);
        self.changed.notify_waiters();
    }

    /// Cancels a call: its deadline has passed, or its caller cancelled it. `None` if it is already
    /// answered.
    pub(crate) fn cancel(
        self: &Arc<Self>,
        ticket: Option<Ticket>,
        call_state: &Arc<CallState>,
        deadline: Instant,
        reason: CancelReason,
    ) -> Option<CancelEffect> {
        // Under the lock: a worker that answers at this moment has either done so before, or finds
        // itself abandoned when it asks for its next call.
        let mut state = self.state();
        let worker = match call_state.cancel() {
            CancelResult::Answered => return None,
            CancelResult::NotStarted => {
                // If the job is on its way from the queue to a worker, that worker skips it.
                let job = ticket.and_then(|ticket| state.scheduler.withdraw(ticket));
                self.unlock(state);
                drop(job);
                return Some(CancelEffect::NotStarted);
            }
            CancelResult::Assigned(worker) => worker,
        };
        if self.isolation() != Isolation::Threads {
            drop(state);
            return Some(self.backend.cancel(self, worker, call_state, reason));
        }
        // A thread cannot be killed. It may be replaced, so that other calls do not wait for it.
        if self.settings.on_timeout == OnTimeout::Replace {
            let now = Instant::now();
            let when = if reason == CancelReason::Timeout { now } else { deadline };
            state.scheduler.schedule_abandon(worker, when, now);
        }
        self.unlock(state);
        self.changed.notify_waiters();
        Some(CancelEffect::LeftRunning)
    }

    /// Drops a call that still waits for queue space, because its caller's future was dropped.
    /// Returns whether it did.
    pub(crate) fn leave_overflow(&self, ticket: Ticket) -> bool {
        let job = self.state().scheduler.withdraw_from_overflow(ticket);
        job.is_some()
    }

    /// Runs maintenance. Returns when to run it again.
    pub(crate) fn run_maintenance(self: &Arc<Self>) -> Option<Instant> {
        let now = Instant::now();
        let mut state = self.state();
        let commands = state.scheduler.maintain(now);
        let slow_start = commands.iter().any(|command| matches!(command, BackendCommand::ReportSlowStart(_)));
        let rejected = if slow_start { state.fail_start(&self.slow_start_error(), now) } else { Vec::new() };
        let next = state.scheduler.next_maintenance(now);
        self.unlock(state);
        rejected.into_iter().for_each(|job| job.fail(self.slow_start_error(), None));
        if slow_start {
            self.changed.notify_waiters();
        }
        commands.into_iter().for_each(|command| self.execute(command));
        next
    }

    fn execute(self: &Arc<Self>, command: BackendCommand) {
        match command {
            BackendCommand::Start(id) => self.backend.start(self, id),
            BackendCommand::Stop(id, cause) => self.backend.stop(self, id, cause),
            BackendCommand::ReportSlowStart(id) => {
                tracing::warn!(pool = %self.name, worker = id, "a worker takes too long to start");
            }
        }
    }

    /// Starts workers up to the maximum.
    pub(crate) fn start_to_max(self: &Arc<Self>) {
        let mut state = self.state();
        let commands = state.scheduler.start_to_max(Instant::now());
        self.unlock(state);
        commands.into_iter().for_each(|command| self.execute(command));
    }

    /// Changes the number of workers.
    pub(crate) fn resize(&self, min: usize, max: usize) {
        let mut state = self.state();
        state.scheduler.resize(min, max);
        self.unlock(state);
    }

    /// Closes the pool for new calls. Calls that wait for queue space are rejected.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        let rejected = state.scheduler.close();
        self.unlock(state);
        rejected.into_iter().for_each(|job| job.fail(ErrorKind::ShuttingDown, None));
        self.changed.notify_waiters();
    }

    /// Whether every worker has ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().scheduler.is_empty()
    }

    /// Rejects all queued calls and kills the workers.
    pub(crate) fn kill_all(&self) {
        let rejected = self.state().scheduler.take_all_waiting();
        rejected.into_iter().for_each(|job| job.fail(ErrorKind::ShuttingDown, None));
        self.backend.kill_all();
    }

    /// How many workers and calls there are.
    pub(crate) fn counts(&self) -> PoolCounts {
        self.state().scheduler.counts()
    }

    /// The result of the latest starts of workers.
    pub(crate) fn starts(&self) -> StartStatus {
        let state = self.state();
        StartStatus { error: state.start_error.clone(), failures: state.start_failures }
    }

    fn slow_start_error(&self) -> ErrorKind {
        let limit = self.settings.start_timeout;
        start_failed(format!("not ready within {limit:?}"))
    }
}

impl State {
    /// A worker takes too long to start. Returns the calls that no worker can run now.
    fn fail_start(&mut self, error: &ErrorKind, now: Instant) -> Vec<Job> {
        self.fail(error);
        self.scheduler.take_unservable(now)
    }

    fn fail(&mut self, error: &ErrorKind) {
        self.start_error = Some(error.clone());
        self.start_failures += 1;
    }
}

/// A worker, as errors identify it.
pub(crate) fn worker_ref(id: WorkerId, pid: Option<u32>) -> Option<WorkerRef> {
    Some(WorkerRef { id, pid })
}

/// The error of a failed start.
pub(crate) fn start_failed(message: impl Into<String>) -> ErrorKind {
    ErrorKind::StartFailed { message: message.into(), stderr: String::new() }
}

fn no_worker_error() -> ErrorKind {
    start_failed("there is no worker, and the last start failed a moment ago")
}

fn ended_before_first_call() -> ErrorKind {
    start_failed("the worker ended before its first call")
}
