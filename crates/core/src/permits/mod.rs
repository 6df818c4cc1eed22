//! Bounded pools: N permits for a scarce resource, held under leases by any process on any machine.
//!
//! A pool is a maximum, the leases that count against it, and a wait queue. There are no tokens
//! that could be duplicated, lost or returned twice: each holder has a lease under an id of its own
//! making, and the free weight is the maximum less the weight of all leases that have not expired.
//! Therefore a pool needs no set-up, a repeated request does no harm, and the permits of a dead
//! holder are free when its lease expires.
//!
//! Contract for implementers: as for [`crate::Store`]. Every operation is atomic; a repeat after a
//! lost answer does no harm; time is the back end's own, one clock for all processes. No operation
//! waits for a permit: [`Permits::acquire`] answers immediately, and [`Permits::wait_for_wakeup`] only hints that
//! asking again is worthwhile. The engine's `BoundedPool` decides how long to wait, and what to do
//! if the back end is unavailable.

mod request;
mod stats;
mod wait_order;

pub use request::{PermitReply, PermitRequest};
pub use stats::{Holder, PoolStats, WaitHistogram, Waiter};
pub use wait_order::{PERMIT_AGING_PER_LEVEL, wait_rank};

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::Result;
use crate::name::{PermitId, PoolName};
use crate::priority::Priority;

/// Asks for a permit, or asks again while waiting for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcquireRequest {
    /// Made by the client and kept while it asks, so that a repeat is recognised.
    pub id: PermitId,
    /// The pool's maximum if it does not exist yet. Ignored later: see [`PoolChange::Resize`].
    pub max: u32,
    /// How much of the pool it takes; at least 1.
    pub weight: u32,
    /// Its priority in the wait queue.
    pub priority: Priority,
    /// The client, for people: host, process, purpose.
    pub owner: Arc<str>,
    /// The lease's TTL without [`Permits::renew`].
    pub ttl: Duration,
    /// What to do if the pool is full.
    pub if_full: IfFull,
}

/// What to do if a permit cannot be granted now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfFull {
    /// Leave nothing behind.
    Fail,
    /// Wait in the queue. The place expires if the client does not ask again for this long.
    Wait(Duration),
}

/// The answer to a request for a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcquireResult {
    /// The permit is granted; its TTL counts from when the request was sent.
    Granted(PermitGrant),
    /// The request waits in the queue.
    Waiting {
        /// How many waiters are before it: 0 for the first.
        position: u32,
        /// When to ask again even without a hint: for the first waiter the next expiry of a lease,
        /// for others the next expiry of a place before them.
        retry_after: Duration,
    },
    /// The pool is full, and the request does not wait.
    Full,
    /// The weight exceeds the pool's maximum: waiting does not help, unless the pool is enlarged.
    TooHeavy {
        /// The pool's maximum.
        max: u32,
    },
}

/// A granted permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermitGrant {
    /// Larger than the fence of every permit that this pool granted before: a resource that
    /// compares fences can reject writes under an older permit.
    pub fence: u64,
    /// How long it waited, by the back end's clock.
    pub waited: Duration,
}

/// A change of a pool by an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolChange {
    /// Creates it with this maximum. If it exists, changes nothing.
    Create(u32),
    /// Sets the maximum, creating the pool if necessary. A higher maximum takes effect at once; a
    /// lower one as permits are released: held permits stay held.
    Resize(u32),
    /// Removes holders, waiters and counters, but not the maximum: for operators that know that the
    /// holders are gone. A live holder learns at its next renewal that it holds nothing. Fences
    /// keep growing.
    Reset,
}

/// A pool without permits and waiters is deleted when its last permit was granted this long ago. The next
/// request creates it again. Fences are no smaller than the time, so they go on growing. Pools with a
/// maximum of 0, and pools that never granted a permit, stay.
pub const UNUSED_POOL_TTL: Duration = Duration::from_secs(30 * 24 * 3600);

/// Permits of pools, by name.
#[async_trait]
pub trait Permits: Send + Sync + 'static {
    /// Grants a permit if enough weight is free and no waiter ranks before the request.
    ///
    /// A holder that asks again gets the same fence, and its lease is renewed. A light request does
    /// not overtake a heavy one before it: otherwise the heavy one might starve.
    async fn acquire(&self, pool: &PoolName, ask: &AcquireRequest) -> Result<AcquireResult>;

    /// Like [`Self::acquire`], but never waits for the back end: `None`, without effect, if the back
    /// end cannot answer synchronously.
    fn try_acquire_now(&self, _pool: &PoolName, _ask: &AcquireRequest) -> Option<AcquireResult> {
        None
    }

    /// Returns when a waiter should ask again: a permit was released, the pool was enlarged, or a
    /// waiter left the queue. A hint since the last [`Self::acquire`] of this id is not lost; a hint
    /// may be spurious; and none comes while the back end or its notifications are unavailable.
    /// Safe to drop.
    async fn wait_for_wakeup(&self, pool: &PoolName, id: PermitId);

    /// Renews the leases of permits. Returns the permits that are not held any more: they expired,
    /// or the pool was reset, and other clients may hold them. They are not acquired again.
    async fn renew(&self, pool: &PoolName, ids: &[PermitId], ttl: Duration) -> Result<Vec<PermitId>>;

    /// Releases permits. An id that is not held (any more) is no error and changes nothing; a
    /// waiter leaves the queue, counted in [`PoolStats::timeouts`] if its wait timed out.
    async fn release(&self, pool: &PoolName, ids: &[PermitId], timed_out: bool) -> Result<()>;

    /// Releases a permit without waiting for the back end, as a dropped guard must: true if that is
    /// as good as [`Self::release`]. False, without effect, if the back end cannot answer
    /// synchronously.
    fn try_release_now(&self, _pool: &PoolName, _id: PermitId) -> bool {
        false
    }

    /// Changes a pool. Returns the maximum of a pool that was to be created and exists.
    async fn change_pool(&self, pool: &PoolName, change: PoolChange) -> Result<Option<u32>>;

    /// The states of all pools, by name, or of the pool with this name if it exists.
    async fn pools(&self, name: Option<&PoolName>) -> Result<Vec<(PoolName, PoolStats)>>;

    /// Rate-limits an alert: true for one caller, across all processes, and then for no caller
    /// until `every` has passed.
    async fn acquire_alert(&self, pool: &PoolName, alert: &str, every: Duration) -> Result<bool>;
}

/// Shorthands for callers. A back end does not implement them.
impl dyn Permits + '_ {
    /// The state of a pool; `None` if it does not exist.
    pub async fn stats(&self, pool: &PoolName) -> Result<Option<PoolStats>> {
        Ok(self.pools(Some(pool)).await?.pop().map(|(_, stats)| stats))
    }

    /// Creates a pool with this maximum; if it exists, changes nothing and returns its maximum.
    pub async fn create(&self, pool: &PoolName, max: u32) -> Result<Option<u32>> {
        self.change_pool(pool, PoolChange::Create(max)).await
    }

    /// Sets the maximum: [`PoolChange::Resize`].
    pub async fn resize(&self, pool: &PoolName, max: u32) -> Result<()> {
        self.change_pool(pool, PoolChange::Resize(max)).await.map(drop)
    }

    /// Removes holders, waiters and counters: [`PoolChange::Reset`].
    pub async fn reset(&self, pool: &PoolName) -> Result<()> {
        self.change_pool(pool, PoolChange::Reset).await.map(drop)
    }
}
