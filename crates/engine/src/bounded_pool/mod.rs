//! Bounded pools: N permits for something scarce, shared by whoever names the pool.
//!
//! [`BoundedPool`] is the front of the [`Permits`] seam: it waits in line, extends what this process
//! holds, gives back what is dropped, and knows what to do while the back end is away. Who may hold what
//! is the back end's alone to say; nothing here is counted twice.
//!
//! `desk` owns what all handles and guards of a pool share; `request` asks and waits; `guard` is what is
//! held; `keeper` extends and `errands` gives back; `outage`, `alerts` and `pilot` are the options.

mod alerts;
mod book;
mod desk;
mod errands;
mod error;
mod guard;
mod keeper;
mod outage;
mod pilot;
mod request;
mod roll;
mod settings;
mod stats;

use std::sync::Arc;

use longshore_core::{Permits, PoolName, Priority, Result};

pub use alerts::{Alarm, LogAlarm, PoolAlert, PoolAlertKind};
pub use book::PoolBook;
use desk::Desk;
pub use error::AcquireError;
pub use guard::{Permit, Went};
pub use request::Request;
pub use settings::{AdaptiveMax, BoundedPoolBuilder, OnOutage};
pub use stats::{BoundedPoolStats, Local};

/// A pool of permits, by name. Cheap to clone; all clones are one.
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
pub struct BoundedPool(Arc<Desk>);

impl BoundedPool {
    /// A pool of `max` permits, unless it is known already with another maximum. There is nothing to set
    /// up: the first to ask makes it known.
    pub fn builder(permits: Arc<dyn Permits>, name: PoolName, max: u32) -> BoundedPoolBuilder {
        BoundedPoolBuilder::new(permits, name, max)
    }

    /// Its name.
    pub fn name(&self) -> &PoolName {
        &self.0.name
    }

    /// Waits for a permit of weight 1, as long as the pool's settings allow.
    pub async fn acquire(&self) -> Result<Permit, AcquireError> {
        self.request().acquire().await
    }

    /// A permit of weight 1 if one is free and nobody waits for it.
    pub async fn try_acquire(&self) -> Result<Option<Permit>, AcquireError> {
        self.request().try_acquire().await
    }

    /// A permit with a weight, a class or a limit of its own.
    pub fn request(&self) -> Request<'_> {
        Request::new(&self.0)
    }

    /// Runs something while holding a permit. If the permit is lost meanwhile the work is dropped where it
    /// stands: others may have begun theirs.
    pub async fn with_permit<T>(&self, work: impl Future<Output = T>) -> Result<T, AcquireError> {
        let permit = self.acquire().await?;
        tokio::select! {
            answer = work => Ok(answer),
            () = permit.lost() => Err(AcquireError::Lost(self.0.name.clone())),
        }
    }

    /// Makes the pool known if it is not, and changes nothing else, however often it is called. Never
    /// needed.
    pub async fn init(&self) -> Result<()> {
        self.0.permits.init(&self.0.name, self.0.settings.max).await?;
        Ok(())
    }

    /// Sets the maximum for everybody: more are there at once, fewer as permits come back.
    pub async fn resize(&self, max: u32) -> Result<()> {
        self.0.permits.resize(&self.0.name, max).await
    }

    /// Forgets holders, waiters and figures: for when the holders are known to be gone.
    pub async fn reset(&self) -> Result<()> {
        self.0.permits.reset(&self.0.name).await
    }

    /// How the pool stands, and this process beside it.
    pub async fn stats(&self) -> BoundedPoolStats {
        self.0.stats().await
    }

    /// Returns once everything that was dropped so far has been given back, or cannot be, and alerts on
    /// their way have been told: what a process does last.
    pub async fn settle(&self) {
        self.0.settle().await;
    }
}

impl std::fmt::Debug for BoundedPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BoundedPool({})", self.0.name)
    }
}

/// The class of whoever says nothing about it.
const NORMAL: Priority = Priority::NORMAL;
