//! State that callers and workers of a pool share: the scheduler under its lock, the backend, the
//! counters.
//!
//! Each event is one decision of the scheduler under the lock. Its effects follow outside of the
//! lock.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Notify;

use crate::backend::{Crew, Isolation, Why};
use crate::call_state::{GivenUp, Reins};
use crate::detached_calls::Forgotten;
use crate::error::{ErrorKind, Fate, WorkerRef};
use crate::job::Job;
use crate::operation::Operation;
use crate::operation_registry::Known;
use crate::scheduler::{Cause, Counts, Next, Order, Submitted, Table, Ticket, WorkerId};
use crate::settings::{OnTimeout, Settings, WhenFull};
use crate::stats::Counters;
use crate::sync::{Mutex, MutexGuard, lock};

/// State that callers and workers share.
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    pub(crate) counters: Counters,
    pub(crate) known: Known,
    /// Waits for calls without a caller.
    pub(crate) forgotten: Forgotten,
    state: Mutex<State>,
    crew: Box<dyn Crew>,
    /// Wakes tasks that wait for a change of the workers.
    pub(crate) changed: Notify,
    /// Wakes the maintenance task before its time.
    pub(crate) tend: Notify,
}

struct State {
    table: Table<Job>,
    /// The error of the last failed start; `None` once a worker became ready.
    start_error: Option<ErrorKind>,
    /// Number of failed starts.
    start_failures: u64,
}

/// What happened to a submitted call.
pub(crate) enum Placed {
    /// A worker has it, or it waits under this ticket.
    Taken(Option<Ticket>),
    /// No worker can run it.
    Refused(Box<(Job, ErrorKind)>),
    /// The queue is full.
    Full {
        /// Calls in the queue.
        depth: usize,
    },
}

/// Result of the latest starts of workers.
pub(crate) struct Starts {
    pub(crate) error: Option<ErrorKind>,
    pub(crate) failures: u64,
}

impl Shared {
    pub(crate) fn new(name: String, settings: Settings, crew: Box<dyn Crew>) -> Self {
        let table = Table::new(settings.clone(), crew.isolation() == Isolation::Threads);
        let shared = Self {
            counters: Counters::new(&name),
            known: Known::new(&name),
            forgotten: Forgotten::new(),
            name,
            settings,
            state: Mutex::new(State { table, start_error: None, start_failures: 0 }),
            crew,
            changed: Notify::new(),
            tend: Notify::new(),
        };
        if let Some(operations) = shared.crew.operations() {
            shared.learn(operations);
        }
        shared
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Ends a decision of the scheduler: unlocks, and wakes the maintenance task if the scheduler
    /// requests it.
    fn decided(&self, mut state: MutexGuard<'_, State>) {
        debug_assert_eq!(state.table.fault(), None);
        let alarm = state.table.take_alarm();
        drop(state);
        if alarm {
            self.tend.notify_one();
        }
    }

    /// How far the program is isolated from the workers.
    pub(crate) fn isolation(&self) -> Isolation {
        self.crew.isolation()
    }

    /// A worker, as errors identify it.
    pub(crate) fn who(&self, id: WorkerId) -> Option<WorkerRef> {
        worker_ref(id, self.crew.pid(id))
    }

    /// Stores the operations that a worker reported.
    pub(crate) fn learn(&self, operations: Vec<Operation>) {
        self.known.learn(operations);
    }

    /// Submits a call.
    pub(crate) fn submit(self: &Arc<Self>, job: Job, when_full: WhenFull) -> Placed {
        let (now, priority) = (job.sent, job.priority);
        let mut state = self.state();
        let submitted = state.table.submit(job, priority, when_full, now);
        self.place(state, submitted)
    }

    fn place(self: &Arc<Self>, state: MutexGuard<'_, State>, submitted: Submitted<Job>) -> Placed {
        match submitted {
            Submitted::Given(id, job) => {
                self.decided(state);
                self.give(id, job);
                Placed::Taken(None)
            }
            Submitted::Queued(ticket, start) => {
                self.decided(state);
                start.into_iter().for_each(|id| self.crew.start(self, id));
                Placed::Taken(Some(ticket))
            }
            Submitted::Full(_) => {
                let depth = state.table.counts().queue;
                self.decided(state);
                Placed::Full { depth }
            }
            Submitted::Closing(job) => {
                self.decided(state);
                Placed::Refused(Box::new((job, ErrorKind::ShuttingDown)))
            }
            Submitted::Nobody(job) => {
                let why = state.start_error.clone().unwrap_or_else(not_yet);
                self.decided(state);
                Placed::Refused(Box::new((job, why)))
            }
        }
    }

    fn give(self: &Arc<Self>, id: WorkerId, job: Job) {
        if let Some(job) = self.begin(id, job) {
            return self.crew.give(self, id, job);
        }
        match self.passed_over(id) {
            Next::Take(job) => self.crew.give(self, id, job),
            Next::Leave(cause) => self.crew.end(self, id, cause),
            Next::Wait => {}
        }
    }

    /// Starts a call on a worker, unless it was cancelled or has timed out.
    fn begin(&self, id: WorkerId, job: Job) -> Option<Job> {
        let now = Instant::now();
        if job.deadline <= now {
            let after = job.limit();
            job.fail(ErrorKind::Timeout { after, fate: Fate::NotStarted }, None);
            return None;
        }
        let begun = job.reins.begin(id);
        if begun {
            job.span.record("worker", id);
            self.counters.wait.record(now.duration_since(job.sent));
        }
        begun.then_some(job)
    }

    /// A worker is ready. Returns its first action.
    pub(crate) fn ready(self: &Arc<Self>, id: WorkerId) -> Next<Job> {
        let mut state = self.state();
        state.start_error = None;
        let (next, order) = state.table.ready(id, Instant::now());
        self.decided(state);
        self.changed.notify_waiters();
        order.into_iter().for_each(|order| self.carry_out(order));
        self.begun(id, next)
    }

    /// A worker could not be started.
    pub(crate) fn start_failed(&self, id: WorkerId, error: ErrorKind) {
        let (pool, said) = (&self.name, "a worker could not be started");
        // Until a worker was ready, the error is returned to the caller that opens the pool.
        match self.known.list().is_empty() {
            true => tracing::debug!(%pool, worker = id, %error, "{said}"),
            false => tracing::warn!(%pool, worker = id, %error, "{said}"),
        }
        let mut state = self.state();
        let left = state.table.start_failed(id, Instant::now());
        state.fail(&error);
        self.decided(state);
        left.into_iter().for_each(|job| job.fail(error.clone(), None));
        self.changed.notify_waiters();
    }

    /// A worker has answered a call. Returns its next action.
    pub(crate) fn finished(self: &Arc<Self>, id: WorkerId) -> Next<Job> {
        let mut state = self.state();
        let next = state.table.finished(id, Instant::now());
        self.decided(state);
        self.begun(id, next)
    }

    /// The next action of a worker.
    pub(crate) fn next(self: &Arc<Self>, id: WorkerId) -> Next<Job> {
        let mut state = self.state();
        let next = state.table.next(id);
        self.decided(state);
        self.begun(id, next)
    }

    /// Skips calls that were cancelled meanwhile.
    fn begun(self: &Arc<Self>, id: WorkerId, mut next: Next<Job>) -> Next<Job> {
        while let Next::Take(job) = next {
            if let Some(job) = self.begin(id, job) {
                return Next::Take(job);
            }
            let mut state = self.state();
            next = state.table.passed_over(id, Instant::now());
            self.decided(state);
        }
        next
    }

    /// A worker skips a call that it was given. Returns its next action.
    pub(crate) fn passed_over(self: &Arc<Self>, id: WorkerId) -> Next<Job> {
        let mut state = self.state();
        let next = state.table.passed_over(id, Instant::now());
        self.decided(state);
        self.begun(id, next)
    }

    /// Another call for a busy worker that may prefetch some ([`Shared::set_prefetch`]).
    pub(crate) fn take_ahead(self: &Arc<Self>, id: WorkerId) -> Option<Job> {
        let mut state = self.state();
        let job = state.table.take_ahead(id);
        self.decided(state);
        match self.begun(id, Next::Take(job?)) {
            Next::Take(job) => Some(job),
            Next::Leave(cause) => {
                self.crew.end(self, id, cause);
                None
            }
            Next::Wait => None,
        }
    }

    /// A worker has ended, gracefully or not.
    pub(crate) fn gone(&self, id: WorkerId, cause: Cause) {
        tracing::debug!(pool = %self.name, worker = id, cause = cause.name(), "a worker ended");
        let mut state = self.state();
        let (left, useless) = state.table.gone(id, cause, Instant::now());
        // Under the lock, so that a reader sees both changes or none.
        self.counters.on_end(cause);
        let error = state.start_error.clone().unwrap_or_else(ended_at_once);
        if useless {
            state.fail(&error);
        }
        self.decided(state);
        left.into_iter().for_each(|job| job.fail(error.clone(), None));
        self.changed.notify_waiters();
    }

    /// Requeues a call that a worker had and never started.
    pub(crate) fn put_back(self: &Arc<Self>, job: Job) {
        if !job.reins.unbegin() {
            return;
        }
        let priority = job.priority;
        let mut state = self.state();
        let submitted = state.table.put_back(job, priority, Instant::now());
        if let Placed::Refused(refused) = self.place(state, submitted) {
            let (job, why) = *refused;
            job.fail(why, None);
        }
    }

    /// Requests that a worker is replaced.
    pub(crate) fn replace(&self, id: WorkerId, cause: Cause) {
        let mut state = self.state();
        state.table.replace(id, cause);
        self.decided(state);
    }

    /// Sets how many calls a worker may be given in addition to the running one.
    pub(crate) fn set_ahead(&self, id: WorkerId, ahead: usize) {
        self.state().table.set_ahead(id, ahead);
    }

    /// Marks a worker that is being killed: it gets no more calls, and closing does not wait for
    /// it.
    pub(crate) fn abandon(&self, id: WorkerId) {
        let mut state = self.state();
        state.table.abandon(id);
        self.decided(state);
        self.changed.notify_waiters();
    }

    /// Cancels a call: its deadline has passed, or its caller cancelled it. `None` if it is already
    /// answered.
    pub(crate) fn give_up(
        self: &Arc<Self>,
        ticket: Option<Ticket>,
        reins: &Arc<Reins>,
        deadline: Instant,
        why: Why,
    ) -> Option<Fate> {
        // Under the lock: a worker that answers at this moment has either done so before, or finds
        // itself abandoned when it asks for its next call.
        let mut state = self.state();
        let worker = match reins.give_up() {
            GivenUp::Answered => return None,
            GivenUp::Unbegun => {
                // If the job is on its way from the queue to a worker, that worker skips it.
                let job = ticket.and_then(|ticket| state.table.withdraw(ticket));
                self.decided(state);
                drop(job);
                return Some(Fate::NotStarted);
            }
            GivenUp::With(worker) => worker,
        };
        if self.isolation() != Isolation::Threads {
            drop(state);
            return Some(self.crew.give_up(self, worker, reins, why));
        }
        // A thread cannot be killed. It may be replaced, so that other calls do not wait for it.
        if self.settings.on_timeout == OnTimeout::Replace {
            let now = Instant::now();
            let when = if why == Why::TimedOut { now } else { deadline };
            state.table.unwanted(worker, when, now);
        }
        self.decided(state);
        self.changed.notify_waiters();
        Some(Fate::LeftRunning)
    }

    /// Drops a call that still waits for queue space, because its caller's future was dropped.
    /// Returns whether it did.
    pub(crate) fn leave_line(&self, ticket: Ticket) -> bool {
        let job = self.state().table.withdraw_from_line(ticket);
        job.is_some()
    }

    /// Runs maintenance. Returns when to run it again.
    pub(crate) fn tend_now(self: &Arc<Self>) -> Option<Instant> {
        let now = Instant::now();
        let mut state = self.state();
        let orders = state.table.tend(now);
        let late = orders.iter().any(|order| matches!(order, Order::Late(_)));
        let left = if late { state.late(&self.too_late(), now) } else { Vec::new() };
        let again = state.table.tend_at(now);
        self.decided(state);
        left.into_iter().for_each(|job| job.fail(self.too_late(), None));
        if late {
            self.changed.notify_waiters();
        }
        orders.into_iter().for_each(|order| self.carry_out(order));
        again
    }

    fn carry_out(self: &Arc<Self>, order: Order) {
        match order {
            Order::Start(id) => self.crew.start(self, id),
            Order::End(id, cause) => self.crew.end(self, id, cause),
            Order::Late(id) => {
                tracing::warn!(pool = %self.name, worker = id, "a worker takes too long to start");
            }
        }
    }

    /// Starts workers up to the maximum.
    pub(crate) fn fill(self: &Arc<Self>) {
        let mut state = self.state();
        let orders = state.table.fill(Instant::now());
        self.decided(state);
        orders.into_iter().for_each(|order| self.carry_out(order));
    }

    /// Changes the number of workers.
    pub(crate) fn resize(&self, min: usize, max: usize) {
        let mut state = self.state();
        state.table.resize(min, max);
        self.decided(state);
    }

    /// Closes the pool for new calls. Calls that wait for queue space are rejected.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        let line = state.table.close();
        self.decided(state);
        line.into_iter().for_each(|job| job.fail(ErrorKind::ShuttingDown, None));
        self.changed.notify_waiters();
    }

    /// Whether every worker has ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().table.is_empty()
    }

    /// Rejects all queued calls and kills the workers.
    pub(crate) fn kill_all(&self) {
        let left = self.state().table.clear();
        left.into_iter().for_each(|job| job.fail(ErrorKind::ShuttingDown, None));
        self.crew.kill_all();
    }

    /// How many workers and calls there are.
    pub(crate) fn counts(&self) -> Counts {
        self.state().table.counts()
    }

    /// The result of the latest starts of workers.
    pub(crate) fn starts(&self) -> Starts {
        let state = self.state();
        Starts { error: state.start_error.clone(), failures: state.start_failures }
    }

    fn too_late(&self) -> ErrorKind {
        let limit = self.settings.start_timeout;
        start_failed(format!("not ready within {limit:?}"))
    }
}

impl State {
    /// A worker takes too long to start. Returns the calls that no worker can run now.
    fn late(&mut self, error: &ErrorKind, now: Instant) -> Vec<Job> {
        self.fail(error);
        self.table.stranded(now)
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

fn not_yet() -> ErrorKind {
    start_failed("none is there, and none could be started a moment ago")
}

fn ended_at_once() -> ErrorKind {
    start_failed("it ended before its first call")
}
