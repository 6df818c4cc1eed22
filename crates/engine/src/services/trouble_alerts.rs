//! Alerts of services that fail or are slow for some time.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bounded_pool::{AlertSink, ServiceAlert};

/// Minimum time between two alerts.
const ALERT_INTERVAL: Duration = Duration::from_secs(60);
/// How long no round may fail before trouble counts as over: one success between failures does not end it.
const MIN_CALM: Duration = Duration::from_secs(30);
/// Trouble that is further apart is not the same: the service did not run meanwhile.
const MAX_GAP: Duration = Duration::from_secs(5 * 60);

/// Raises an alert while a service is in trouble for longer than a delay.
pub(super) struct TroubleAlerts {
    sink: Arc<dyn AlertSink>,
    service: &'static str,
    delay: Duration,
    /// Alerts in flight: a slow receiver must not delay the service.
    in_flight: JoinSet<()>,
    /// When the trouble began, and when it was last seen.
    trouble: Option<(Instant, Instant)>,
    raised_at: Option<Instant>,
}

impl TroubleAlerts {
    pub(super) fn new(sink: Arc<dyn AlertSink>, service: &'static str, delay: Duration) -> Self {
        Self { sink, service, delay, in_flight: JoinSet::new(), trouble: None, raised_at: None }
    }

    /// Reports trouble in the round that started at `began`.
    pub(super) fn raise(&mut self, began: Instant, message: String) {
        let now = Instant::now();
        let same = self.trouble.filter(|(_, last)| began.duration_since(*last) < MAX_GAP);
        let since = same.map_or(began, |(since, _)| since);
        self.trouble = Some((since, now));
        let is_recent = self.raised_at.is_some_and(|last| last.elapsed() < ALERT_INTERVAL);
        if now - since < self.delay || is_recent {
            return;
        }
        self.raised_at = Some(now);
        while self.in_flight.try_join_next().is_some() {}
        let (sink, alert) = (Arc::clone(&self.sink), ServiceAlert { service: self.service, message });
        self.in_flight.spawn(async move { sink.send_service_alert(&alert).await });
    }

    /// Reports a round without trouble.
    pub(super) fn clear(&mut self) {
        if self.trouble.is_none_or(|(_, last)| last.elapsed() < MIN_CALM) {
            return;
        }
        self.trouble = None;
        if self.raised_at.take().is_some() {
            tracing::info!(service = self.service, "the service works again");
        }
    }
}
