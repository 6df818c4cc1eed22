//! Errors of acquiring a permit.

use std::time::Duration;

use longshore_core::{Error, PoolName};

/// Why no permit was acquired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// No permit was granted within the wait limit.
    #[error("no permit of pool `{pool}` within {limit:?}")]
    TimedOut {
        /// The pool.
        pool: PoolName,
        /// The wait limit.
        limit: Duration,
    },
    /// The request exceeds the pool's maximum, so that waiting cannot help.
    #[error("a weight of {weight} is more than pool `{pool}` has ({max})")]
    TooHeavy {
        /// The pool.
        pool: PoolName,
        /// The requested weight.
        weight: u32,
        /// The pool's maximum.
        max: u32,
    },
    /// The permit was lost while in use: its lease expired or the pool was reset.
    #[error("the permit of pool `{0}` was lost while it was in use")]
    Lost(PoolName),
    /// The backend is unavailable, and the pool fails closed.
    #[error("the backend of pool `{pool}` is unavailable")]
    Unavailable {
        /// The pool.
        pool: PoolName,
        /// The backend's error.
        #[source]
        source: Error,
    },
}

impl AcquireError {
    /// Whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::Lost(_) => true,
            Self::TooHeavy { .. } => false,
            Self::Unavailable { source, .. } => source.is_retryable(),
        }
    }
}
