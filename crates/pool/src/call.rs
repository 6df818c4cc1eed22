//! One call, as the operation sees it: progress reports to the caller, and the check for
//! cancellation.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use crate::call_state::CallState;
use crate::payload::CallPayload;

/// One call, as the operation sees it.
#[derive(Clone)]
pub struct PoolCall {
    operation: Arc<str>,
    deadline: Option<Instant>,
    call_state: Arc<CallState>,
    report: Option<Arc<dyn Fn(CallPayload) + Send + Sync>>,
    /// Reads pending messages, for a worker without a thread that reads them meanwhile.
    poll: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl PoolCall {
    /// A call of `operation`. `report` sends progress values to the caller, if the caller
    /// subscribed.
    pub(crate) fn new(
        operation: Arc<str>,
        deadline: Option<Instant>,
        call_state: Arc<CallState>,
        report: Option<Arc<dyn Fn(CallPayload) + Send + Sync>>,
    ) -> Self {
        Self { operation, deadline, call_state, report, poll: None }
    }

    /// Calls `poll` on each check for cancellation. For workers that read their input only then.
    pub(crate) fn polling(mut self, poll: &Arc<dyn Fn() + Send + Sync>) -> Self {
        self.poll = Some(Arc::clone(poll));
        self
    }

    /// The operation's name.
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// The deadline of the call, if it has one.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether the caller no longer wants the result: it cancelled the call, or the deadline has
    /// passed. A long operation checks this now and then, and returns early.
    pub fn is_cancelled(&self) -> bool {
        if let Some(poll) = &self.poll {
            poll();
        }
        self.call_state.is_cancelled() || self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Reports progress to the caller. Costs nothing if the caller did not subscribe. A value that
    /// cannot be serialised as JSON is dropped.
    pub fn progress<T: Serialize + ?Sized>(&self, value: &T) {
        if let Some(report) = &self.report
            && let Ok(value) = CallPayload::json(value)
        {
            report(value);
        }
    }
}

impl std::fmt::Debug for PoolCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("operation", &self.operation).finish_non_exhaustive()
    }
}
