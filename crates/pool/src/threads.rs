//! Workers that are threads: the cheapest calls, but no protection from a crash.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crate::backend::{Crew, Isolation, Why};
use crate::call_state::Reins;
use crate::error::{ErrorKind, Fate, OperationError};
use crate::job::{Answer, Job, Turn, Work};
use crate::operation::{Operation, OperationSet, Operator};
use crate::payload::Payload;
use crate::scheduler::{Cause, Next, WorkerId};
use crate::shared::{Shared, start_failed, worker_ref};
use crate::sync::{Condvar, Mutex, lock, thread};

/// Runs workers as threads.
pub(crate) struct Threads {
    operations: Arc<dyn OperationSet>,
    mailboxes: Arc<Mailboxes>,
}

type Mailboxes = Mutex<HashMap<WorkerId, Arc<Mailbox>>>;

/// Hands a thread its next call.
#[derive(Default)]
struct Mailbox {
    letter: Mutex<Option<Letter>>,
    arrived: Condvar,
}

enum Letter {
    Job(Job),
    End(Cause),
    /// Ask the scheduler what to do.
    Ask,
}

impl Mailbox {
    fn put(&self, letter: Letter) {
        *lock(&self.letter) = Some(letter);
        self.arrived.notify_one();
    }

    /// Wakes a waiting worker. A message that is already there is kept.
    fn nudge(&self) {
        lock(&self.letter).get_or_insert(Letter::Ask);
        self.arrived.notify_one();
    }

    fn take(&self) -> Letter {
        let mut letter = lock(&self.letter);
        loop {
            if let Some(letter) = letter.take() {
                return letter;
            }
            letter = self.arrived.wait(letter).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

impl Threads {
    pub(crate) fn new(operations: Arc<dyn OperationSet>) -> Self {
        Self { operations, mailboxes: Arc::default() }
    }

    fn mailbox(&self, id: WorkerId) -> Option<Arc<Mailbox>> {
        lock(&self.mailboxes).get(&id).cloned()
    }
}

impl Crew for Threads {
    fn start(&self, shared: &Arc<Shared>, id: WorkerId) {
        let mailbox = Arc::new(Mailbox::default());
        lock(&self.mailboxes).insert(id, Arc::clone(&mailbox));
        let worker = Worker {
            shared: Arc::clone(shared),
            id,
            mailbox,
            mailboxes: Arc::clone(&self.mailboxes),
        };
        let operations = Arc::clone(&self.operations);
        let thread = thread::Builder::new().name(format!("{}-{id}", shared.name));
        if let Err(error) = thread.spawn(move || worker.live(&*operations)) {
            lock(&self.mailboxes).remove(&id);
            shared.start_failed(id, start_failed(format!("no thread: {error}")));
        }
    }

    fn give(&self, _: &Arc<Shared>, id: WorkerId, job: Job) {
        if let Some(mailbox) = self.mailbox(id) {
            mailbox.put(Letter::Job(job));
        }
    }

    fn end(&self, _: &Arc<Shared>, id: WorkerId, cause: Cause) {
        if let Some(mailbox) = self.mailbox(id) {
            mailbox.put(Letter::End(cause));
        }
    }

    fn give_up(&self, _: &Arc<Shared>, _: WorkerId, _: &Arc<Reins>, _: Why) -> Fate {
        Fate::LeftRunning
    }

    /// Wakes all waiting threads, so that they end, since the pool is closing. A thread with a call
    /// ends after it: threads cannot be killed.
    fn kill_all(&self) {
        let mailboxes: Vec<_> = lock(&self.mailboxes).values().cloned().collect();
        mailboxes.iter().for_each(|mailbox| mailbox.nudge());
    }

    fn isolation(&self) -> Isolation {
        Isolation::Threads
    }

    fn operations(&self) -> Option<Vec<Operation>> {
        Some(self.operations.list())
    }
}

/// One worker thread.
struct Worker {
    shared: Arc<Shared>,
    id: WorkerId,
    mailbox: Arc<Mailbox>,
    mailboxes: Arc<Mailboxes>,
}

impl Worker {
    fn live(self, operations: &dyn OperationSet) {
        let opened = catch_unwind(AssertUnwindSafe(|| operations.open()));
        let mut operator = match opened {
            Ok(Ok(operator)) => operator,
            Ok(Err(error)) => return self.cannot_start(error.to_string()),
            Err(panic) => return self.cannot_start(words(&*panic)),
        };
        // Panics of operations are caught where they run. Any other panic is reported to the
        // scheduler.
        let worked = catch_unwind(AssertUnwindSafe(|| self.work(&mut *operator)));
        let cause = worked.unwrap_or(Cause::Panic);
        // After a panic the operator's state may be broken, so it is not used again.
        if cause != Cause::Panic {
            let _ = catch_unwind(AssertUnwindSafe(|| operator.close()));
        }
        drop(catch_unwind(AssertUnwindSafe(move || drop(operator))));
        lock(&self.mailboxes).remove(&self.id);
        self.shared.gone(self.id, cause);
    }

    fn cannot_start(&self, message: String) {
        lock(&self.mailboxes).remove(&self.id);
        self.shared.start_failed(self.id, start_failed(message));
    }

    /// Runs calls until there is a reason to stop.
    fn work(&self, operator: &mut dyn Operator) -> Cause {
        let mut next = self.shared.ready(self.id);
        loop {
            let job = match next {
                Next::Take(job) => job,
                Next::Leave(cause) => return cause,
                Next::Wait => match self.mailbox.take() {
                    Letter::Job(job) => job,
                    Letter::End(cause) => return cause,
                    Letter::Ask => {
                        next = self.shared.next(self.id);
                        continue;
                    }
                },
            };
            next = match self.run(operator, job) {
                Some(next) => next,
                None => return Cause::Panic,
            };
        }
    }

    /// Runs a call. Returns the next action, unless the call panicked.
    ///
    /// The worker asks for its next call before it sends the answer, so that a caller that calls
    /// again at once finds it idle and awake.
    fn run(&self, operator: &mut dyn Operator, mut job: Job) -> Option<Next<Job>> {
        let start = Instant::now();
        let span = job.span.clone();
        let _inside = span.enter();
        let reins = Arc::clone(&job.reins);
        let mut next = None;
        let mut done = |sound: bool| {
            self.shared.counters.run.record(start.elapsed());
            let settled = reins.settle();
            next = sound.then(|| self.shared.finished(self.id));
            settled
        };
        let arguments = match job.work {
            Work::Closure(closure) => {
                closure(Turn::Run(&mut done));
                return next;
            }
            Work::Operation { ref mut arguments, .. } => {
                std::mem::replace(arguments, Payload::null())
            }
        };
        let call = job.call();
        let performed = catch_unwind(AssertUnwindSafe(|| operator.perform(&call, arguments)));
        if done(performed.is_ok()) {
            job.send(self.checked(performed));
        }
        next
    }

    fn checked(&self, performed: std::thread::Result<Result<Payload, OperationError>>) -> Answer {
        let limit = self.shared.settings.max_frame;
        let kind = match performed {
            Ok(Ok(result)) if result.as_bytes().len() <= limit => return Ok(result),
            Ok(Ok(result)) => ErrorKind::TooLarge { bytes: result.as_bytes().len(), limit },
            Ok(Err(OperationError(kind))) => kind,
            Err(panic) => ErrorKind::Panic { message: words(&*panic) },
        };
        Err((kind, worker_ref(self.id, None)))
    }
}

/// The message of a panic.
pub(crate) fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without words".to_owned())
}
