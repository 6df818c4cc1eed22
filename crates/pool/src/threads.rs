//! Workers that are threads: the cheapest calls, but no protection from a crash.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crate::backend::{Backend, CancelReason, Isolation};
use crate::call_state::CallState;
use crate::error::{CancelEffect, ErrorKind, OperationError};
use crate::job::{CallFailure, CallResult, ClosureCommand, Job, Work};
use crate::operation::{Operation, OperationSet, Operator};
use crate::payload::CallPayload;
use crate::scheduler::{EndCause, NextAction, WorkerId};
use crate::shared::{Shared, start_failed, worker_ref};
use crate::sync::{Condvar, Mutex, lock, thread};

/// Runs workers as threads.
pub(crate) struct Threads {
    operations: Arc<dyn OperationSet>,
    handoffs: Arc<HandoffSlots>,
}

type HandoffSlots = Mutex<HashMap<WorkerId, Arc<HandoffSlot>>>;

/// Hands a thread its next call.
#[derive(Default)]
struct HandoffSlot {
    message: Mutex<Option<WorkerMessage>>,
    arrived: Condvar,
}

enum WorkerMessage {
    Job(Job),
    Stop(EndCause),
    /// Ask the scheduler what to do.
    Poll,
}

impl HandoffSlot {
    fn put(&self, message: WorkerMessage) {
        *lock(&self.message) = Some(message);
        self.arrived.notify_one();
    }

    /// Wakes a waiting worker. A message that is already there is kept.
    fn wake(&self) {
        lock(&self.message).get_or_insert(WorkerMessage::Poll);
        self.arrived.notify_one();
    }

    fn take(&self) -> WorkerMessage {
        let mut message = lock(&self.message);
        loop {
            if let Some(message) = message.take() {
                return message;
            }
            message = self.arrived.wait(message).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

impl Threads {
    pub(crate) fn new(operations: Arc<dyn OperationSet>) -> Self {
        Self { operations, handoffs: Arc::default() }
    }

    fn handoff(&self, id: WorkerId) -> Option<Arc<HandoffSlot>> {
        lock(&self.handoffs).get(&id).cloned()
    }
}

impl Backend for Threads {
    fn start(&self, shared: &Arc<Shared>, id: WorkerId) {
        let handoff = Arc::new(HandoffSlot::default());
        lock(&self.handoffs).insert(id, Arc::clone(&handoff));
        let worker =
            ThreadWorker { shared: Arc::clone(shared), id, handoff, handoffs: Arc::clone(&self.handoffs) };
        let operations = Arc::clone(&self.operations);
        let thread = thread::Builder::new().name(format!("{}-{id}", shared.name));
        if let Err(error) = thread.spawn(move || worker.run_thread(&*operations)) {
            lock(&self.handoffs).remove(&id);
            shared.start_failed(id, start_failed(format!("no thread: {error}")));
        }
    }

    fn dispatch(&self, _: &Arc<Shared>, id: WorkerId, job: Job) {
        if let Some(handoff) = self.handoff(id) {
            handoff.put(WorkerMessage::Job(job));
        }
    }

    fn stop(&self, _: &Arc<Shared>, id: WorkerId, cause: EndCause) {
        if let Some(handoff) = self.handoff(id) {
            handoff.put(WorkerMessage::Stop(cause));
        }
    }

    fn cancel(&self, _: &Arc<Shared>, _: WorkerId, _: &Arc<CallState>, _: CancelReason) -> CancelEffect {
        CancelEffect::LeftRunning
    }

    /// Wakes all waiting threads, so that they end, since the pool is closing. A thread with a call
    /// ends after it: threads cannot be killed.
    fn kill_all(&self) {
        let handoffs: Vec<_> = lock(&self.handoffs).values().cloned().collect();
        handoffs.iter().for_each(|handoff| handoff.wake());
    }

    fn isolation(&self) -> Isolation {
        Isolation::Threads
    }

    fn operations(&self) -> Option<Vec<Operation>> {
        Some(self.operations.list())
    }
}

/// One worker thread.
struct ThreadWorker {
    shared: Arc<Shared>,
    id: WorkerId,
    handoff: Arc<HandoffSlot>,
    handoffs: Arc<HandoffSlots>,
}

impl ThreadWorker {
    fn run_thread(self, operations: &dyn OperationSet) {
        let opened = catch_unwind(AssertUnwindSafe(|| operations.open()));
        let mut operator = match opened {
            Ok(Ok(operator)) => operator,
            Ok(Err(error)) => return self.cannot_start(error.to_string()),
            Err(panic) => return self.cannot_start(panic_message(&*panic)),
        };
        // Panics of operations are caught where they run. Any other panic is reported to the
        // scheduler.
        let worked = catch_unwind(AssertUnwindSafe(|| self.work(&mut *operator)));
        let cause = worked.unwrap_or(EndCause::Panic);
        // After a panic the operator's state may be broken, so it is not used again.
        if cause != EndCause::Panic {
            let _ = catch_unwind(AssertUnwindSafe(|| operator.close()));
        }
        drop(catch_unwind(AssertUnwindSafe(move || drop(operator))));
        lock(&self.handoffs).remove(&self.id);
        self.shared.worker_ended(self.id, cause);
    }

    fn cannot_start(&self, message: String) {
        lock(&self.handoffs).remove(&self.id);
        self.shared.start_failed(self.id, start_failed(message));
    }

    /// Runs calls until there is a reason to stop.
    fn work(&self, operator: &mut dyn Operator) -> EndCause {
        let mut next = self.shared.ready(self.id);
        loop {
            let job = match next {
                NextAction::Run(job) => job,
                NextAction::Stop(cause) => return cause,
                NextAction::Wait => match self.handoff.take() {
                    WorkerMessage::Job(job) => job,
                    WorkerMessage::Stop(cause) => return cause,
                    WorkerMessage::Poll => {
                        next = self.shared.next(self.id);
                        continue;
                    }
                },
            };
            next = match self.run(operator, job) {
                Some(next) => next,
                None => return EndCause::Panic,
            };
        }
    }

    /// Runs a call. Returns the next action, unless the call panicked.
    ///
    /// The worker asks for its next call before it sends the answer, so that a caller that calls
    /// again at once finds it idle and awake.
    fn run(&self, operator: &mut dyn Operator, mut job: Job) -> Option<NextAction<Job>> {
        let start = Instant::now();
        let span = job.span.clone();
        let _inside = span.enter();
        let call_state = Arc::clone(&job.call_state);
        let mut next = None;
        let mut done = |succeeded: bool| {
            self.shared.counters.run.record(start.elapsed());
            let settled = call_state.settle();
            next = succeeded.then(|| self.shared.finished(self.id));
            settled
        };
        let arguments = match job.work {
            Work::Closure(closure) => {
                closure(ClosureCommand::Run(&mut done));
                return next;
            }
            Work::Operation { ref mut arguments, .. } => std::mem::replace(arguments, CallPayload::null()),
        };
        let call = job.call();
        let performed = catch_unwind(AssertUnwindSafe(|| operator.perform(&call, arguments)));
        if done(performed.is_ok()) {
            job.send(self.to_result(performed));
        }
        next
    }

    fn to_result(&self, performed: std::thread::Result<Result<CallPayload, OperationError>>) -> CallResult {
        let limit = self.shared.settings.max_frame;
        let kind = match performed {
            Ok(Ok(result)) if result.as_bytes().len() <= limit => return Ok(result),
            Ok(Ok(result)) => ErrorKind::TooLarge { bytes: result.as_bytes().len(), limit },
            Ok(Err(OperationError(kind))) => kind,
            Err(panic) => ErrorKind::Panic { message: panic_message(&*panic) },
        };
        Err(CallFailure { kind, worker: worker_ref(self.id, None) })
    }
}

/// The message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "unknown panic".to_owned())
}
