//! The seam between a pool's decisions and its workers: threads, processes, one process per call.

use std::sync::Arc;

use crate::error::Fate;
use crate::job::Job;
use crate::operation::Operation;
use crate::reins::Reins;
use crate::shared::Shared;
use crate::table::{Cause, WorkerId};

/// Those who do the work. All methods return at once; what they began they tell [`Shared`].
pub(crate) trait Crew: Send + Sync + 'static {
    /// Starts a worker. Ends in [`Shared::ready`] or [`Shared::start_failed`].
    fn start(&self, shared: &Arc<Shared>, id: WorkerId);

    /// Gives a call to a worker that is ready. Ends in [`Shared::finished`] once the job was
    /// answered ([`Job::answer`]), or in [`Shared::gone`] for the worker; a job that the worker never
    /// began may go back by [`Shared::put_back`].
    fn give(&self, shared: &Arc<Shared>, id: WorkerId, job: Job);

    /// Ends a free worker in good order. Ends in [`Shared::gone`].
    fn end(&self, shared: &Arc<Shared>, id: WorkerId, cause: Cause);

    /// A call that a worker has is wanted no more; [`Job::answer`] does nothing for it from now on.
    /// What becomes of it. A worker that goes down with it is first told to [`Shared::abandon`], so
    /// that it gets no more calls. Not called for threads, which cannot be ended: see
    /// [`Isolation::Threads`]. The worker may have answered this moment, and be at another call
    /// already: look for these very `reins` (`Arc::ptr_eq`) among what it has.
    fn give_up(&self, shared: &Arc<Shared>, id: WorkerId, reins: &Arc<Reins>, why: Why) -> Fate;

    /// Ends everybody, whatever they do: the pool is being dropped, or its time to close is over.
    fn kill_all(&self);

    /// A worker's process, if it is one.
    fn pid(&self, _: WorkerId) -> Option<u32> {
        None
    }

    /// What protects the program from them.
    fn isolation(&self) -> Isolation {
        Isolation::Processes
    }

    /// What can be called, if that is known before the first worker says so ([`Shared::learn`]).
    fn operations(&self) -> Option<Vec<Operation>> {
        None
    }
}

/// Why a call is wanted no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// Its time is over.
    TimedOut,
    /// Its caller took it back.
    TakenBack,
}

/// What protects the program from the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// Nothing, and they cannot be ended in the middle of a call; but they run closures.
    Threads,
    /// They are processes of their own.
    Processes,
}
