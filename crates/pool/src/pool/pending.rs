//! Waits for a call until it is answered, times out, or is cancelled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::backend::Why;
use crate::call_state::Reins;
use crate::error::{ErrorKind, WorkerRef};
use crate::job::{Failure, Job};
use crate::scheduler::Ticket;
use crate::settings::WhenFull;
use crate::shared::{Placed, Shared};

/// A call that was submitted.
pub(super) struct Pending<'a, T> {
    shared: &'a Arc<Shared>,
    waits: Waits<T>,
}

/// A submitted call without the borrow of its pool, so that a task can own it.
pub(super) struct Waits<T> {
    reins: Arc<Reins>,
    ticket: Option<Ticket>,
    deadline: Instant,
    limit: Duration,
    answer: oneshot::Receiver<Result<T, Failure>>,
    span: tracing::Span,
}

impl<T: Send + 'static> Waits<T> {
    pub(super) fn attach(self, shared: &Arc<Shared>) -> Pending<'_, T> {
        Pending { shared, waits: self }
    }
}

impl<'a, T: Send + 'static> Pending<'a, T> {
    /// Submits a call.
    pub(super) fn place(
        shared: &'a Arc<Shared>,
        job: Job,
        answer: oneshot::Receiver<Result<T, Failure>>,
        when_full: WhenFull,
    ) -> Result<Self, Failure> {
        let (reins, deadline, limit) = (Arc::clone(&job.reins), job.deadline, job.limit());
        let span = job.span.clone();
        match shared.submit(job, when_full) {
            Placed::Taken(ticket) => {
                Ok(Waits { reins, ticket, deadline, limit, answer, span }.attach(shared))
            }
            Placed::Refused(refused) => Err((refused.1, None)),
            Placed::Full { depth } => {
                let limit = shared.settings.queue;
                Err((ErrorKind::Full { depth, limit }, None))
            }
        }
    }

    pub(super) fn detach(self) -> Waits<T> {
        self.waits
    }

    pub(super) fn span(&self) -> tracing::Span {
        self.waits.span.clone()
    }

    /// Waits for the call's outcome.
    pub(super) async fn outcome(
        self,
        cancel: Option<CancellationToken>,
        cancel_on_drop: bool,
    ) -> Result<T, Failure> {
        let deadline = self.waits.deadline;
        let mut guard = Guard { shared: self.shared, waits: Some(self.waits), cancel_on_drop };
        let why = tokio::select! {
            biased;
            answer = guard.answer() => {
                guard.disarm();
                return answer;
            }
            () = tokio::time::sleep_until(deadline.into()) => Why::TimedOut,
            () = cancelled(cancel) => Why::TakenBack,
        };
        match guard.disarm() {
            Some(waits) => waits.attach(self.shared).end(why).await,
            None => Err(dropped()),
        }
    }

    /// Cancels the call, unless it was answered meanwhile.
    async fn end(self, why: Why) -> Result<T, Failure> {
        match self.give_up(why) {
            Some(failure) => Err(failure),
            // The worker has settled the call and is about to send the answer.
            None => self.waits.answer.await.unwrap_or_else(|_| Err(dropped())),
        }
    }

    /// Waits until the call is answered or its deadline passes, and discards the outcome.
    async fn over(mut self) {
        let deadline = self.waits.deadline;
        if tokio::time::timeout_at(deadline.into(), &mut self.waits.answer).await.is_err() {
            drop(self.end(Why::TimedOut).await);
        }
    }

    /// Cancels the call. `None` if it was answered meanwhile.
    fn give_up(&self, why: Why) -> Option<Failure> {
        let Waits { ticket, reins, deadline, .. } = &self.waits;
        let fate = self.shared.give_up(*ticket, reins, *deadline, why)?;
        let kind = match why {
            Why::TimedOut => ErrorKind::Timeout { after: self.waits.limit, fate },
            Why::TakenBack => ErrorKind::Cancelled { fate },
        };
        Some((kind, self.who()))
    }

    fn who(&self) -> Option<WorkerRef> {
        self.waits.reins.worker().and_then(|id| self.shared.who(id))
    }
}

async fn cancelled(token: Option<CancellationToken>) {
    match token {
        Some(token) => token.cancelled_owned().await,
        None => std::future::pending().await,
    }
}

/// The error of a call if its job was dropped without an answer.
fn dropped() -> Failure {
    (ErrorKind::ShuttingDown, None)
}

/// Handles the call if the caller's future is dropped before the answer.
struct Guard<'a, T: Send + 'static> {
    shared: &'a Arc<Shared>,
    /// `None` once the caller has its answer.
    waits: Option<Waits<T>>,
    cancel_on_drop: bool,
}

impl<T: Send + 'static> Guard<'_, T> {
    async fn answer(&mut self) -> Result<T, Failure> {
        match &mut self.waits {
            Some(waits) => (&mut waits.answer).await.unwrap_or_else(|_| Err(dropped())),
            None => std::future::pending().await,
        }
    }

    fn disarm(&mut self) -> Option<Waits<T>> {
        self.waits.take()
    }
}

impl<T: Send + 'static> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        let Some(waits) = self.waits.take() else { return };
        if self.cancel_on_drop {
            waits.attach(self.shared).give_up(Why::TakenBack);
            return;
        }
        // A queued call runs. A call that still waits for queue space is dropped with its caller,
        // or the overflow list would grow without bound.
        if waits.ticket.is_some_and(|ticket| self.shared.leave_line(ticket)) {
            return;
        }
        // The pool waits in place of the caller: a call that hangs must not hold its worker for
        // ever.
        let shared = Arc::clone(self.shared);
        self.shared.forgotten.wait_for(async move { waits.attach(&shared).over().await });
    }
}
