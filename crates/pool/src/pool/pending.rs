//! A caller that waits for its call: until it is answered, its time is over, or it is taken back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::crew::Why;
use crate::error::{ErrorKind, WorkerRef};
use crate::job::{Failure, Job};
use crate::reins::Reins;
use crate::settings::WhenFull;
use crate::shared::{Placed, Shared};
use crate::table::Ticket;

/// A call that was handed in.
pub(super) struct Pending<'a, T> {
    shared: &'a Arc<Shared>,
    waits: Waits<T>,
}

/// The same without its pool.
pub(super) struct Waits<T> {
    reins: Arc<Reins>,
    ticket: Option<Ticket>,
    deadline: Instant,
    limit: Duration,
    answer: oneshot::Receiver<Result<T, Failure>>,
    span: tracing::Span,
}

impl<T> Waits<T> {
    pub(super) fn attach(self, shared: &Arc<Shared>) -> Pending<'_, T> {
        Pending { shared, waits: self }
    }
}

impl<'a, T> Pending<'a, T> {
    /// Hands a call in.
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

    /// Waits for what it comes to.
    pub(super) async fn outcome(
        mut self,
        cancel: Option<CancellationToken>,
        cancel_on_drop: bool,
    ) -> Result<T, Failure> {
        let mut guard = Guard { pending: &mut self, cancel_on_drop, armed: true };
        let deadline = guard.pending.waits.deadline;
        let why = tokio::select! {
            biased;
            answer = &mut guard.pending.waits.answer => {
                guard.armed = false;
                return answer.unwrap_or_else(|_| Err(dropped()));
            }
            () = tokio::time::sleep_until(deadline.into()) => Why::TimedOut,
            () = cancelled(cancel) => Why::TakenBack,
        };
        guard.armed = false;
        drop(guard);
        match self.give_up(why) {
            Some(failure) => Err(failure),
            // Somebody is just about to send it.
            None => self.waits.answer.await.unwrap_or_else(|_| Err(dropped())),
        }
    }

    /// Nobody wants it any more. Nothing, if it was answered meanwhile.
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

/// A call whose job was dropped unanswered.
fn dropped() -> Failure {
    (ErrorKind::ShuttingDown, None)
}

/// Sees to a call whose caller goes away before the answer.
struct Guard<'p, 'a, T> {
    pending: &'p mut Pending<'a, T>,
    cancel_on_drop: bool,
    armed: bool,
}

impl<T> Drop for Guard<'_, '_, T> {
    fn drop(&mut self) {
        let pending = &*self.pending;
        match pending.waits.ticket {
            _ if !self.armed => {}
            _ if self.cancel_on_drop => _ = pending.give_up(Why::TakenBack),
            // What is queued is done; what had no place yet goes with its caller, or the line would
            // grow without bound.
            Some(ticket) => pending.shared.leave_line(ticket),
            None => {}
        }
    }
}
