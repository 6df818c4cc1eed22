//! Waits for a call until it is answered, times out, or is cancelled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::backend::CancelReason;
use crate::call_state::CallState;
use crate::error::{ErrorKind, WorkerRef};
use crate::job::{CallFailure, Job};
use crate::scheduler::Ticket;
use crate::settings::WhenQueueFull;
use crate::shared::{Shared, SubmitResult};

/// A call that was submitted.
pub(super) struct PendingCall<'a, T> {
    shared: &'a Arc<Shared>,
    waiter: CallWaiter<T>,
}

/// A submitted call without the borrow of its pool, so that a task can own it.
pub(super) struct CallWaiter<T> {
    call_state: Arc<CallState>,
    ticket: Option<Ticket>,
    deadline: Instant,
    limit: Duration,
    answer: oneshot::Receiver<Result<T, CallFailure>>,
    span: tracing::Span,
}

impl<T: Send + 'static> CallWaiter<T> {
    pub(super) fn attach(self, shared: &Arc<Shared>) -> PendingCall<'_, T> {
        PendingCall { shared, waiter: self }
    }
}

impl<'a, T: Send + 'static> PendingCall<'a, T> {
    /// Submits a call.
    pub(super) fn submit(
        shared: &'a Arc<Shared>,
        job: Job,
        answer: oneshot::Receiver<Result<T, CallFailure>>,
        when_full: WhenQueueFull,
    ) -> Result<Self, CallFailure> {
        let (call_state, deadline, limit) = (Arc::clone(&job.call_state), job.deadline, job.limit());
        let span = job.span.clone();
        match shared.submit(job, when_full) {
            SubmitResult::Accepted(ticket) => {
                Ok(CallWaiter { call_state, ticket, deadline, limit, answer, span }.attach(shared))
            }
            SubmitResult::Rejected(rejected) => Err(rejected.1.into()),
            SubmitResult::Full { depth } => {
                Err(ErrorKind::Full { depth, limit: shared.settings.queue }.into())
            }
        }
    }

    pub(super) fn detach(self) -> CallWaiter<T> {
        self.waiter
    }

    pub(super) fn span(&self) -> tracing::Span {
        self.waiter.span.clone()
    }

    /// Waits for the call's outcome.
    pub(super) async fn wait(
        self,
        cancel: Option<CancellationToken>,
        cancel_on_drop: bool,
    ) -> Result<T, CallFailure> {
        let deadline = self.waiter.deadline;
        let mut guard = CallerDropGuard { shared: self.shared, waiter: Some(self.waiter), cancel_on_drop };
        let reason = tokio::select! {
            biased;
            answer = guard.answer() => {
                guard.disarm();
                return answer;
            }
            () = tokio::time::sleep_until(deadline.into()) => CancelReason::Timeout,
            () = cancelled(cancel) => CancelReason::Caller,
        };
        match guard.disarm() {
            Some(waiter) => waiter.attach(self.shared).cancel_or_answer(reason).await,
            None => Err(dropped_error()),
        }
    }

    /// Cancels the call, unless it was answered meanwhile.
    async fn cancel_or_answer(self, reason: CancelReason) -> Result<T, CallFailure> {
        match self.cancel(reason) {
            Some(failure) => Err(failure),
            // The worker has settled the call and is about to send the answer.
            None => self.waiter.answer.await.unwrap_or_else(|_| Err(dropped_error())),
        }
    }

    /// Waits until the call is answered or its deadline passes, and discards the outcome.
    async fn wait_until_settled(mut self) {
        let deadline = self.waiter.deadline;
        if tokio::time::timeout_at(deadline.into(), &mut self.waiter.answer).await.is_err() {
            drop(self.cancel_or_answer(CancelReason::Timeout).await);
        }
    }

    /// Cancels the call. `None` if it was answered meanwhile.
    fn cancel(&self, reason: CancelReason) -> Option<CallFailure> {
        let CallWaiter { ticket, call_state, deadline, .. } = &self.waiter;
        let effect = self.shared.cancel(*ticket, call_state, *deadline, reason)?;
        let kind = match reason {
            CancelReason::Timeout => ErrorKind::Timeout { after: self.waiter.limit, effect },
            CancelReason::Caller => ErrorKind::Cancelled { effect },
        };
        Some(CallFailure { kind, worker: self.worker() })
    }

    fn worker(&self) -> Option<WorkerRef> {
        self.waiter.call_state.worker().and_then(|id| self.shared.describe_worker(id))
    }
}

async fn cancelled(token: Option<CancellationToken>) {
    match token {
        Some(token) => token.cancelled_owned().await,
        None => std::future::pending().await,
    }
}

/// The error of a call if its job was dropped without an answer.
fn dropped_error() -> CallFailure {
    ErrorKind::ShuttingDown.into()
}

/// Handles the call if the caller's future is dropped before the answer.
struct CallerDropGuard<'a, T: Send + 'static> {
    shared: &'a Arc<Shared>,
    /// `None` once the caller has its answer.
    waiter: Option<CallWaiter<T>>,
    cancel_on_drop: bool,
}

impl<T: Send + 'static> CallerDropGuard<'_, T> {
    async fn answer(&mut self) -> Result<T, CallFailure> {
        match &mut self.waiter {
            Some(waiter) => (&mut waiter.answer).await.unwrap_or_else(|_| Err(dropped_error())),
            None => std::future::pending().await,
        }
    }

    fn disarm(&mut self) -> Option<CallWaiter<T>> {
        self.waiter.take()
    }
}

impl<T: Send + 'static> Drop for CallerDropGuard<'_, T> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        if self.cancel_on_drop {
            waiter.attach(self.shared).cancel(CancelReason::Caller);
            return;
        }
        // A queued call runs. A call that still waits for queue space is dropped with its caller,
        // or the overflow list would grow without bound.
        if waiter.ticket.is_some_and(|ticket| self.shared.leave_overflow(ticket)) {
            return;
        }
        // The pool waits in place of the caller: a call that hangs must not hold its worker for
        // ever.
        let shared = Arc::clone(self.shared);
        self.shared.detached.spawn(async move { waiter.attach(&shared).wait_until_settled().await });
    }
}
