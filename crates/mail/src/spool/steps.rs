//! Where a process may die, for tests that have it die there. Free in production.

use std::fmt;
use std::sync::Arc;

type Tell = dyn Fn(&'static str) + Send + Sync;

#[derive(Clone, Default)]
pub(super) struct Steps(Option<Arc<Tell>>);

impl Steps {
    pub(super) fn told_to(tell: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }

    pub(super) fn tell(&self, step: &'static str) {
        if let Some(tell) = &self.0 {
            tell(step);
        }
    }
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Steps(watched)" } else { "Steps" })
    }
}
