//! Bounded pools as the configuration has them, and where their permits are kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longshore::{AdaptiveMax, Alarm, BoundedPool, OnOutage, Permits, PoolBook, PoolName};
#[cfg(feature = "standard")]
use longshore_redis::{RedisOptions, RedisPermits};

use crate::alarms::Alarms;
use crate::error::{WithHint, did_you_mean, hinted, usage};
use crate::settings::Settings;
use crate::store::{self, StoreUrl};
use crate::whoami;

/// What the configuration says of pools.
#[derive(Debug, Clone)]
pub struct BoundedSettings {
    /// Where permits are kept.
    pub at: PermitsAt,
    /// The pools by their names.
    pub pools: BTreeMap<PoolName, BoundedShape>,
}

/// Where permits are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermitsAt {
    /// In the store.
    Store,
    /// On a Redis or Valkey.
    Redis(RedisUrl),
}

/// A URL that may hold a password, and is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

impl std::fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedisUrl(…)")
    }
}

/// One section `[pools.NAME]`, as it is meant.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundedShape {
    /// Permits.
    pub max: u32,
    /// Longest wait for one; nothing is for ever.
    pub wait: Duration,
    /// How long a holder that died keeps its permit.
    pub lease: Duration,
    /// Between two alerts of one kind.
    pub alert_every: Duration,
    /// What to do while the permits cannot be reached.
    pub on_outage: OnOutage,
    /// Bounds of a maximum that finds itself.
    pub adaptive: Option<AdaptiveMax>,
}

impl Default for BoundedShape {
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
    /// The pool's own section, or one that `max` makes up for.
    pub fn shape(&self, name: &PoolName, max: Option<u32>) -> anyhow::Result<BoundedShape> {
        let mut shape = match (self.pools.get(name), max) {
            (Some(shape), _) => shape.clone(),
            (None, Some(_)) => BoundedShape::default(),
            (None, None) => return Err(self.unknown(name)),
        };
        shape.max = max.unwrap_or(shape.max);
        Ok(shape)
    }

    fn unknown(&self, name: &PoolName) -> anyhow::Error {
        let meant = did_you_mean(name.as_str(), self.pools.keys().map(PoolName::as_str));
        let meant = meant.map_or(String::new(), |meant| format!(", did you mean `{meant}`?"));
        let error = usage(format!("nobody says how many permits pool `{name}` has{meant}"));
        hinted(error, format!("say --max N, or write [pools.{name}] max = N into longshore.toml"))
    }
}

/// Reaches the permits.
pub async fn open(settings: &Settings) -> anyhow::Result<Arc<dyn Permits>> {
    #[cfg(feature = "standard")]
    if let Some(server) = &settings.server {
        return Ok(Arc::new(longshore_web::client::FarPermits::new(server.clone())));
    }
    match &settings.bounded.at {
        PermitsAt::Store => store::open_permits(settings).await,
        #[cfg(feature = "standard")]
        PermitsAt::Redis(url) => {
            let permits = open_redis(url)?;
            permits.check().await.hint("`permits` of the configuration says where they are")?;
            Ok(Arc::new(permits))
        }
        #[cfg(not(feature = "standard"))]
        PermitsAt::Redis(url) => open_redis(url),
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

/// A pool with what the configuration says of it.
pub fn pool(
    permits: Arc<dyn Permits>,
    name: PoolName,
    shape: &BoundedShape,
    alarm: Arc<dyn Alarm>,
) -> BoundedPool {
    let owner =
        format!("{} on {}, process {}", whoami::user_name(), whoami::host(), std::process::id());
    let pool = BoundedPool::builder(permits, name, shape.max)
        .wait(shape.wait)
        .lease(shape.lease)
        .alert_every(shape.alert_every)
        .on_outage(shape.on_outage)
        .owner(&owner)
        .alarm(alarm);
    match shape.adaptive {
        Some(adaptive) => pool.adaptive(adaptive).build(),
        None => pool.build(),
    }
}

/// All pools of the configuration, for those who name one in their own settings. Nothing is asked of where
/// their permits are until somebody needs one: a server that is away is the pool's matter.
pub async fn book(settings: &Settings) -> anyhow::Result<PoolBook> {
    let BoundedSettings { at, pools } = &settings.bounded;
    if pools.is_empty() {
        return Ok(PoolBook::default());
    }
    let permits: Arc<dyn Permits> = match at {
        PermitsAt::Store => store::open_permits(settings).await?,
        #[cfg(feature = "standard")]
        PermitsAt::Redis(url) => Arc::new(open_redis(url)?),
        #[cfg(not(feature = "standard"))]
        PermitsAt::Redis(url) => open_redis(url)?,
    };
    let alarm = Alarms::open(&settings.alerts)?;
    let all = pools.iter();
    let all = all
        .map(|(name, shape)| pool(Arc::clone(&permits), name.clone(), shape, Arc::clone(&alarm)));
    Ok(all.collect())
}

impl std::str::FromStr for PermitsAt {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text.split_once(':').map_or(text, |(scheme, _)| scheme) {
            "" => Ok(Self::Store),
            "redis" | "rediss" | "redis+unix" | "unix" => {
                Ok(Self::Redis(RedisUrl(text.to_owned())))
            }
            _ if text.parse::<StoreUrl>().is_ok() => {
                Err(usage("permits are kept in the store, or on Redis"))
                    .hint("leave `permits` empty, and say with `store` which store is meant")
            }
            _ => Err(usage("that is no place for permits"))
                .hint("\"\" is the store; redis://HOST:PORT a Redis or Valkey"),
        }
    }
}
