//! The seam to bounded pools: N permits for something scarce, held by anyone, anywhere, under a lease.
//!
//! A pool is nothing but a number, the leases that count against it and the line that waits. There are
//! no tokens that could be minted twice, lost or given back twice: whoever holds a permit has a lease
//! under an id of its own making, and what is free is the pool's maximum less the weight of the leases
//! that have not run out. So there is no set-up step, a repeated ask or release does no harm, and a
//! holder that dies gives its permits back when its lease runs out.
//!
//! Contract for implementers: as for [`crate::Store`]. Every verb is atomic; a repeat after a lost answer
//! does no further harm; time is the back end's own, one clock for all processes. Nothing here waits for
//! a turn: [`Permits::ask`] answers at once, [`Permits::turn`] is only a hint that asking again is worth
//! it. Who waits how long, and what to do when the back end is away, is the engine's `BoundedPool`.

mod job;
mod line;
mod stats;

pub use job::{Done, Job};
pub use line::{STEP, rank};
pub use stats::{Holder, PoolStats, Waiter, Waits};

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::name::{PermitId, PoolName};
use crate::rank::Priority;

/// Asks for a permit, or again for the turn of one who waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Made by whoever asks and kept while it asks: an ask that is repeated is recognised.
    pub id: PermitId,
    /// What the pool's maximum is if nobody has asked of it before. Changes nothing later: that is
    /// [`Permits::resize`].
    pub max: u32,
    /// How much of the pool it takes; at least 1.
    pub weight: u32,
    /// Its place in the line.
    pub priority: Priority,
    /// Who asks, for people to read: host, process, purpose.
    pub owner: Arc<str>,
    /// How long the permit is good for without [`Permits::extend`].
    pub ttl: Duration,
    /// What to do if there is none now.
    pub otherwise: Otherwise,
}

/// What becomes of an ask that cannot be met now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Otherwise {
    /// Nothing stays behind.
    GoAway,
    /// It stands in line. Its place is lost if it does not ask again for this long.
    Wait(Duration),
}

/// What an ask came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The permit is there, for as long as was asked from the moment in which the ask was sent.
    Granted(Grant),
    /// It stands in line.
    Waiting {
        /// How many stand before it.
        before: u32,
        /// When it is worth asking again even if no hint comes: for the first in line the nearest end
        /// of a lease, for others that of a place before them.
        look_again: Duration,
    },
    /// None is free for it, and it does not wait.
    Full,
    /// It weighs more than the whole pool: no waiting would help, unless the pool is enlarged.
    TooHeavy {
        /// The pool's maximum.
        max: u32,
    },
}

/// A permit that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Larger than that of every permit that this pool gave before: what is written under an older one
    /// can be told apart where the other side compares.
    pub fence: u64,
    /// How long it had to wait, by the back end's clock.
    pub waited: Duration,
}

/// Why someone who waited leaves the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leaving {
    /// The wait was longer than it may be: counted in [`PoolStats::timeouts`].
    TimedOut,
    /// Nobody wants it any more.
    CalledOff,
}

/// Permits of pools, by name.
#[async_trait]
pub trait Permits: Send + Sync + 'static {
    /// Gives a permit if one is free and nobody stands before this one in line, and says what else.
    ///
    /// Whoever holds already is told so again, with the same fence and its lease begun anew. A light one does not overtake a
    /// heavy one that stands before it: else a heavy one might wait for ever.
    async fn ask(&self, pool: &PoolName, ask: &Ask) -> Result<Answer>;

    /// The same without waiting for anything: `None` if the back end can only be waited for; then nothing
    /// happened.
    fn ask_at_once(&self, _pool: &PoolName, _ask: &Ask) -> Option<Answer> {
        None
    }

    /// Returns when it is worth asking again for one that waits: a permit was given back, the pool was
    /// enlarged, someone left the line. A hint that came since the last [`Self::ask`] of this id was
    /// sent is not lost; one may come for nothing; none may come at all if the back end is away or its
    /// way of telling is. Safe to drop.
    async fn turn(&self, pool: &PoolName, id: PermitId);

    /// Begins the leases of permits anew. Returns those that are not held any more: they ran out, or
    /// the pool was reset, and may be held by others. They are not taken again.
    async fn extend(
        &self,
        pool: &PoolName,
        ids: &[PermitId],
        ttl: Duration,
    ) -> Result<Vec<PermitId>>;

    /// Gives permits back. One that is not held (any more) is no error and changes nothing; one that
    /// still waits leaves the line.
    async fn release(&self, pool: &PoolName, ids: &[PermitId]) -> Result<()>;

    /// Gives one back without waiting for anything, as for a guard that is dropped: true if that is as
    /// good as [`Self::release`]. False if the back end can only be waited for; then nothing happened.
    fn release_at_once(&self, _pool: &PoolName, _id: PermitId) -> bool {
        false
    }

    /// Leaves the line, and gives back what may have been granted meanwhile.
    async fn leave(&self, pool: &PoolName, id: PermitId, why: Leaving) -> Result<()>;

    /// Makes a pool known with this maximum if it is not, and changes nothing if it is: then its maximum is
    /// returned.
    async fn init(&self, pool: &PoolName, max: u32) -> Result<Option<u32>>;

    /// Sets the maximum, making the pool known if it is not. More are there at once; fewer as permits
    /// come back: what is held stays held.
    async fn resize(&self, pool: &PoolName, max: u32) -> Result<()>;

    /// Forgets holders, waiters and figures, not the maximum: what an operator does when the holders are known to be
    /// gone. Holders that live learn at their next extension that they hold nothing. Fences go on.
    async fn reset(&self, pool: &PoolName) -> Result<()>;

    /// How a pool stands; `None` if nobody ever asked of it.
    async fn stats(&self, pool: &PoolName) -> Result<Option<PoolStats>>;

    /// Names of the pools that are known, in order.
    async fn pools(&self) -> Result<Vec<PoolName>>;

    /// Whether this alert may be told now: true for one caller, across all processes, and then for
    /// nobody until `every` has passed.
    async fn may_alert(&self, pool: &PoolName, alert: &str, every: Duration) -> Result<bool>;
}
