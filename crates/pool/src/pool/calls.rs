//! Calls: of an operation, awaited or detached; of a closure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tracing::Instrument;

use super::WorkerPool;
use super::pending::PendingCall;
use crate::backend::Isolation;
use crate::call_options::CallOptions;
use crate::error::{CallError, CancelEffect, ErrorKind};
use crate::job::{CallFailure, CallResult, ClosureCommand, Job, Work, call_error};
use crate::operation_registry::{CLOSURE, OperationEntry};
use crate::payload::CallPayload;
use crate::settings::WhenQueueFull;
use crate::shared::Shared;
use crate::threads::panic_message;

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
        let request = CallRequest::new(&self.inner.shared, operation);
        let answer = match encode_arguments(arguments) {
            Ok(arguments) => request.execute(arguments, options).await,
            Err(failure) => Err(failure),
        };
        request.record(answer.and_then(|result| decode_result(&result)))
    }

    /// Calls an operation with a raw payload and waits for its result.
    pub async fn call_raw(
        &self,
        operation: &str,
        arguments: CallPayload,
        options: CallOptions,
    ) -> Result<CallPayload, CallError> {
        let request = CallRequest::new(&self.inner.shared, operation);
        let answer = request.execute(arguments, options).await;
        request.record(answer)
    }

    /// Calls an operation and does not wait. Returns an error if the call cannot be queued: a full
    /// queue always rejects it. Later errors are logged and counted.
    pub fn call_detached<A>(&self, operation: &str, arguments: &A) -> Result<(), CallError>
    where
        A: Serialize + ?Sized,
    {
        let request = CallRequest::new(&self.inner.shared, operation);
        let options = CallOptions::default().when_full(WhenQueueFull::Refuse);
        let submitted = encode_arguments(arguments).and_then(|arguments| {
            let entry = request.entry.as_ref().map_err(Clone::clone)?.as_deref();
            request.submit(arguments, &options, entry, request.deadline(&options, entry))
        });
        let pending = match submitted {
            Ok(pending) => pending,
            Err(failure) => return request.record(Err(failure)),
        };
        let (shared, operation) = (Arc::clone(&self.inner.shared), operation.to_owned());
        let waiter = pending.detach();
        request.skip_counting();
        let detached = async move {
            let request = CallRequest::new(&shared, &operation);
            let answer = waiter.attach(&shared).wait(None, false).await;
            if let Err(error) = request.record(answer) {
                tracing::warn!(pool = %shared.name, operation, %error, "a detached call failed");
            }
        };
        self.inner.shared.detached.spawn(detached);
        Ok(())
    }

    /// Runs a closure of this process on a worker thread. Pools of processes reject it.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        closure: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let shared = &self.inner.shared;
        let entry = Ok(Some(Arc::clone(&shared.registry.closures)));
        let request = CallRequest { shared, operation: CLOSURE, entry, counted: false };
        let answer = request.run(closure).await;
        request.record(answer)
    }
}

/// A call from its request to its counted result.
struct CallRequest<'a> {
    shared: &'a Arc<Shared>,
    operation: &'a str,
    entry: Result<Option<Arc<OperationEntry>>, ErrorKind>,
    counted: bool,
}

/// Counts the call as cancelled if the caller's future is dropped before the answer.
impl Drop for CallRequest<'_> {
    fn drop(&mut self) {
        if !self.counted {
            self.count(Some(&ErrorKind::Cancelled { effect: CancelEffect::LeftRunning }));
        }
    }
}

impl<'a> CallRequest<'a> {
    fn new(shared: &'a Arc<Shared>, operation: &'a str) -> Self {
        Self { shared, operation, entry: shared.registry.find(operation), counted: false }
    }

    async fn execute(&self, arguments: CallPayload, options: CallOptions) -> CallResult {
        let entry = self.entry.as_ref().map_err(Clone::clone)?.as_deref();
        let deadline = self.deadline(&options, entry);
        // If a worker dies, its call may have run or not. So only idempotent operations are
        // retried. Which these are may be unknown until the first worker is up: checked again then.
        let can_die = self.shared.isolation() != Isolation::Threads;
        let retry_arguments =
            (can_die && entry.is_none_or(|entry| entry.idempotent)).then(|| arguments.clone());
        let answer = self.attempt(arguments, &options, entry, deadline).await;
        match (answer, retry_arguments) {
            (
                Err(CallFailure { kind: ErrorKind::WorkerDied { .. } | ErrorKind::Interrupted, .. }),
                Some(arguments),
            ) if self.shared.registry.is_idempotent(self.operation) => {
                tracing::debug!(pool = %self.shared.name, operation = self.operation, "retrying a call");
                self.attempt(arguments, &options, entry, deadline).await
            }
            (answer, _) => answer,
        }
    }

    async fn attempt(
        &self,
        arguments: CallPayload,
        options: &CallOptions,
        entry: Option<&OperationEntry>,
        deadline: CallDeadline,
    ) -> CallResult {
        let pending = self.submit(arguments, options, entry, deadline)?;
        let span = pending.span();
        pending.wait(options.cancel.clone(), options.cancel_on_drop).instrument(span).await
    }

    fn deadline(&self, options: &CallOptions, entry: Option<&OperationEntry>) -> CallDeadline {
        let own = entry.and_then(|entry| entry.timeout);
        let limit = options.timeout.or(own).unwrap_or(self.shared.settings.timeout);
        CallDeadline::after(options.at_most.map_or(limit, |most| limit.min(most)))
    }

    fn submit(
        &self,
        arguments: CallPayload,
        options: &CallOptions,
        entry: Option<&OperationEntry>,
        deadline: CallDeadline,
    ) -> Result<PendingCall<'a, CallPayload>, CallFailure> {
        let (bytes, limit) = (arguments.as_bytes().len(), self.shared.settings.max_frame);
        if bytes > limit {
            return Err(ErrorKind::TooLarge { bytes, limit }.into());
        }
        let (reply, answer) = oneshot::channel();
        let job = self.job(Work::Operation { arguments, reply }, options, entry, deadline);
        let when_full = options.when_full.unwrap_or(self.shared.settings.when_full);
        PendingCall::submit(self.shared, job, answer, when_full)
    }

    fn job(
        &self,
        work: Work,
        options: &CallOptions,
        entry: Option<&OperationEntry>,
        deadline: CallDeadline,
    ) -> Job {
        let worker = tracing::field::Empty;
        let isolated = match &work {
            Work::Operation { arguments, .. } => self.shared.suspects.contains(self.operation, arguments),
            Work::Closure(_) => false,
        };
        Job {
            operation: entry.map_or_else(|| self.operation.into(), |entry| Arc::clone(&entry.name)),
            work,
            priority: options.priority,
            sent: deadline.from,
            deadline: deadline.at,
            call_state: Arc::default(),
            isolated,
            progress: options.progress.clone(),
            span: tracing::debug_span!(
                "pool_call", pool = %self.shared.name, operation = self.operation, worker
            ),
        }
    }

    async fn run<T: Send + 'static>(
        &self,
        closure: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallFailure> {
        if self.shared.isolation() != Isolation::Threads {
            let message = "closures run on threads of this process only".to_owned();
            return Err(ErrorKind::BadArguments { message }.into());
        }
        let (reply, answer) = oneshot::channel();
        let work = Work::Closure(Box::new(move |command| run_closure(closure, reply, command)));
        let entry = Some(&*self.shared.registry.closures);
        let deadline = CallDeadline::after(self.shared.settings.timeout);
        let job = self.job(work, &CallOptions::default(), entry, deadline);
        let pending = PendingCall::submit(self.shared, job, answer, self.shared.settings.when_full)?;
        let span = pending.span();
        pending.wait(None, false).instrument(span).await
    }

    /// Counts the call's outcome.
    fn record<T>(mut self, answer: Result<T, CallFailure>) -> Result<T, CallError> {
        self.count(answer.as_ref().err().map(|failure| &failure.kind));
        answer.map_err(|CallFailure { kind, worker }| {
            call_error(&self.shared.name, self.operation, kind, worker)
        })
    }
}

impl CallRequest<'_> {
    /// Leaves counting to the detached task.
    fn skip_counting(mut self) {
        self.counted = true;
    }

    fn count(&mut self, kind: Option<&ErrorKind>) {
        self.counted = true;
        self.shared.counters.calls.count(kind);
        match &self.entry {
            Ok(Some(entry)) => entry.count(kind),
            _ => self.shared.registry.count_unknown(kind),
        }
    }
}

/// Start and deadline of a call.
#[derive(Clone, Copy)]
struct CallDeadline {
    from: Instant,
    at: Instant,
}

/// Upper limit for timeouts, so that adding one to a clock's reading cannot overflow.
const MAX_TIMEOUT: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl CallDeadline {
    fn after(limit: Duration) -> Self {
        let from = Instant::now();
        Self { from, at: from + limit.min(MAX_TIMEOUT) }
    }
}

fn encode_arguments<A: Serialize + ?Sized>(arguments: &A) -> Result<CallPayload, CallFailure> {
    CallPayload::json(arguments)
        .map_err(|cause| ErrorKind::BadArguments { message: cause.to_string() }.into())
}

fn decode_result<R: DeserializeOwned>(result: &CallPayload) -> Result<R, CallFailure> {
    result.read().map_err(|cause| ErrorKind::BadResult { message: cause.to_string() }.into())
}

/// Runs or fails a closure on a worker thread.
fn run_closure<T>(
    closure: impl FnOnce() -> T,
    reply: oneshot::Sender<Result<T, CallFailure>>,
    command: ClosureCommand<'_>,
) {
    let done = match command {
        ClosureCommand::Run(done) => done,
        ClosureCommand::Fail(failure) => {
            catch_drop_panic(|| drop(closure));
            return drop(reply.send(Err(failure)));
        }
    };
    let result = catch_unwind(AssertUnwindSafe(closure));
    if done(result.is_ok()) {
        let answer = result.map_err(|panic| ErrorKind::Panic { message: panic_message(&*panic) }.into());
        catch_drop_panic(|| drop(reply.send(answer)));
    }
}

/// Drops a caller's value, and catches a panic of its destructor: it must not cost a worker.
fn catch_drop_panic(drops: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(drops));
}
