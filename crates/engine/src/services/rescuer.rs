//! Rescues the units of dead workers.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::failure_detector::{FailureDetector, MIN_POLL_INTERVAL, POLLS_PER_TTL, SessionBeats};
use longshore_core::{Error, Result, Store};
use tokio::time::{Instant, timeout};

use super::takeover::{LocalDeaths, ProcessSession};
use super::trouble_alerts::TroubleAlerts;
use super::{Service, ServiceReport};
use crate::backoff::jitter;
use crate::bounded_pool::{AlertSink, LogAlertSink};

/// Watches every session's heartbeat. Ends sessions without a beat for their ttl, and sessions of
/// processes that have ended on this host.
pub struct Rescuer {
    store: Arc<dyn Store>,
    detector: FailureDetector,
    alerts: TroubleAlerts,
}

/// Longest time between two polls.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(3);
/// Time limit of a poll.
const POLL_TIMEOUT: Duration = Duration::from_secs(10);
/// A poll that takes longer delays the detection.
const SLOW_POLL: Duration = Duration::from_secs(2);
/// The time until the next poll after a failed one.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Trouble that lasts longer raises an alert.
const ALERT_DELAY: Duration = Duration::from_secs(5);

impl Rescuer {
    /// Creates a rescuer without observations. Its alerts go to the log.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, detector: FailureDetector::default(), alerts: watch_alerts(Arc::new(LogAlertSink)) }
    }

    /// Sets the receiver of alerts.
    #[must_use]
    pub fn alert_sink(mut self, sink: Arc<dyn AlertSink>) -> Self {
        self.alerts = watch_alerts(sink);
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
        let sessions = match listed {
            Ok(sessions) => sessions,
            Err(error) => {
                self.detector.poll_failed();
                self.alerts
                    .raise(now, format!("dead workers are not detected, heartbeats cannot be read: {error}"));
                return Ok(ServiceReport { next: Some(jitter(RETRY_INTERVAL)), ..ServiceReport::default() });
            }
        };
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

fn watch_alerts(sink: Arc<dyn AlertSink>) -> TroubleAlerts {
    TroubleAlerts::new(sink, Rescuer::NAME, ALERT_DELAY)
}

/// The time until the next poll, by the shortest ttl.
fn poll_interval(sessions: &[SessionBeats]) -> Duration {
    let shortest = sessions.iter().map(|session| session.ttl).min();
    let interval = shortest.map_or(MAX_POLL_INTERVAL, |ttl| ttl / POLLS_PER_TTL);
    interval.clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
}
