//! Failpoints: hooks at which tests kill the process. No cost in production.

use std::fmt;
use std::sync::Arc;

type Hook = dyn Fn(&'static str) + Send + Sync;

#[derive(Clone, Default)]
pub(super) struct Failpoints(Option<Arc<Hook>>);

impl Failpoints {
    pub(super) fn with_hook(hook: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    pub(super) fn hit(&self, step: &'static str) {
        if let Some(hook) = &self.0 {
            hook(step);
        }
    }
}

impl fmt::Debug for Failpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Failpoints(hooked)" } else { "Failpoints" })
    }
}
