//! Alerts about a pool: sent once for all processes, at a limited rate.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use longshore_core::PoolName;
use longshore_core::permits::PoolStats;
use tokio::time::Instant;

use super::inner::PoolInner;

/// What an alert reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PoolAlertKind {
    /// A request had to wait or was rejected: all permits are in use.
    AtCapacity,
    /// A request timed out.
    TimedOut,
    /// The backend does not answer. Sent once a minute by each process: they cannot coordinate
    /// without it.
    #[serde(rename = "back_end_lost")]
    BackendLost,
}

impl PoolAlertKind {
    /// The kind's name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AtCapacity => "at-capacity",
            Self::TimedOut => "timed-out",
            Self::BackendLost => "back-end-lost",
        }
    }

    /// A message for users.
    pub fn message(self) -> &'static str {
        match self {
            Self::AtCapacity => "a bounded pool is at capacity",
            Self::TimedOut => "a request for a permit of a bounded pool timed out",
            Self::BackendLost => "the backend of a bounded pool does not answer",
        }
    }
}

/// An alert about a pool.
#[derive(Debug, Clone, serde::Serialize)]
pub struct PoolAlert {
    /// The pool.
    pub pool: PoolName,
    /// What happened.
    pub kind: PoolAlertKind,
    /// The pool's statistics; `None` if the backend is unavailable.
    pub stats: Option<PoolStats>,
    /// The backend's error, if it is unavailable.
    pub error: String,
}

/// An alert of a maintenance service.
#[derive(Debug, Clone)]
pub struct ServiceAlert {
    /// The service.
    pub service: &'static str,
    /// What does not work, and why.
    pub message: String,
}

impl ServiceAlert {
    /// Writes the alert to the log.
    pub fn log(&self) {
        tracing::warn!(service = self.service, "{}", self.message);
    }
}

/// Receives alerts.
#[async_trait]
pub trait AlertSink: Send + Sync + 'static {
    /// Sends an alert. Called in a background task, one alert at a time for each kind.
    async fn send(&self, alert: &PoolAlert);

    /// Sends an alert of a maintenance service. Called in a background task, at most once a minute.
    async fn send_service_alert(&self, alert: &ServiceAlert) {
        alert.log();
    }
}

/// Writes alerts to the log.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogAlertSink;

#[async_trait]
impl AlertSink for LogAlertSink {
    async fn send(&self, alert: &PoolAlert) {
        let PoolAlert { pool, kind, stats, error } = alert;
        let stats = stats.clone().unwrap_or_default();
        let waited = stats.waits.percentile(0.95).unwrap_or_default();
        match kind {
            PoolAlertKind::BackendLost => tracing::error!(%pool, %error, "{}", kind.message()),
            PoolAlertKind::AtCapacity if stats.quarantine.is_some() => tracing::warn!(
                %pool,
                for_seconds = stats.quarantine.unwrap_or_default().as_secs(),
                "a bounded pool grants nothing yet: its backend may have lost leases that are still in use"
            ),
            PoolAlertKind::AtCapacity | PoolAlertKind::TimedOut => tracing::error!(
                %pool,
                alert = kind.as_str(),
                max = stats.max,
                in_use = stats.in_use,
                waiting = stats.waiting.len(),
                acquired = stats.acquired,
                timeouts = stats.timeouts,
                p95_wait_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
                "{}", kind.message()
            ),
        }
    }
}

/// Minimum time between two alerts about an outage.
const OUTAGE_ALERT_INTERVAL: Duration = Duration::from_secs(60);

/// Per kind, until when this process does not ask the backend whether it may send an alert.
#[derive(Default)]
pub(super) struct AlertThrottle(Mutex<[Option<Instant>; 3]>);

impl AlertThrottle {
    /// Whether an alert is due; if so, the next is due after `quiet_time`.
    fn allows(&self, kind: PoolAlertKind, quiet_time: Duration) -> bool {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (time, now) = (&mut times[kind as usize], Instant::now());
        let allowed = time.is_none_or(|time| time <= now);
        if allowed {
            *time = Some(now + quiet_time);
        }
        allowed
    }
}

impl PoolInner {
    /// Sends an alert, unless one was sent recently.
    pub(super) fn alert(self: &Arc<Self>, kind: PoolAlertKind, error: &str) {
        let every = self.settings.alert_every;
        let quiet_time = match kind {
            PoolAlertKind::BackendLost => OUTAGE_ALERT_INTERVAL,
            // Another process may have sent it; its quiet time ends before `every` has passed here.
            _ => every / 4,
        };
        if !self.throttle.allows(kind, quiet_time) {
            return;
        }
        let (inner, error) = (Arc::clone(self), error.to_owned());
        self.alert_tasks.spawn(async move {
            if let Some(stats) = inner.alert_stats(kind, every).await {
                let alert = PoolAlert { pool: inner.name.clone(), kind, stats, error };
                inner.settings.alarm.send(&alert).await;
            }
        });
    }

    /// The statistics for the alert, if this process may send it.
    async fn alert_stats(&self, kind: PoolAlertKind, every: Duration) -> Option<Option<PoolStats>> {
        if kind == PoolAlertKind::BackendLost {
            return Some(None);
        }
        let may = self.permits.acquire_alert(&self.name, kind.as_str(), every).await;
        // An unavailable backend causes an alert of its own.
        if !may.unwrap_or(false) {
            return None;
        }
        Some(self.permits.stats(&self.name).await.ok().flatten())
    }
}
