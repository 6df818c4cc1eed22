//! Ours: the `Permits` trait itself, and the `BoundedPool` that programs use.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use async_trait::async_trait;
use longshore::permits::{AcquireRequest, AcquireResult, IfFull};
use longshore::{BoundedPool, PermitId, Permits, PoolName, Priority};
use longshore_redis::{RedisOptions, RedisPermits};

use crate::figures::Figures;
use crate::run::{Contestant, Load, Pair, measure};

/// Short: a server without persistence grants permits only once it is older than a lease, see [`Seam::open`].
const LEASE: Duration = Duration::from_secs(2);

fn open(url: &str) -> Result<Arc<RedisPermits>> {
    Ok(Arc::new(RedisPermits::open(url, &RedisOptions::default())?))
}

/// The methods of the trait, without a pool.
pub(crate) struct Seam(Arc<RedisPermits>);

impl Seam {
    /// Waits until the server grants permits: it has no persistence and must first be older than a lease.
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let user = User { permits: open(url)?, pool: PoolName::new("warm")?, max: 1 };
        user.pair().await?;
        Ok(Self(user.permits))
    }
}

struct User {
    permits: Arc<RedisPermits>,
    pool: PoolName,
    max: u32,
}

#[async_trait]
impl Pair for User {
    async fn pair(&self) -> Result<()> {
        let ask = AcquireRequest {
            id: PermitId::new(),
            max: self.max,
            weight: 1,
            priority: Priority::NORMAL,
            owner: "bench".into(),
            ttl: LEASE,
            if_full: IfFull::Wait(LEASE),
        };
        loop {
            match self.permits.acquire(&self.pool, &ask).await? {
                AcquireResult::Granted(_) => break,
                AcquireResult::Waiting { retry_after, .. } => {
                    let turn = self.permits.wait_for_wakeup(&self.pool, ask.id);
                    // After a wake-up or the timeout the request is repeated.
                    let _ = tokio::time::timeout(retry_after, turn).await;
                }
                other => bail!("not in line but {other:?}"),
            }
        }
        Ok(self.permits.release(&self.pool, &[ask.id], false).await?)
    }
}

#[async_trait]
impl Contestant for Seam {
    fn name(&self) -> &'static str {
        "ours"
    }

    async fn run(&self, load: &Load, seconds: f64) -> Result<Figures> {
        let pool = PoolName::new(format!("seam-{}", load.permits))?;
        let make = || {
            let (permits, pool) = (Arc::clone(&self.0), pool.clone());
            Arc::new(User { permits, pool, max: load.permits }) as Arc<dyn Pair>
        };
        measure((0..load.tasks).map(|_| make()).collect(), seconds).await
    }
}

/// The pool that programs use.
pub(crate) struct Pool(Arc<RedisPermits>);

impl Pool {
    pub(crate) fn open(url: &str) -> Result<Self> {
        Ok(Self(open(url)?))
    }
}

struct PoolUser(BoundedPool);

#[async_trait]
impl Pair for PoolUser {
    async fn pair(&self) -> Result<()> {
        Ok(self.0.acquire().await?.release().await?)
    }
}

#[async_trait]
impl Contestant for Pool {
    fn name(&self) -> &'static str {
        "our BoundedPool"
    }

    async fn run(&self, load: &Load, seconds: f64) -> Result<Figures> {
        let name = PoolName::new(format!("pool-{}", load.permits))?;
        let permits = Arc::clone(&self.0) as Arc<dyn Permits>;
        let pool = BoundedPool::builder(permits, name, load.permits).lease(LEASE).build();
        let make = |_| Arc::new(PoolUser(pool.clone())) as Arc<dyn Pair>;
        measure((0..load.tasks).map(make).collect(), seconds).await
    }
}
