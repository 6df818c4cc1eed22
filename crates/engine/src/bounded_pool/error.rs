//! Why there is no permit.

use std::time::Duration;

use longshore_core::{Error, PoolName};

/// Why there is no permit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The wait was longer than it may be.
    #[error("no permit of pool `{pool}` within {limit:?}")]
    TimedOut {
        /// Which pool.
        pool: PoolName,
        /// How long it waited.
        limit: Duration,
    },
    /// No waiting would help, unless the pool is enlarged.
    #[error("a weight of {weight} is more than pool `{pool}` has ({max})")]
    TooHeavy {
        /// Which pool.
        pool: PoolName,
        /// What was asked for.
        weight: u32,
        /// All that there is.
        max: u32,
    },
    /// It was there, and was lost while it was needed: its lease ran out or the pool was reset.
    #[error("the permit of pool `{0}` was lost while it was in use")]
    Lost(PoolName),
    /// The back end could not say, and the pool does not open without it.
    #[error("pool `{pool}` cannot be reached")]
    Unavailable {
        /// Which pool.
        pool: PoolName,
        /// What the back end said.
        #[source]
        source: Error,
    },
}

impl AcquireError {
    /// Whether the same request may work later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::Lost(_) => true,
            Self::TooHeavy { .. } => false,
            Self::Unavailable { source, .. } => source.is_retryable(),
        }
    }
}
