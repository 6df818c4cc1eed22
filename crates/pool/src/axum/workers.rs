//! Extractors: the app's pools, its database.

use std::ops::Deref;

use ::axum::extract::{FromRef, FromRequestParts};
use ::axum::http::request::Parts;

use super::pools::Pools;
#[cfg(feature = "database")]
use crate::database::Db;
use crate::error::CallError;
use crate::pool::WorkerPool;

/// Extractor of the app's first pool, with access to the others.
///
/// ```
/// use axum::body::Bytes;
/// use longshore_pool::CallError;
/// use longshore_pool::axum::WorkerPools;
///
/// async fn upload(workers: WorkerPools, image: Bytes) -> Result<String, CallError> {
///     let lines = workers.run_blocking(move || image.split(|byte| *byte == b'\n').count()).await?;
///     let words: String = workers.pool("python")?.call("describe", &lines).await?;
///     Ok(words)
/// }
/// ```
#[derive(Debug, Clone)]
pub struct WorkerPools {
    pools: Pools,
    first: WorkerPool,
}

impl WorkerPools {
    /// A pool by name.
    pub fn pool(&self, name: &str) -> Result<&WorkerPool, CallError> {
        self.pools.pool(name)
    }

    /// A database by name.
    #[cfg(feature = "database")]
    pub fn db(&self, name: &str) -> Result<&Db, CallError> {
        self.pools.db(name)
    }

    /// All pools.
    pub fn pools(&self) -> &Pools {
        &self.pools
    }

    /// Runs a closure on a worker thread, in the first pool of threads.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        closure: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallError> {
        self.pools.first_of_threads()?.run_blocking(closure).await
    }
}

/// The app's first pool.
impl Deref for WorkerPools {
    type Target = WorkerPool;

    fn deref(&self) -> &WorkerPool {
        &self.first
    }
}

impl<S> FromRequestParts<S> for WorkerPools
where
    S: Send + Sync,
    Pools: FromRef<S>,
{
    type Rejection = CallError;

    async fn from_request_parts(_: &mut Parts, state: &S) -> Result<Self, CallError> {
        let pools = Pools::from_ref(state);
        let first = pools.first()?.clone();
        Ok(Self { pools, first })
    }
}

/// Extractor of the app's first database. For others see [`WorkerPools::db`].
#[cfg(feature = "database")]
impl<S> FromRequestParts<S> for Db
where
    S: Send + Sync,
    Pools: FromRef<S>,
{
    type Rejection = CallError;

    async fn from_request_parts(_: &mut Parts, state: &S) -> Result<Self, CallError> {
        Pools::from_ref(state).first_db().cloned()
    }
}
