//! Rescues the units of dead workers.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::failure_detector::{FailureDetector, MIN_POLL_INTERVAL, POLLS_PER_TTL, SessionBeats};
use longshore_core::{Error, Result, Store};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::takeover::{LocalDeaths, ProcessSession};
use super::{Service, ServiceReport};
use crate::bounded_pool::{AlertSink, LogAlertSink, ServiceAlert};

/// Watches every session's heartbeat. Ends sessions without a beat for their ttl, and sessions of
/// processes that have ended on this host.
pub struct Rescuer {
    store: Arc<dyn Store>,
    detector: FailureDetector,
    alerts: WatchAlerts,
}

/// Longest time between two polls.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(3);
/// Time limit of a poll.
const POLL_TIMEOUT: Duration = Duration::from_secs(10);
/// A poll that takes longer delays the detection.
const SLOW_POLL: Duration = Duration::from_secs(2);
/// Trouble that lasts longer raises an alert.
const ALERT_DELAY: Duration = Duration::from_secs(5);
/// Minimum time between two alerts.
const ALERT_INTERVAL: Duration = Duration::from_secs(60);

impl Rescuer {
    /// Creates a rescuer without observations. Its alerts go to the log.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, detector: FailureDetector::default(), alerts: WatchAlerts::new(Arc::new(LogAlertSink)) }
    }

    /// Sets the receiver of alerts.
    #[must_use]
    pub fn alert_sink(mut self, sink: Arc<dyn AlertSink>) -> Self {
        self.alerts = WatchAlerts::new(sink);
        self
    }

    /// Ends sessions that have been silent for their ttl, and sessions of processes that have ended.
    /// Returns how many of their units moved.
    async fn reclaim_stalled(&mut self, sessions: &[SessionBeats], asked: Instant) -> Result<u64> {
        let mut dead = self.detector.poll(sessions, asked.into_std(), Instant::now().into_std());
        let local = LocalDeaths::among(sessions).await;
        dead.extend(local.iter().flat_map(|deaths| &deaths.ended).map(ProcessSession::stalled));
        if dead.is_empty() {
            return local.map(|_| 0);
        }
        let reclaimed = self.store.reclaim(&dead).await?;
        if reclaimed.sessions > 0 {
            tracing::warn!(
                sessions = reclaimed.sessions,
                rescued = reclaimed.requeued,
                failed = reclaimed.failed,
                "rescued units of dead workers"
            );
        }
        Ok(reclaimed.requeued + reclaimed.failed)
    }
}

impl Service for Rescuer {
    const NAME: &'static str = "reclaimer";

    fn interval(&self) -> Duration {
        MAX_POLL_INTERVAL
    }

    async fn run_once(&mut self, now: Instant) -> Result<ServiceReport> {
        let late = |_| Err(Error::timed_out(format!("no answer within {POLL_TIMEOUT:?}")));
        let listed = timeout(POLL_TIMEOUT, self.store.session_beats()).await.unwrap_or_else(late);
        let took = now.elapsed();
        let sessions = listed.inspect_err(|error| {
            self.alerts
                .raise(now, format!("dead workers are not detected, heartbeats cannot be read: {error}"));
        })?;
        let next = Some(poll_interval(&sessions));
        match self.reclaim_stalled(&sessions, now).await {
            // The detector still knows the dead sessions, so the next round tries again.
            Err(error) => self.alerts.raise(now, format!("units of dead workers cannot be rescued: {error}")),
            Ok(_) if took > SLOW_POLL => {
                self.alerts.raise(
                    now,
                    format!("dead workers are detected late, reading heartbeats takes {took:.1?}"),
                );
            }
            Ok(moved) => {
                self.alerts.clear();
                return Ok(ServiceReport { moved, more: false, next });
            }
        }
        Ok(ServiceReport { next, ..ServiceReport::default() })
    }

    fn reset(&mut self) {
        self.detector.reset();
    }
}

/// Raises an alert while the watch cannot run or is slow.
struct WatchAlerts {
    sink: Arc<dyn AlertSink>,
    /// Alerts in flight: a slow receiver must not delay the watch.
    in_flight: JoinSet<()>,
    trouble_since: Option<Instant>,
    raised_at: Option<Instant>,
}

impl WatchAlerts {
    fn new(sink: Arc<dyn AlertSink>) -> Self {
        Self { sink, in_flight: JoinSet::new(), trouble_since: None, raised_at: None }
    }

    /// Reports trouble in the round that started at `began`.
    fn raise(&mut self, began: Instant, message: String) {
        let since = *self.trouble_since.get_or_insert(began);
        let is_recent = self.raised_at.is_some_and(|last| last.elapsed() < ALERT_INTERVAL);
        if since.elapsed() < ALERT_DELAY || is_recent {
            return;
        }
        self.raised_at = Some(Instant::now());
        while self.in_flight.try_join_next().is_some() {}
        let (sink, alert) = (Arc::clone(&self.sink), ServiceAlert { service: Rescuer::NAME, message });
        self.in_flight.spawn(async move { sink.send_service_alert(&alert).await });
    }

    /// Reports a round without trouble.
    fn clear(&mut self) {
        self.trouble_since = None;
        if self.raised_at.take().is_some() {
            tracing::info!("dead workers are detected again");
        }
    }
}

/// The time until the next poll, by the shortest ttl.
fn poll_interval(sessions: &[SessionBeats]) -> Duration {
    let shortest = sessions.iter().map(|session| session.ttl).min();
    let interval = shortest.map_or(MAX_POLL_INTERVAL, |ttl| ttl / POLLS_PER_TTL);
    interval.clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
}
