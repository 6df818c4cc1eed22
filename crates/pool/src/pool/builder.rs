//! Builder of a pool, to change single settings.

use std::time::Duration;

use super::WorkerPool;
use crate::error::CallError;
use crate::operation::OperationSet;
use crate::settings::{OnTimeout, PoolSettings, WhenQueueFull};

/// Builder of a pool.
///
/// ```
/// use std::time::Duration;
/// use longshore_pool::{Operations, WorkerPool};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), longshore_pool::CallError> {
/// let pool = WorkerPool::builder("images")
///     .workers(1, 4)
///     .queue(20)
///     .timeout(Duration::from_secs(10))
///     .threads(Operations::stateless())
///     .await?;
/// let () = pool.call("noop", &()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until the pool is opened"]
pub struct PoolBuilder {
    pub(crate) name: String,
    pub(crate) settings: PoolSettings,
}

impl WorkerPool {
    /// A builder with the default [`PoolSettings`].
    pub fn builder(name: impl Into<String>) -> PoolBuilder {
        PoolBuilder { name: name.into(), settings: PoolSettings::default() }
    }
}

impl PoolBuilder {
    /// Sets all settings at once.
    pub fn settings(self, settings: PoolSettings) -> Self {
        Self { settings, ..self }
    }

    fn with(mut self, change: impl FnOnce(&mut PoolSettings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Minimum and maximum number of workers.
    pub fn workers(self, min: usize, max: usize) -> Self {
        self.with(|settings| (settings.min, settings.max) = (min, max))
    }

    /// Calls that may wait for a worker.
    pub fn queue(self, limit: usize) -> Self {
        self.with(|settings| settings.queue = limit)
    }

    /// What happens to a call if the queue is full.
    pub fn when_full(self, choice: WhenQueueFull) -> Self {
        self.with(|settings| settings.when_full = choice)
    }

    /// The timeout of a call, time in the queue included.
    pub fn timeout(self, limit: Duration) -> Self {
        self.with(|settings| settings.timeout = limit)
    }

    /// What happens to a call that times out.
    pub fn on_timeout(self, choice: OnTimeout) -> Self {
        self.with(|settings| settings.on_timeout = choice)
    }

    /// How long a worker above `min` stays idle before it stops.
    pub fn idle_timeout(self, limit: Duration) -> Self {
        self.with(|settings| settings.idle_timeout = limit)
    }

    /// Calls after which a worker is replaced.
    pub fn max_calls(self, limit: u64) -> Self {
        self.with(|settings| settings.max_calls = Some(limit))
    }

    /// The age at which a worker is replaced.
    pub fn max_age(self, limit: Duration) -> Self {
        self.with(|settings| settings.max_age = Some(limit))
    }

    /// Bytes of memory beyond which a process is replaced.
    pub fn max_memory(self, limit: u64) -> Self {
        self.with(|settings| settings.max_memory = Some(limit))
    }

    /// Opens a pool of threads.
    pub async fn threads(self, operations: impl OperationSet) -> Result<WorkerPool, CallError> {
        WorkerPool::threads(self.name, operations, self.settings).await
    }
}
