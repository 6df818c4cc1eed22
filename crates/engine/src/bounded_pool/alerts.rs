//! What somebody should know of a pool, told once for all processes and not too often.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use longshore_core::PoolName;
use longshore_core::permits::PoolStats;
use tokio::time::Instant;

use super::desk::Desk;

/// What an alert is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PoolAlertKind {
    /// Somebody had to wait, or went away: everything is in use.
    AtCapacity,
    /// Somebody waited too long.
    TimedOut,
    /// The back end does not answer. Told once a minute by each process: they cannot ask each other.
    BackEndLost,
}

impl PoolAlertKind {
    /// Its name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AtCapacity => "at-capacity",
            Self::TimedOut => "timed-out",
            Self::BackEndLost => "back-end-lost",
        }
    }

    /// What happened, for people to read.
    pub fn words(self) -> &'static str {
        match self {
            Self::AtCapacity => "a bounded pool is at capacity",
            Self::TimedOut => "somebody waited too long for a bounded pool",
            Self::BackEndLost => "the back end of a bounded pool does not answer",
        }
    }
}

/// Something that somebody should know of.
#[derive(Debug, Clone, serde::Serialize)]
pub struct PoolAlert {
    /// Which pool.
    pub pool: PoolName,
    /// What it is.
    pub kind: PoolAlertKind,
    /// How the pool stands; unknown if the back end is away.
    pub stats: Option<PoolStats>,
    /// What the back end said, if that is the matter.
    pub error: String,
}

/// Where alerts go.
#[async_trait]
pub trait Alarm: Send + Sync + 'static {
    /// Tells somebody. Called beside the pool's work, one alert at a time for each kind.
    async fn raise(&self, alert: &PoolAlert);
}

/// Alerts go to the log.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogAlarm;

#[async_trait]
impl Alarm for LogAlarm {
    async fn raise(&self, alert: &PoolAlert) {
        let PoolAlert { pool, kind, stats, error } = alert;
        let stats = stats.clone().unwrap_or_default();
        let waited = stats.waits.percentile(0.95).unwrap_or_default();
        match kind {
            PoolAlertKind::BackEndLost => tracing::error!(%pool, %error, "{}", kind.words()),
            PoolAlertKind::AtCapacity | PoolAlertKind::TimedOut => tracing::error!(
                %pool,
                alert = kind.as_str(),
                max = stats.max,
                in_use = stats.in_use,
                waiting = stats.waiting.len(),
                acquired = stats.acquired,
                timeouts = stats.timeouts,
                p95_wait_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
                "{}", kind.words()
            ),
        }
    }
}

/// Between two reports of one outage.
const OUTAGE: Duration = Duration::from_secs(60);

/// Until when this process does not even ask whether it may tell.
#[derive(Default)]
pub(super) struct Throttle(Mutex<[Option<Instant>; 3]>);

impl Throttle {
    /// Whether it is time; if so not again for `silence`.
    fn passes(&self, kind: PoolAlertKind, silence: Duration) -> bool {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (time, now) = (&mut times[kind as usize], Instant::now());
        let passes = time.is_none_or(|time| time <= now);
        if passes {
            *time = Some(now + silence);
        }
        passes
    }
}

impl Desk {
    /// Tells somebody, unless it was told lately.
    pub(super) fn alert(self: &Arc<Self>, kind: PoolAlertKind, error: &str) {
        let every = self.settings.alert_every;
        let silence = match kind {
            PoolAlertKind::BackEndLost => OUTAGE,
            // Another process may have told it; its silence ends before ours would.
            _ => every / 4,
        };
        if !self.throttle.passes(kind, silence) {
            return;
        }
        let (desk, error) = (Arc::clone(self), error.to_owned());
        self.telling.spawn(async move {
            if let Some(stats) = desk.may_tell(kind, every).await {
                let alert = PoolAlert { pool: desk.name.clone(), kind, stats, error };
                desk.settings.alarm.raise(&alert).await;
            }
        });
    }

    /// The figures to tell, if it is ours to tell.
    async fn may_tell(&self, kind: PoolAlertKind, every: Duration) -> Option<Option<PoolStats>> {
        if kind == PoolAlertKind::BackEndLost {
            return Some(None);
        }
        let may = self.permits.may_alert(&self.name, kind.as_str(), every).await;
        // A back end that is away is an alert of its own.
        if !may.unwrap_or(false) {
            return None;
        }
        Some(self.permits.stats(&self.name).await.ok().flatten())
    }
}
