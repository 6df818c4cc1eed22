//! Settings and builder of a pool.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::{Error, Permits, PoolName, Result};

use super::BoundedPool;
use super::alerts::{AlertSink, LogAlertSink};
use super::inner::PoolInner;
use crate::HeartbeatPlacement;

/// What to do while the backend is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnOutage {
    /// Grant no permits; waiting requests retry until they time out. A permit is lost when its
    /// lease expires.
    #[default]
    FailClosed,
    /// After a few tries each process grants local permits up to this weight, so that all processes
    /// together may exceed the pool's maximum. Local permits are not added to the pool after the
    /// outage. Held permits are kept until the backend reports them lost.
    FailOpen {
        /// Maximum weight of this process's local permits.
        max_weight: u32,
    },
}

/// An adaptive maximum. `longshore_core::concurrency_limit` decides it from how long permits are held and
/// how the work went ([`super::Permit::set_outcome`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdaptiveMax {
    /// Lower bound.
    pub min: u32,
    /// Upper bound.
    pub max: u32,
    /// The length of a measurement window.
    pub window: Duration,
}

impl AdaptiveMax {
    /// Suffix of the names that [`Self::steering`] returns.
    const STEERING: &str = ":adaptive";

    /// The name of a second pool with one permit. Its holder adjusts the maximum of `name`.
    pub fn controller_pool(name: &PoolName) -> Result<PoolName> {
        let name = PoolName::new(format!("{name}{}", Self::STEERING));
        name.map_err(|error| Error::Invalid(error.to_string()))
    }

    /// Whether a pool is one of [`Self::controller_pool`].
    pub fn is_controller_pool(name: &PoolName) -> bool {
        name.as_str().ends_with(Self::STEERING)
    }
}

pub(super) struct PoolSettings {
    pub(super) max: u32,
    pub(super) wait: Option<Duration>,
    pub(super) ttl: Duration,
    pub(super) alert_every: Duration,
    pub(super) on_outage: OnOutage,
    pub(super) adaptive: Option<AdaptiveMax>,
    pub(super) owner: Arc<str>,
    pub(super) alarm: Arc<dyn AlertSink>,
    pub(super) renewals: HeartbeatPlacement,
}

impl PoolSettings {
    /// How long a waiter that does not ask again stays queued, so that a dead waiter does not block
    /// the others.
    pub(super) fn queue_ttl(&self) -> Duration {
        (self.ttl / 3).clamp(Duration::from_millis(200), Duration::from_secs(10))
    }
}

/// Builder of a [`BoundedPool`].
pub struct BoundedPoolBuilder {
    permits: Arc<dyn Permits>,
    name: PoolName,
    settings: PoolSettings,
}

impl BoundedPoolBuilder {
    pub(super) fn new(permits: Arc<dyn Permits>, name: PoolName, max: u32) -> Self {
        let settings = PoolSettings {
            max,
            wait: None,
            ttl: Duration::from_secs(30),
            alert_every: Duration::from_secs(300),
            on_outage: OnOutage::default(),
            adaptive: None,
            owner: format!("process {}", std::process::id()).into(),
            alarm: Arc::new(LogAlertSink),
            renewals: HeartbeatPlacement::default(),
        };
        Self { permits, name, settings }
    }

    /// Sets how long to wait for a permit; zero, the default, waits for ever.
    #[must_use]
    pub fn wait(mut self, limit: Duration) -> Self {
        self.settings.wait = (!limit.is_zero()).then_some(limit);
        self
    }

    /// Sets the lease: how long a dead holder keeps its permits. Default 30 s, at least 100 ms.
    /// Live holders renew it three times per lease.
    #[must_use]
    pub fn lease(mut self, ttl: Duration) -> Self {
        self.settings.ttl = ttl.max(Duration::from_millis(100));
        self
    }

    /// Sets how often each alert is sent at most, by all processes together. Default 5 minutes.
    #[must_use]
    pub fn alert_every(mut self, every: Duration) -> Self {
        self.settings.alert_every = every;
        self
    }

    /// Sets what to do while the backend is unavailable.
    #[must_use]
    pub fn on_outage(mut self, on_outage: OnOutage) -> Self {
        self.settings.on_outage = on_outage;
        self
    }

    /// Adapts the maximum to the load.
    #[must_use]
    pub fn adaptive(mut self, adaptive: AdaptiveMax) -> Self {
        self.settings.adaptive = Some(adaptive);
        self
    }

    /// Sets the holder's name in statistics: host, process, purpose.
    #[must_use]
    pub fn owner(mut self, owner: &str) -> Self {
        self.settings.owner = owner.into();
        self
    }

    /// Sets the receiver of alerts. Default: the log.
    #[must_use]
    pub fn alert_sink(mut self, alarm: Arc<dyn AlertSink>) -> Self {
        self.settings.alarm = alarm;
        self
    }

    /// Sets where leases are renewed. Default: on a thread that all pools of the process share, so that
    /// work that blocks its runtime keeps its permits.
    #[must_use]
    pub fn renewals(mut self, renewals: HeartbeatPlacement) -> Self {
        self.settings.renewals = renewals;
        self
    }

    /// Builds the pool, without a call to the backend.
    pub fn build(self) -> BoundedPool {
        BoundedPool(Arc::new(PoolInner::new(self.permits, self.name, self.settings)))
    }
}
