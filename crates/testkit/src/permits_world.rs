//! What a conformance case of permits is given: fresh pools, seen by two processes.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::Permits;

use crate::ManualClock;

/// Pools that nobody has asked of yet.
#[derive(Clone)]
pub struct PermitsWorld {
    /// The pools.
    pub permits: Arc<dyn Permits>,
    /// The same pools as another process sees them.
    pub other: Arc<dyn Permits>,
    /// Their clock, if it is one that cases can move. A real one is waited for.
    pub clock: Option<Arc<ManualClock>>,
    keep: Option<Arc<dyn Any + Send + Sync>>,
}

impl PermitsWorld {
    /// Pools of two processes, on a real clock.
    pub fn new(permits: Arc<dyn Permits>, other: Arc<dyn Permits>) -> Self {
        Self { permits, other, clock: None, keep: None }
    }

    /// The same on a clock that cases move.
    #[must_use]
    pub fn with_clock(self, clock: Arc<ManualClock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Keeps something alive as long as the world, as a temporary directory.
    #[must_use]
    pub fn keeping(self, thing: impl Any + Send + Sync) -> Self {
        Self { keep: Some(Arc::new((self.keep, thing))), ..self }
    }

    /// Lets this much time pass, and a little more.
    pub async fn pass(&self, time: Duration) {
        let time = time + Duration::from_millis(20);
        match &self.clock {
            Some(clock) => clock.advance(time),
            None => tokio::time::sleep(time).await,
        }
    }
}
