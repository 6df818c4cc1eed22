//! A call on its way: queued, given to a worker, answered exactly once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use crate::call::Call;
use crate::error::{CallError, ErrorKind, WorkerRef};
use crate::payload::Payload;
use crate::reins::Reins;

/// A call on its way. Whoever holds it must answer it; dropped, its caller hears that the pool is
/// shutting down.
pub(crate) struct Job {
    pub(crate) operation: Arc<str>,
    pub(crate) work: Work,
    /// Smaller goes first; among equals, who came first.
    pub(crate) priority: u8,
    pub(crate) sent: Instant,
    pub(crate) deadline: Instant,
    pub(crate) reins: Arc<Reins>,
    pub(crate) progress: Option<mpsc::Sender<Payload>>,
    /// What the work belongs to in the log.
    pub(crate) span: tracing::Span,
}

/// What is to be done.
pub(crate) enum Work {
    /// An operation by name.
    Operation { arguments: Payload, reply: oneshot::Sender<Answer> },
    /// A closure of this very process, for threads only.
    Closure(Closure),
}

/// A closure that answers its caller itself.
pub(crate) type Closure = Box<dyn FnOnce(Turn<'_>) + Send>;

/// What a closure is to do.
pub(crate) enum Turn<'a> {
    /// Run; then say whether it went without a panic, and answer if told to.
    Run(&'a mut dyn FnMut(bool) -> bool),
    /// Answer that it came to nothing.
    Fail(Failure),
}

/// What a call came to.
pub(crate) type Answer = Result<Payload, Failure>;

/// Why a call came to nothing, and with whom.
pub(crate) type Failure = (ErrorKind, Option<WorkerRef>);

impl Job {
    /// The call, as an operation in this process sees it.
    pub(crate) fn call(&self) -> Call {
        let (operation, reins) = (Arc::clone(&self.operation), Arc::clone(&self.reins));
        let report = self.progress.clone().map(|progress| {
            // A caller that does not keep up misses some; nobody waits for it.
            Arc::new(move |value| _ = progress.try_send(value))
                as Arc<dyn Fn(Payload) + Send + Sync>
        });
        Call::new(operation, Some(self.deadline), reins, report)
    }

    /// Whether somebody listens to how far it is.
    pub(crate) fn wants_progress(&self) -> bool {
        self.progress.is_some()
    }

    /// Tells how far it is. A caller that does not keep up misses some.
    pub(crate) fn report(&self, value: Payload) {
        if let Some(progress) = &self.progress {
            let _ = progress.try_send(value);
        }
    }

    /// The time it was given, waiting included.
    pub(crate) fn limit(&self) -> Duration {
        self.deadline.duration_since(self.sent)
    }

    /// Answers it, if its caller did not give it up.
    pub(crate) fn answer(self, answer: Answer) {
        if self.reins.settle() {
            self.send(answer);
        }
    }

    /// Sends the answer of a call that was settled ([`Reins::settle`]).
    pub(crate) fn send(self, answer: Answer) {
        match (self.work, answer) {
            (Work::Operation { reply, .. }, answer) => _ = reply.send(answer),
            (Work::Closure(closure), Err(failure)) => closure(Turn::Fail(failure)),
            // Closures answer themselves.
            (Work::Closure(_), Ok(_)) => {}
        }
    }

    /// Answers that it came to nothing.
    pub(crate) fn fail(self, kind: ErrorKind, worker: Option<WorkerRef>) {
        self.answer(Err((kind, worker)));
    }
}

/// Puts an error together.
pub(crate) fn error(
    pool: &str,
    operation: &str,
    kind: ErrorKind,
    worker: Option<WorkerRef>,
) -> CallError {
    CallError { pool: pool.to_owned(), operation: operation.to_owned(), kind, worker }
}
