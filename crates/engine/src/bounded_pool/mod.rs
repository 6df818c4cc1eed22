//! Bounded pools: N permits for a scarce resource, shared by all processes that name the pool.
//!
//! [`BoundedPool`] is built on the [`Permits`] trait: it waits, renews the leases of this process's
//! permits, releases dropped permits, and handles backend outages. Only the backend counts permits.
//!
//! `inner` is the shared state; `request` asks and waits; `permit` is the guard; `lease_renewer`
//! extends and `release_task` releases; `fallback`, `alerts` and `adaptive_limit` are optional
//! features.

mod adaptive_limit;
mod alerts;
mod error;
mod fallback;
mod held_permits;
mod inner;
mod lease_renewer;
mod permit;
mod registry;
mod release_task;
mod request;
mod settings;
mod stats;

use std::sync::Arc;

use longshore_core::{Permits, PoolName, Priority, Result};

pub use alerts::{AlertSink, LogAlertSink, PoolAlert, PoolAlertKind, ServiceAlert};
pub use error::AcquireError;
use inner::PoolInner;
pub use permit::{CallOutcome, Permit};
pub use registry::PoolRegistry;
pub use request::AcquireBuilder;
pub use settings::{AdaptiveMax, BoundedPoolBuilder, OnOutage};
pub use stats::{BoundedPoolStats, LocalPermits};

/// A named pool of permits. Clones share the pool.
///
/// ```
/// use std::sync::Arc;
/// use longshore::{BoundedPool, MemoryPermits, PoolName};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let permits = Arc::new(MemoryPermits::default());
/// let pool = BoundedPool::builder(permits, PoolName::new("mjml")?, 2).build();
/// let first = pool.acquire().await?;
/// let second = pool.acquire().await?;
/// assert!(pool.try_acquire().await?.is_none());
/// drop(first);
/// let answer = pool.with_permit(async { 42 }).await?;
/// # assert_eq!(answer, 42);
/// # drop(second);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct BoundedPool(Arc<PoolInner>);

impl BoundedPool {
    /// Starts a builder for a pool of `max` permits. If the backend has the pool already, its
    /// maximum applies. The first request creates the pool.
    pub fn builder(permits: Arc<dyn Permits>, name: PoolName, max: u32) -> BoundedPoolBuilder {
        BoundedPoolBuilder::new(permits, name, max)
    }

    /// The pool's name.
    pub fn name(&self) -> &PoolName {
        &self.0.name
    }

    /// Waits for a permit of weight 1, within the pool's wait limit.
    pub async fn acquire(&self) -> Result<Permit, AcquireError> {
        self.request().acquire().await
    }

    /// Acquires a permit of weight 1 if one is free and no other request waits for it.
    pub async fn try_acquire(&self) -> Result<Option<Permit>, AcquireError> {
        self.request().try_acquire().await
    }

    /// Starts a request with its own weight, priority or wait limit.
    pub fn request(&self) -> AcquireBuilder<'_> {
        AcquireBuilder::new(&self.0)
    }

    /// Runs a future while holding a permit. If the permit is lost the future is dropped: another
    /// holder may have started.
    pub async fn with_permit<T>(&self, work: impl Future<Output = T>) -> Result<T, AcquireError> {
        let permit = self.acquire().await?;
        tokio::select! {
            answer = work => Ok(answer),
            () = permit.lost() => Err(AcquireError::Lost(self.0.name.clone())),
        }
    }

    /// Creates the pool if it does not exist, and changes nothing otherwise. Optional: the first
    /// request does it too.
    pub async fn init(&self) -> Result<()> {
        self.0.permits.create(&self.0.name, self.0.settings.max).await?;
        Ok(())
    }

    /// Sets the maximum for all processes: additional permits are available immediately, surplus
    /// ones go as they are released.
    pub async fn resize(&self, max: u32) -> Result<()> {
        self.0.permits.resize(&self.0.name, max).await
    }

    /// Removes holders, waiters and statistics. Use it when the holders are known to be gone.
    pub async fn reset(&self) -> Result<()> {
        self.0.permits.reset(&self.0.name).await
    }

    /// Statistics of the pool and of this process.
    pub async fn stats(&self) -> BoundedPoolStats {
        self.0.stats().await
    }

    /// Returns once all permits dropped so far are released, or cannot be, and alerts in flight are
    /// sent. Call it before the process exits.
    pub async fn flush(&self) {
        self.0.settle().await;
    }
}

impl std::fmt::Debug for BoundedPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BoundedPool({})", self.0.name)
    }
}

/// The default priority.
const NORMAL: Priority = Priority::NORMAL;
