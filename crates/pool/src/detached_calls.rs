//! Calls without a caller: sent without waiting, or left behind when the caller's future was
//! dropped. Their deadlines still apply, or a call that hangs would hold its worker for ever.

use std::future::Future;

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// Runs the tasks that wait for calls without a caller.
pub(crate) struct DetachedCalls {
    tasks: TaskTracker,
    /// The pool's own runtime: that of a caller may end before its call.
    runtime: Option<Handle>,
}

impl DetachedCalls {
    /// Takes the runtime on which the pool is opened.
    pub(crate) fn new() -> Self {
        Self { tasks: TaskTracker::new(), runtime: Handle::try_current().ok() }
    }

    /// Waits in the background for a call to end.
    pub(crate) fn spawn(&self, end: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            self.tasks.spawn_on(end, runtime);
        }
    }
}
