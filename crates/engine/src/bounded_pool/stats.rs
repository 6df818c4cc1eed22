//! Statistics of a pool, as one process sees them.

use std::time::Duration;

use longshore_core::permits::PoolStats;
use serde::Serialize;

use super::inner::PoolInner;

/// Statistics of a pool and of this process.
#[derive(Debug, Clone, Serialize)]
pub struct BoundedPoolStats {
    /// The backend's statistics; `None` if it is unavailable or the pool does not exist yet.
    pub pool: Option<PoolStats>,
    /// Permits that this process holds.
    pub held_here: usize,
    /// How long the backend has not answered this process.
    pub outage: Option<Duration>,
    /// Local permits of this process during an outage, if the pool fails open. Not counted in
    /// `pool` and not bounded by its maximum.
    pub local: Option<LocalPermits>,
}

/// Permits that a process grants itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LocalPermits {
    /// Maximum weight.
    pub max: u32,
    /// Weight in use.
    pub in_use: u32,
}

pub(super) async fn read(inner: &PoolInner) -> BoundedPoolStats {
    let pool = inner.permits.stats(&inner.name).await.ok().flatten();
    BoundedPoolStats {
        pool,
        held_here: inner.held_permits.len(),
        outage: inner.outage.duration(),
        local: inner.outage.local_usage().map(|(max, in_use)| LocalPermits { max, in_use }),
    }
}
