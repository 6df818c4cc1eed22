//! Bounded pools over HTTP: stats and resize. Programs that hold permits over HTTP use the API itself, where
//! a permit is a lease that expires.

use std::time::Duration;

use async_trait::async_trait;
use longshore::permits::{AcquireRequest, AcquireResult, PoolChange, PoolStats};
use longshore::{PermitId, Permits, PoolName, Result};

use super::unsupported::unsupported;
use crate::client::ApiClient;

const NO_PERMITS: &str = "permits cannot be held by this client";

/// The bounded pools of a server.
pub struct RemotePermits(ApiClient);

impl RemotePermits {
    /// The pools of this server.
    pub fn new(api: ApiClient) -> Self {
        Self(api.with_patience(Duration::ZERO))
    }
}

#[async_trait]
impl Permits for RemotePermits {
    async fn acquire(&self, _: &PoolName, _: &AcquireRequest) -> Result<AcquireResult> {
        unsupported(NO_PERMITS)
    }
    async fn wait_for_wakeup(&self, _: &PoolName, _: PermitId) {
        std::future::pending::<()>().await;
    }
    async fn renew(&self, _: &PoolName, _: &[PermitId], _: Duration) -> Result<Vec<PermitId>> {
        unsupported(NO_PERMITS)
    }
    async fn release(&self, _: &PoolName, _: &[PermitId], _: bool) -> Result<()> {
        unsupported(NO_PERMITS)
    }
    async fn change_pool(&self, pool: &PoolName, change: PoolChange) -> Result<Option<u32>> {
        let max = match change {
            PoolChange::Resize(max) => max,
            PoolChange::Create(_) => return unsupported("pools cannot be created over HTTP"),
            PoolChange::Reset => return unsupported("pools cannot be reset over HTTP"),
        };
        let resized = self.0.resize_pool(pool, max).await;
        resized.map(|()| None).map_err(|error| error.into_store_error("pool", pool))
    }
    async fn pools(&self, name: Option<&PoolName>) -> Result<Vec<(PoolName, PoolStats)>> {
        let all = self.0.pools().await.map_err(|error| error.into_store_error("pool", ""))?;
        let wanted = all.into_iter().filter(|shown| name.is_none_or(|name| shown.pool == *name));
        Ok(wanted.map(|shown| (shown.pool.clone(), shown.into())).collect())
    }
    async fn acquire_alert(&self, _: &PoolName, _: &str, _: Duration) -> Result<bool> {
        unsupported(NO_PERMITS)
    }
}
