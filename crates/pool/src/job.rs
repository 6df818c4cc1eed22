//! A call on its way through the pool: queued, given to a worker, answered exactly once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use crate::call::PoolCall;
use crate::call_state::CallState;
use crate::error::{CallError, ErrorKind, WorkerRef};
use crate::payload::CallPayload;
use crate::scheduler::ScheduledCall;

/// A call on its way through the pool. Its holder must answer it. If a job is dropped, its caller
/// gets the error that the pool is shutting down.
pub(crate) struct Job {
    pub(crate) operation: Arc<str>,
    pub(crate) work: Work,
    /// Smaller goes first; among equals, first in, first out.
    pub(crate) priority: u8,
    pub(crate) sent: Instant,
    pub(crate) deadline: Instant,
    pub(crate) call_state: Arc<CallState>,
    /// It may block a worker, so it shares its worker with no other call.
    pub(crate) isolated: bool,
    pub(crate) progress: Option<mpsc::Sender<CallPayload>>,
    /// The span of the call in the log.
    pub(crate) span: tracing::Span,
}

/// What the worker runs.
pub(crate) enum Work {
    /// An operation by name.
    Operation { arguments: CallPayload, reply: oneshot::Sender<CallResult> },
    /// A closure of this process, for threads only.
    Closure(Closure),
}

/// A closure that answers its caller itself.
pub(crate) type Closure = Box<dyn FnOnce(ClosureCommand<'_>) + Send>;

/// What a closure is told to do.
pub(crate) enum ClosureCommand<'a> {
    /// Run, then report whether it ran without a panic. If the report returns true, send the
    /// answer.
    Run(&'a mut dyn FnMut(bool) -> bool),
    /// Answer that the call failed.
    Fail(CallFailure),
}

/// What a call came to.
pub(crate) type CallResult = Result<CallPayload, CallFailure>;

/// Why a call failed, and on which worker.
#[derive(Debug)]
pub(crate) struct CallFailure {
    pub(crate) kind: ErrorKind,
    pub(crate) worker: Option<WorkerRef>,
}

/// A failure before a worker had the call.
impl From<ErrorKind> for CallFailure {
    fn from(kind: ErrorKind) -> Self {
        Self { kind, worker: None }
    }
}

impl ScheduledCall for Job {
    fn is_isolated(&self) -> bool {
        self.isolated
    }
}

impl Job {
    /// The call, as an operation in this process sees it.
    pub(crate) fn call(&self) -> PoolCall {
        let (operation, call_state) = (Arc::clone(&self.operation), Arc::clone(&self.call_state));
        let report = self.progress.clone().map(|progress| {
            // A caller that does not keep up misses some values; the operation never waits for it.
            Arc::new(move |value| _ = progress.try_send(value)) as Arc<dyn Fn(CallPayload) + Send + Sync>
        });
        PoolCall::new(operation, Some(self.deadline), call_state, report)
    }

    /// Whether the caller subscribed to progress.
    pub(crate) fn wants_progress(&self) -> bool {
        self.progress.is_some()
    }

    /// Reports progress. A caller that does not keep up misses some values.
    pub(crate) fn report(&self, value: CallPayload) {
        if let Some(progress) = &self.progress {
            let _ = progress.try_send(value);
        }
    }

    /// The call's timeout, time in the queue included.
    pub(crate) fn limit(&self) -> Duration {
        self.deadline.duration_since(self.sent)
    }

    /// Answers the call, unless it was cancelled.
    pub(crate) fn answer(self, answer: CallResult) {
        if self.call_state.settle() {
            self.send(answer);
        }
    }

    /// Sends the answer of a call that was settled ([`CallState::settle`]).
    pub(crate) fn send(self, answer: CallResult) {
        match (self.work, answer) {
            (Work::Operation { reply, .. }, answer) => _ = reply.send(answer),
            (Work::Closure(closure), Err(failure)) => closure(ClosureCommand::Fail(failure)),
            // Closures answer themselves.
            (Work::Closure(_), Ok(_)) => {}
        }
    }

    /// Answers that the call failed.
    pub(crate) fn fail(self, kind: ErrorKind, worker: Option<WorkerRef>) {
        self.answer(Err(CallFailure { kind, worker }));
    }
}

/// Builds the error of a call.
pub(crate) fn call_error(
    pool: &str,
    operation: &str,
    kind: ErrorKind,
    worker: Option<WorkerRef>,
) -> CallError {
    CallError { pool: pool.to_owned(), operation: operation.to_owned(), kind, worker }
}
