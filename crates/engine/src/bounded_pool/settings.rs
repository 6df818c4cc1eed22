//! What a pool is told when it is made.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::{Error, Permits, PoolName, Result};

use super::BoundedPool;
use super::alerts::{Alarm, LogAlarm};
use super::desk::Desk;

/// What to do while the back end cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnOutage {
    /// Nobody gets a permit; whoever waits goes on trying until its time is over. A permit whose lease
    /// cannot be extended is lost when it runs out.
    #[default]
    FailClosed,
    /// After a few tries each process gives permits of its own, up to this weight: together that may be
    /// more than the pool's maximum. They are not the pool's: none is added when it is back. What is held
    /// stays held until the back end says otherwise.
    FailOpen {
        /// Most weight that this process gives by itself.
        most: u32,
    },
}

/// A maximum that is found by trying: `longshore_core::adaptive` decides, from how long permits are held
/// and what their holders say of it ([`super::Permit::note`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdaptiveMax {
    /// Never less than this.
    pub min: u32,
    /// Never more than this.
    pub max: u32,
    /// How much time is looked at together.
    pub window: Duration,
}

impl AdaptiveMax {
    /// What the names of pools end with that say who steers.
    const STEERING: &str = ":adaptive";

    /// The pool whose one permit the process holds that steers the maximum of this one.
    pub fn steering(name: &PoolName) -> Result<PoolName> {
        let name = PoolName::new(format!("{name}{}", Self::STEERING));
        name.map_err(|error| Error::Invalid(error.to_string()))
    }

    /// Whether a pool is one that says who steers another.
    pub fn is_steering(name: &PoolName) -> bool {
        name.as_str().ends_with(Self::STEERING)
    }
}

pub(super) struct Settings {
    pub(super) max: u32,
    pub(super) wait: Option<Duration>,
    pub(super) ttl: Duration,
    pub(super) alert_every: Duration,
    pub(super) on_outage: OnOutage,
    pub(super) adaptive: Option<AdaptiveMax>,
    pub(super) owner: Arc<str>,
    pub(super) alarm: Arc<dyn Alarm>,
}

impl Settings {
    /// How long a place in line is kept for one who does not ask: whoever died is in the way no longer.
    pub(super) fn place(&self) -> Duration {
        (self.ttl / 3).clamp(Duration::from_millis(200), Duration::from_secs(10))
    }
}

/// Puts a [`BoundedPool`] together.
pub struct BoundedPoolBuilder {
    permits: Arc<dyn Permits>,
    name: PoolName,
    settings: Settings,
}

impl BoundedPoolBuilder {
    pub(super) fn new(permits: Arc<dyn Permits>, name: PoolName, max: u32) -> Self {
        let settings = Settings {
            max,
            wait: None,
            ttl: Duration::from_secs(30),
            alert_every: Duration::from_secs(300),
            on_outage: OnOutage::default(),
            adaptive: None,
            owner: format!("process {}", std::process::id()).into(),
            alarm: Arc::new(LogAlarm),
        };
        Self { permits, name, settings }
    }

    /// How long to wait for a permit; zero for ever, which is the default.
    #[must_use]
    pub fn wait(mut self, limit: Duration) -> Self {
        self.settings.wait = (!limit.is_zero()).then_some(limit);
        self
    }

    /// How long a holder that died keeps its permits: 30 s unless said otherwise, at least 100 ms. While it
    /// lives they are extended three times as often.
    #[must_use]
    pub fn lease(mut self, ttl: Duration) -> Self {
        self.settings.ttl = ttl.max(Duration::from_millis(100));
        self
    }

    /// How often each alert is told at most, by all processes together: every 5 minutes unless said
    /// otherwise.
    #[must_use]
    pub fn alert_every(mut self, every: Duration) -> Self {
        self.settings.alert_every = every;
        self
    }

    /// What to do while the back end is away.
    #[must_use]
    pub fn on_outage(mut self, on_outage: OnOutage) -> Self {
        self.settings.on_outage = on_outage;
        self
    }

    /// Lets the maximum find itself.
    #[must_use]
    pub fn adaptive(mut self, adaptive: AdaptiveMax) -> Self {
        self.settings.adaptive = Some(adaptive);
        self
    }

    /// Who holds, for people to read: host, process, purpose.
    #[must_use]
    pub fn owner(mut self, owner: &str) -> Self {
        self.settings.owner = owner.into();
        self
    }

    /// Who is told of alerts: the log, unless said otherwise.
    #[must_use]
    pub fn alarm(mut self, alarm: Arc<dyn Alarm>) -> Self {
        self.settings.alarm = alarm;
        self
    }

    /// The pool. Nothing is asked of the back end yet.
    pub fn build(self) -> BoundedPool {
        BoundedPool(Arc::new(Desk::new(self.permits, self.name, self.settings)))
    }
}
