//! Bounded pools over HTTP: stats and resize. Programs that hold permits over HTTP use the API itself, where
//! a permit is a lease that expires.

use std::time::Duration;

use async_trait::async_trait;
use longshore::permits::{Answer, Ask, Leaving, PoolStats};
use longshore::{PermitId, Permits, PoolName, Result};

use super::unsupported::unsupported;
use crate::client::{ApiClient, PoolView};

const NO_PERMITS: &str = "permits cannot be held by this client";

/// The bounded pools of a server.
pub struct FarPermits(ApiClient);

impl FarPermits {
    /// The pools of this server.
    pub fn new(api: ApiClient) -> Self {
        Self(api.with_patience(Duration::ZERO))
    }

    async fn all(&self) -> Result<Vec<PoolView>> {
        self.0.pools().await.map_err(|error| error.into_store_error("pool", ""))
    }
}

#[async_trait]
impl Permits for FarPermits {
    async fn ask(&self, _: &PoolName, _: &Ask) -> Result<Answer> {
        unsupported(NO_PERMITS)
    }
    async fn turn(&self, _: &PoolName, _: PermitId) {
        std::future::pending::<()>().await;
    }
    async fn extend(&self, _: &PoolName, _: &[PermitId], _: Duration) -> Result<Vec<PermitId>> {
        unsupported(NO_PERMITS)
    }
    async fn release(&self, _: &PoolName, _: &[PermitId]) -> Result<()> {
        unsupported(NO_PERMITS)
    }
    async fn leave(&self, _: &PoolName, _: PermitId, _: Leaving) -> Result<()> {
        unsupported(NO_PERMITS)
    }
    async fn init(&self, _: &PoolName, _: u32) -> Result<Option<u32>> {
        unsupported("pools cannot be created over HTTP")
    }
    async fn resize(&self, pool: &PoolName, max: u32) -> Result<()> {
        self.0.resize_pool(pool, max).await.map_err(|error| error.into_store_error("pool", pool))
    }
    async fn reset(&self, _: &PoolName) -> Result<()> {
        unsupported("pools cannot be reset over HTTP")
    }
    async fn stats(&self, pool: &PoolName) -> Result<Option<PoolStats>> {
        let found = self.all().await?.into_iter().find(|shown| shown.pool == *pool);
        Ok(found.map(PoolStats::from))
    }
    async fn pools(&self) -> Result<Vec<PoolName>> {
        Ok(self.all().await?.into_iter().map(|shown| shown.pool).collect())
    }
    async fn may_alert(&self, _: &PoolName, _: &str, _: Duration) -> Result<bool> {
        unsupported(NO_PERMITS)
    }
}
