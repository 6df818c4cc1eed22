//! Bounded pools as configured, and the store of their permits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longshore::{AdaptiveMax, AlertSink, BoundedPool, OnOutage, Permits, PoolName, PoolRegistry};
#[cfg(feature = "standard")]
use longshore_redis::{RedisOptions, RedisPermits};

use crate::alert_sinks::AlertSinks;
use crate::error::{WithHint, hinted, suggestion, usage};
use crate::host_identity;
use crate::settings::Settings;
use crate::store::{self, StoreUrl};

/// The resolved configuration of bounded pools.
#[derive(Debug, Clone)]
pub struct BoundedSettings {
    /// The store of the permits.
    pub at: PermitStore,
    /// The pools by their names.
    pub pools: BTreeMap<PoolName, BoundedPoolSettings>,
}

/// The store of the permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermitStore {
    /// The units' store.
    Store,
    /// A Redis or Valkey server.
    Redis(RedisUrl),
}

/// A URL that may hold a password, and is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

impl std::fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedisUrl(…)")
    }
}

/// One resolved section `[pools.NAME]`.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundedPoolSettings {
    /// The number of permits.
    pub max: u32,
    /// Maximum wait for a permit; zero is for ever.
    pub wait: Duration,
    /// How long a dead holder keeps its permit.
    pub lease: Duration,
    /// Interval between two alerts of one kind.
    pub alert_every: Duration,
    /// What to do while the permits' store is unavailable.
    pub on_outage: OnOutage,
    /// Bounds of an adaptive maximum.
    pub adaptive: Option<AdaptiveMax>,
}

impl Default for BoundedPoolSettings {
    fn default() -> Self {
        Self {
            max: 1,
            wait: Duration::ZERO,
            lease: Duration::from_secs(30),
            alert_every: Duration::from_secs(300),
            on_outage: OnOutage::FailClosed,
            adaptive: None,
        }
    }
}

impl BoundedSettings {
    /// The pool's own section, or a default one with `max` permits.
    pub fn shape(&self, name: &PoolName, max: Option<u32>) -> anyhow::Result<BoundedPoolSettings> {
        let mut shape = match (self.pools.get(name), max) {
            (Some(shape), _) => shape.clone(),
            (None, Some(_)) => BoundedPoolSettings::default(),
            (None, None) => return Err(self.unknown(name)),
        };
        shape.max = max.unwrap_or(shape.max);
        Ok(shape)
    }

    fn unknown(&self, name: &PoolName) -> anyhow::Error {
        let suggestion = suggestion(name.as_str(), self.pools.keys().map(PoolName::as_str));
        let error = usage(format!("the size of pool `{name}` is unknown{suggestion}"));
        hinted(error, format!("use --max N, or write [pools.{name}] max = N into longshore.toml"))
    }
}

/// Opens the permits' store.
pub async fn open(settings: &Settings) -> anyhow::Result<Arc<dyn Permits>> {
    #[cfg(feature = "standard")]
    if let Some(server) = &settings.server {
        return Ok(Arc::new(longshore_web::client::RemotePermits::new(server.clone())));
    }
    match &settings.bounded.at {
        PermitStore::Store => store::open_permits(settings).await,
        #[cfg(feature = "standard")]
        PermitStore::Redis(url) => {
            let permits = open_redis(url)?;
            permits.check().await.hint("`permits` of the configuration names the server")?;
            Ok(Arc::new(permits))
        }
        #[cfg(not(feature = "standard"))]
        PermitStore::Redis(url) => open_redis(url),
    }
}

#[cfg(feature = "standard")]
fn open_redis(RedisUrl(url): &RedisUrl) -> anyhow::Result<RedisPermits> {
    Ok(RedisPermits::open(url, &RedisOptions::default())?)
}

#[cfg(not(feature = "standard"))]
fn open_redis(_: &RedisUrl) -> anyhow::Result<Arc<dyn Permits>> {
    Err(usage("the quickstart build keeps no permits on Redis"))
        .hint("for a build that does: cargo build --release")
}

/// Builds a configured pool.
pub fn pool(
    permits: Arc<dyn Permits>,
    name: PoolName,
    shape: &BoundedPoolSettings,
    alarm: Arc<dyn AlertSink>,
) -> BoundedPool {
    let owner = format!(
        "{} on {}, process {}",
        host_identity::user_name(),
        host_identity::host(),
        std::process::id()
    );
    let pool = BoundedPool::builder(permits, name, shape.max)
        .wait(shape.wait)
        .lease(shape.lease)
        .alert_every(shape.alert_every)
        .on_outage(shape.on_outage)
        .owner(&owner)
        .alert_sink(alarm);
    match shape.adaptive {
        Some(adaptive) => pool.adaptive(adaptive).build(),
        None => pool.build(),
    }
}

/// All pools of the configuration, for components that refer to one by name. The permits' store is
/// not contacted before the first acquire: the pool handles its outage.
pub async fn registry(settings: &Settings) -> anyhow::Result<PoolRegistry> {
    let BoundedSettings { at, pools } = &settings.bounded;
    if pools.is_empty() {
        return Ok(PoolRegistry::default());
    }
    let permits: Arc<dyn Permits> = match at {
        PermitStore::Store => store::open_permits(settings).await?,
        #[cfg(feature = "standard")]
        PermitStore::Redis(url) => Arc::new(open_redis(url)?),
        #[cfg(not(feature = "standard"))]
        PermitStore::Redis(url) => open_redis(url)?,
    };
    let alarm = AlertSinks::open(&settings.alerts)?;
    let all = pools.iter();
    let all = all.map(|(name, shape)| pool(Arc::clone(&permits), name.clone(), shape, Arc::clone(&alarm)));
    Ok(all.collect())
}

impl std::str::FromStr for PermitStore {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text.split_once(':').map_or(text, |(scheme, _)| scheme) {
            "" => Ok(Self::Store),
            "redis" | "rediss" | "redis+unix" | "unix" => Ok(Self::Redis(RedisUrl(text.to_owned()))),
            _ if text.parse::<StoreUrl>().is_ok() => Err(usage("permits are kept in the store, or on Redis"))
                .hint("leave `permits` empty, and name the store with `store`"),
            _ => Err(usage("`permits` is not a supported URL"))
                .hint("use \"\" for the store, or redis://HOST:PORT for Redis or Valkey"),
        }
    }
}
