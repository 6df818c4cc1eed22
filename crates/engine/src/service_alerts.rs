//! Alerts of a worker's parts: raised in the background, and at most one a minute.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

use crate::bounded_pool::{AlertSink, PoolAlert, ServiceAlert};

/// Minimum time between two alerts.
const ALERT_INTERVAL: Duration = Duration::from_secs(60);
/// How long to wait for alerts in flight: a receiver that hangs must not block shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends alerts about one topic. An alert that follows another within a minute is only logged.
pub(crate) struct ServiceAlerts {
    sink: Arc<dyn AlertSink>,
    sent_at: Mutex<Option<Instant>>,
    in_flight: TaskTracker,
}

impl ServiceAlerts {
    pub(crate) fn new(sink: Arc<dyn AlertSink>) -> Self {
        let in_flight = TaskTracker::new();
        // A closed tracker can be waited for at any time.
        in_flight.close();
        Self { sink, sent_at: Mutex::default(), in_flight }
    }

    /// Raises an alert in the background.
    pub(crate) fn raise(self: &Arc<Self>, alert: ServiceAlert) {
        let alerts = Arc::clone(self);
        self.in_flight.spawn(async move { alerts.send_service_alert(&alert).await });
    }

    /// Waits for alerts in flight.
    pub(crate) async fn flush(&self) {
        let _ = timeout(FLUSH_TIMEOUT, self.in_flight.wait()).await;
    }

    /// Whether an alert is due; if so, the next is due in a minute.
    fn is_due(&self) -> bool {
        let mut sent_at = self.sent_at.lock().unwrap_or_else(PoisonError::into_inner);
        let due = sent_at.is_none_or(|sent_at| sent_at.elapsed() >= ALERT_INTERVAL);
        if due {
            *sent_at = Some(Instant::now());
        }
        due
    }
}

#[async_trait]
impl AlertSink for ServiceAlerts {
    async fn send(&self, alert: &PoolAlert) {
        self.sink.send(alert).await;
    }

    async fn send_service_alert(&self, alert: &ServiceAlert) {
        match self.is_due() {
            true => self.sink.send_service_alert(alert).await,
            false => alert.log(),
        }
    }
}
