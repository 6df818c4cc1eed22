//! The interface between the scheduler and its workers: threads, processes, one process per call.

use std::sync::Arc;

use crate::call_state::CallState;
use crate::error::CancelEffect;
use crate::job::Job;
use crate::operation::Operation;
use crate::scheduler::{EndCause, WorkerId};
use crate::shared::Shared;

/// Runs the workers. All methods return at once, and report their results to [`Shared`].
pub(crate) trait Backend: Send + Sync + 'static {
    /// Starts a worker. Ends in [`Shared::ready`] or [`Shared::start_failed`].
    fn start(&self, shared: &Arc<Shared>, id: WorkerId);

    /// Gives a call to a worker that is ready. Ends in [`Shared::finished`] once the job was
    /// answered ([`Job::answer`]), or in [`Shared::worker_ended`] for the worker. A job that the
    /// worker never started may go back by [`Shared::requeue`].
    fn dispatch(&self, shared: &Arc<Shared>, id: WorkerId, job: Job);

    /// Stops an idle worker gracefully. Ends in [`Shared::worker_ended`].
    fn stop(&self, shared: &Arc<Shared>, id: WorkerId, cause: EndCause);

    /// Cancels a call that a worker has; [`Job::answer`] has no effect on it from now on. Returns
    /// what happened to the work. If the worker is to be killed with the call, the backend first
    /// calls [`Shared::abandon`], so that the worker gets no more calls. Not called for threads,
    /// which cannot be killed: see [`Isolation::Threads`]. The worker may have answered at this
    /// very moment and have started another call: the backend must look for this `call_state`
    /// (`Arc::ptr_eq`) among the worker's calls.
    fn cancel(
        &self,
        shared: &Arc<Shared>,
        id: WorkerId,
        call_state: &Arc<CallState>,
        reason: CancelReason,
    ) -> CancelEffect;

    /// Kills all workers, whatever they do: the pool is being dropped, or its time to close is
    /// over.
    fn kill_all(&self);

    /// The process id of a worker, if it is a process.
    fn pid(&self, _: WorkerId) -> Option<u32> {
        None
    }

    /// How far the program is isolated from the workers.
    fn isolation(&self) -> Isolation {
        Isolation::Processes
    }

    /// The operations, if they are known before the first worker reports them
    /// ([`Shared::register_operations`]).
    fn operations(&self) -> Option<Vec<Operation>> {
        None
    }
}

/// Why a call is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CancelReason {
    /// Its deadline has passed.
    Timeout,
    /// Its caller cancelled it.
    Caller,
}

/// How far the program is isolated from the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// Not at all, and a thread cannot be killed in the middle of a call. But threads can run
    /// closures.
    Threads,
    /// The workers are processes.
    Processes,
}
