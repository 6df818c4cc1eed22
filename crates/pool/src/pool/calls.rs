//! Calls: of an operation, awaited or detached; of a closure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tracing::Instrument;

use super::WorkerPool;
use super::pending::Pending;
use crate::backend::Isolation;
use crate::error::{CallError, ErrorKind, Fate};
use crate::job::{Answer, Failure, Job, Turn, Work, error};
use crate::operation_registry::{CLOSURE, Entry};
use crate::options::CallOptions;
use crate::payload::Payload;
use crate::settings::WhenFull;
use crate::shared::Shared;
use crate::threads::words;

impl WorkerPool {
    /// Calls an operation and waits for its result.
    pub async fn call<A, R>(&self, operation: &str, arguments: &A) -> Result<R, CallError>
    where
        A: Serialize + ?Sized,
        R: DeserializeOwned,
    {
        self.call_with(operation, arguments, CallOptions::default()).await
    }

    /// Calls an operation and waits for its result, with options: timeout, priority, progress,
    /// cancellation.
    pub async fn call_with<A, R>(
        &self,
        operation: &str,
        arguments: &A,
        options: CallOptions,
    ) -> Result<R, CallError>
    where
        A: Serialize + ?Sized,
        R: DeserializeOwned,
    {
        let intent = Intent::new(&self.inner.shared, operation);
        let answer = match json(arguments) {
            Ok(arguments) => intent.answer(arguments, options).await,
            Err(failure) => Err(failure),
        };
        intent.counted(answer.and_then(|result| read(&result)))
    }

    /// Calls an operation with a raw payload and waits for its result.
    pub async fn call_raw(
        &self,
        operation: &str,
        arguments: Payload,
        options: CallOptions,
    ) -> Result<Payload, CallError> {
        let intent = Intent::new(&self.inner.shared, operation);
        let answer = intent.answer(arguments, options).await;
        intent.counted(answer)
    }

    /// Calls an operation and does not wait. Returns an error if the call cannot be queued: a full
    /// queue always rejects it. Later errors are logged and counted.
    pub fn call_forget<A>(&self, operation: &str, arguments: &A) -> Result<(), CallError>
    where
        A: Serialize + ?Sized,
    {
        let intent = Intent::new(&self.inner.shared, operation);
        let options = CallOptions::default().when_full(WhenFull::Refuse);
        let placed = json(arguments).and_then(|arguments| {
            let entry = intent.entry.as_ref().map_err(refusal)?.as_deref();
            intent.place(arguments, &options, entry, intent.deadline(&options, entry))
        });
        let pending = match placed {
            Ok(pending) => pending,
            Err(failure) => return intent.counted(Err(failure)),
        };
        let (shared, operation) = (Arc::clone(&self.inner.shared), operation.to_owned());
        let waits = pending.detach();
        intent.passed_on();
        let forgotten = async move {
            let intent = Intent::new(&shared, &operation);
            let answer = waits.attach(&shared).outcome(None, false).await;
            if let Err(error) = intent.counted(answer) {
                tracing::warn!(pool = %shared.name, operation, %error, "a detached call failed");
            }
        };
        self.inner.shared.forgotten.wait_for(forgotten);
        Ok(())
    }

    /// Runs a closure of this process on a worker thread. Pools of processes reject it.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        closure: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let shared = &self.inner.shared;
        let entry = Ok(Some(Arc::clone(&shared.known.closures)));
        let intent = Intent { shared, operation: CLOSURE, entry, counted: false };
        let answer = intent.run(closure).await;
        intent.counted(answer)
    }
}

/// A call from its request to its counted result.
struct Intent<'a> {
    shared: &'a Arc<Shared>,
    operation: &'a str,
    entry: Result<Option<Arc<Entry>>, ErrorKind>,
    counted: bool,
}

/// Counts the call as cancelled if the caller's future is dropped before the answer.
impl Drop for Intent<'_> {
    fn drop(&mut self) {
        if !self.counted {
            self.count(Some(&ErrorKind::Cancelled { fate: Fate::LeftRunning }));
        }
    }
}

impl<'a> Intent<'a> {
    fn new(shared: &'a Arc<Shared>, operation: &'a str) -> Self {
        Self { shared, operation, entry: shared.known.find(operation), counted: false }
    }

    async fn answer(&self, arguments: Payload, options: CallOptions) -> Answer {
        let entry = self.entry.as_ref().map_err(refusal)?.as_deref();
        let deadline = self.deadline(&options, entry);
        // If a worker dies, its call may have run or not. So only idempotent operations are
        // retried.
        let mortal = self.shared.isolation() != Isolation::Threads;
        let again =
            (mortal && entry.is_none_or(|entry| entry.idempotent)).then(|| arguments.clone());
        let answer = self.attempt(arguments, &options, entry, deadline).await;
        match (answer, again) {
            (Err((ErrorKind::WorkerDied { .. }, _)), Some(arguments))
                if self.shared.known.is_idempotent(self.operation) =>
            {
                tracing::debug!(pool = %self.shared.name, operation = self.operation, "retrying a call");
                self.attempt(arguments, &options, entry, deadline).await
            }
            (answer, _) => answer,
        }
    }

    async fn attempt(
        &self,
        arguments: Payload,
        options: &CallOptions,
        entry: Option<&Entry>,
        deadline: Deadline,
    ) -> Answer {
        let pending = self.place(arguments, options, entry, deadline)?;
        let span = pending.span();
        pending.outcome(options.cancel.clone(), options.cancel_on_drop).instrument(span).await
    }

    fn deadline(&self, options: &CallOptions, entry: Option<&Entry>) -> Deadline {
        let own = entry.and_then(|entry| entry.timeout);
        let limit = options.timeout.or(own).unwrap_or(self.shared.settings.timeout);
        Deadline::after(options.at_most.map_or(limit, |most| limit.min(most)))
    }

    fn place(
        &self,
        arguments: Payload,
        options: &CallOptions,
        entry: Option<&Entry>,
        deadline: Deadline,
    ) -> Result<Pending<'a, Payload>, Failure> {
        let (bytes, limit) = (arguments.as_bytes().len(), self.shared.settings.max_frame);
        if bytes > limit {
            return Err((ErrorKind::TooLarge { bytes, limit }, None));
        }
        let (reply, answer) = oneshot::channel();
        let job = Job {
            operation: entry.map_or_else(|| self.operation.into(), |entry| Arc::clone(&entry.name)),
            work: Work::Operation { arguments, reply },
            priority: options.priority,
            sent: deadline.from,
            deadline: deadline.at,
            reins: Arc::default(),
            progress: options.progress.clone(),
            span: self.span(),
        };
        let when_full = options.when_full.unwrap_or(self.shared.settings.when_full);
        Pending::place(self.shared, job, answer, when_full)
    }

    async fn run<T: Send + 'static>(
        &self,
        closure: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        if self.shared.isolation() != Isolation::Threads {
            let message = "closures run on threads of this process only".to_owned();
            return Err((ErrorKind::BadArguments { message }, None));
        }
        let (reply, answer) = oneshot::channel();
        let deadline = Deadline::after(self.shared.settings.timeout);
        let job = Job {
            operation: Arc::clone(&self.shared.known.closures.name),
            work: Work::Closure(Box::new(move |turn| answer_with(closure, reply, turn))),
            priority: CallOptions::default().priority,
            sent: deadline.from,
            deadline: deadline.at,
            reins: Arc::default(),
            progress: None,
            span: self.span(),
        };
        let pending = Pending::place(self.shared, job, answer, self.shared.settings.when_full)?;
        let span = pending.span();
        pending.outcome(None, false).instrument(span).await
    }

    fn span(&self) -> tracing::Span {
        let worker = tracing::field::Empty;
        tracing::debug_span!(
            "pool_call", pool = %self.shared.name, operation = self.operation, worker
        )
    }

    /// Counts the call's outcome.
    fn counted<T>(mut self, answer: Result<T, Failure>) -> Result<T, CallError> {
        self.count(answer.as_ref().err().map(|(kind, _)| kind));
        answer.map_err(|(kind, worker)| error(&self.shared.name, self.operation, kind, worker))
    }
}

impl Intent<'_> {
    /// Leaves counting to the detached task.
    fn passed_on(mut self) {
        self.counted = true;
    }

    fn count(&mut self, kind: Option<&ErrorKind>) {
        self.counted = true;
        self.shared.counters.calls.count(kind);
        match &self.entry {
            Ok(Some(entry)) => entry.count(kind),
            _ => self.shared.known.count_unknown(kind),
        }
    }
}

/// Start and deadline of a call.
#[derive(Clone, Copy)]
struct Deadline {
    from: Instant,
    at: Instant,
}

/// Upper limit for timeouts, so that adding one to a clock's reading cannot overflow.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl Deadline {
    fn after(limit: Duration) -> Self {
        let from = Instant::now();
        Self { from, at: from + limit.min(FOR_EVER) }
    }
}

fn refusal(kind: &ErrorKind) -> Failure {
    (kind.clone(), None)
}

fn json<A: Serialize + ?Sized>(arguments: &A) -> Result<Payload, Failure> {
    Payload::json(arguments)
        .map_err(|cause| (ErrorKind::BadArguments { message: cause.to_string() }, None))
}

fn read<R: DeserializeOwned>(result: &Payload) -> Result<R, Failure> {
    result.read().map_err(|cause| (ErrorKind::BadResult { message: cause.to_string() }, None))
}

/// Runs or fails a closure on a worker thread.
fn answer_with<T>(
    closure: impl FnOnce() -> T,
    reply: oneshot::Sender<Result<T, Failure>>,
    turn: Turn<'_>,
) {
    let done = match turn {
        Turn::Run(done) => done,
        Turn::Fail(failure) => {
            harmless(|| drop(closure));
            return drop(reply.send(Err(failure)));
        }
    };
    let result = catch_unwind(AssertUnwindSafe(closure));
    if done(result.is_ok()) {
        let panicked = |message| (ErrorKind::Panic { message }, None);
        let answer = result.map_err(|panic| panicked(words(&*panic)));
        harmless(|| drop(reply.send(answer)));
    }
}

/// Drops a caller's value, and catches a panic of its destructor: it must not cost a worker.
fn harmless(drops: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(drops));
}
