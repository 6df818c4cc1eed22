//! The fixture of a permit case: fresh pools, as two processes see them.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::Permits;

use crate::ManualClock;

/// Bounded pools without earlier requests.
#[derive(Clone)]
pub struct PermitsFixture {
    /// The pools.
    pub permits: Arc<dyn Permits>,
    /// The same pools as another process sees them.
    pub second_process: Arc<dyn Permits>,
    /// The clock of the pools, if cases can move it. Otherwise cases wait in real time.
    pub clock: Option<Arc<ManualClock>>,
    guard: Option<Arc<dyn Any + Send + Sync>>,
}

impl PermitsFixture {
    /// Pools as two processes see them, on a real clock.
    pub fn new(permits: Arc<dyn Permits>, second_process: Arc<dyn Permits>) -> Self {
        Self { permits, second_process, clock: None, guard: None }
    }

    /// Sets a clock that cases can move.
    #[must_use]
    pub fn with_clock(self, clock: Arc<ManualClock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Keeps a value alive as long as the fixture, such as a temporary directory.
    #[must_use]
    pub fn keeping(self, value: impl Any + Send + Sync) -> Self {
        Self { guard: Some(Arc::new((self.guard, value))), ..self }
    }

    /// Lets `time` and 20 ms more pass.
    pub async fn advance(&self, time: Duration) {
        let time = time + Duration::from_millis(20);
        match &self.clock {
            Some(clock) => clock.advance(time),
            None => tokio::time::sleep(time).await,
        }
    }
}
