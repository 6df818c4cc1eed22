//! Calls that nobody waits for: made and forgotten, or left by their callers. Their time is over when
//! it is over all the same, or one that hangs would keep its worker for good.

use std::future::Future;

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// Waits for calls in their callers' stead.
pub(crate) struct Forgotten {
    tasks: TaskTracker,
    /// The pool's own: that of a caller may end before its call.
    runtime: Option<Handle>,
}

impl Forgotten {
    /// On the runtime that the pool is opened on.
    pub(crate) fn new() -> Self {
        Self { tasks: TaskTracker::new(), runtime: Handle::try_current().ok() }
    }

    /// Waits for a call to come to its end.
    pub(crate) fn wait_for(&self, end: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            self.tasks.spawn_on(end, runtime);
        }
    }
}
