//! One call, as the operation sees it: what it may tell its caller, and whether to go on.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use crate::payload::Payload;
use crate::reins::Reins;

/// One call, as the operation sees it.
#[derive(Clone)]
pub struct Call {
    operation: Arc<str>,
    deadline: Option<Instant>,
    reins: Arc<Reins>,
    report: Option<Arc<dyn Fn(Payload) + Send + Sync>>,
    /// Looks for news of it, where nobody else does meanwhile.
    look: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Call {
    /// A call of `operation`; `report` carries words on how far it is to the caller, if one listens.
    pub(crate) fn new(
        operation: Arc<str>,
        deadline: Option<Instant>,
        reins: Arc<Reins>,
        report: Option<Arc<dyn Fn(Payload) + Send + Sync>>,
    ) -> Self {
        Self { operation, deadline, reins, report, look: None }
    }

    /// The same where nobody hears that it is wanted no more unless `look` looks.
    pub(crate) fn looking(mut self, look: &Arc<dyn Fn() + Send + Sync>) -> Self {
        self.look = Some(Arc::clone(look));
        self
    }

    /// The operation's name.
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// When the caller gives up, if ever.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether nobody wants the result any more: the caller took the call back, or its time is over.
    /// A long operation looks now and then, and returns early.
    pub fn is_cancelled(&self) -> bool {
        if let Some(look) = &self.look {
            look();
        }
        self.reins.is_given_up() || self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Tells the caller how far it is. Costs nothing if nobody listens; what cannot be written as
    /// JSON is dropped.
    pub fn progress<T: Serialize + ?Sized>(&self, value: &T) {
        if let Some(report) = &self.report
            && let Ok(value) = Payload::json(value)
        {
            report(value);
        }
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("operation", &self.operation).finish_non_exhaustive()
    }
}
