//! How a pool stands, seen from one process.

use std::time::Duration;

use longshore_core::permits::PoolStats;
use serde::Serialize;

use super::desk::Desk;

/// How a pool stands, and this process beside it.
#[derive(Debug, Clone, Serialize)]
pub struct BoundedPoolStats {
    /// What the back end says; `None` if it is away, or nobody has asked of the pool yet.
    pub pool: Option<PoolStats>,
    /// Permits of the pool that this process holds.
    pub held_here: usize,
    /// How long the back end has not answered this process.
    pub outage: Option<Duration>,
    /// What this process gives by itself in an outage, if the pool opens then. Not counted in `pool`, and
    /// not bounded by its maximum.
    pub local: Option<Local>,
}

/// Permits that a process gives by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Local {
    /// Most weight at once.
    pub max: u32,
    /// Weight that is held.
    pub in_use: u32,
}

pub(super) async fn read(desk: &Desk) -> BoundedPoolStats {
    let pool = desk.permits.stats(&desk.name).await.ok().flatten();
    BoundedPoolStats {
        pool,
        held_here: desk.roll.count(),
        outage: desk.outage.lasts(),
        local: desk.outage.own().map(|(max, in_use)| Local { max, in_use }),
    }
}
