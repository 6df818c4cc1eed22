//! Bounded pools as seen through a server: looked at and sized. Whoever holds permits over HTTP uses the
//! API itself, where a permit is a lease that ends by itself.

use std::time::Duration;

use async_trait::async_trait;
use longshore::permits::{Answer, Ask, Leaving, PoolStats};
use longshore::{PermitId, Permits, PoolName, Result};

use super::absent::absent;
use crate::client::{ApiClient, ShownPool};

const HOLDING: &str = "permits are not held over a server";

/// The bounded pools of a server.
pub struct FarPermits(ApiClient);

impl FarPermits {
    /// Those of this server.
    pub fn new(api: ApiClient) -> Self {
        Self(api.with_patience(Duration::ZERO))
    }

    async fn all(&self) -> Result<Vec<ShownPool>> {
        self.0.pools().await.map_err(|error| error.into_store("pool", ""))
    }
}

#[async_trait]
impl Permits for FarPermits {
    async fn ask(&self, _: &PoolName, _: &Ask) -> Result<Answer> {
        absent(HOLDING)
    }
    async fn turn(&self, _: &PoolName, _: PermitId) {
        std::future::pending::<()>().await;
    }
    async fn extend(&self, _: &PoolName, _: &[PermitId], _: Duration) -> Result<Vec<PermitId>> {
        absent(HOLDING)
    }
    async fn release(&self, _: &PoolName, _: &[PermitId]) -> Result<()> {
        absent(HOLDING)
    }
    async fn leave(&self, _: &PoolName, _: PermitId, _: Leaving) -> Result<()> {
        absent(HOLDING)
    }
    async fn init(&self, _: &PoolName, _: u32) -> Result<Option<u32>> {
        absent("pools are not made known over a server")
    }
    async fn resize(&self, pool: &PoolName, max: u32) -> Result<()> {
        self.0.resize_pool(pool, max).await.map_err(|error| error.into_store("pool", pool))
    }
    async fn reset(&self, _: &PoolName) -> Result<()> {
        absent("pools are not reset over a server")
    }
    async fn stats(&self, pool: &PoolName) -> Result<Option<PoolStats>> {
        let found = self.all().await?.into_iter().find(|shown| shown.pool == *pool);
        Ok(found.map(PoolStats::from))
    }
    async fn pools(&self) -> Result<Vec<PoolName>> {
        Ok(self.all().await?.into_iter().map(|shown| shown.pool).collect())
    }
    async fn may_alert(&self, _: &PoolName, _: &str, _: Duration) -> Result<bool> {
        absent(HOLDING)
    }
}
