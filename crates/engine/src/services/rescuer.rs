//! Rescues the units of dead workers.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::failure_detector::FailureDetector;
use longshore_core::worker_session::Session;
use longshore_core::{Result, Store};
use tokio::time::Instant;

use super::takeover::{LocalDeaths, stalled};
use super::{Service, ServiceReport};

/// Watches every session's heartbeat. Ends sessions without a beat for their ttl, and sessions of
/// processes that have ended on this host.
pub struct Rescuer {
    store: Arc<dyn Store>,
    watch: FailureDetector,
}

/// After a longer gap between two polls this process was stalled itself, and its observations are
/// void.
const MAX_POLL_GAP: Duration = Duration::from_secs(5);
/// Shortest and longest time between two polls; well below `MAX_POLL_GAP`.
const POLL_INTERVAL: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(3));

impl Rescuer {
    /// Creates a rescuer without observations.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, watch: FailureDetector::default() }
    }
}

impl Service for Rescuer {
    const NAME: &'static str = "reclaimer";

    fn interval(&self) -> Duration {
        POLL_INTERVAL.1
    }

    async fn run_once(&mut self, now: Instant) -> Result<ServiceReport> {
        let sessions = self.store.sessions().await?;
        let mut dead = self.watch.poll(&sessions, now.into_std(), MAX_POLL_GAP);
        dead.extend(LocalDeaths::among(&sessions).await.ended.iter().map(stalled));
        let next = Some(poll_interval(&sessions));
        if dead.is_empty() {
            return Ok(ServiceReport { next, ..ServiceReport::default() });
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
        Ok(ServiceReport { moved: reclaimed.requeued + reclaimed.failed, more: false, next })
    }

    fn reset(&mut self) {
        self.watch.reset();
    }
}

/// The time until the next poll: a fifth of the shortest ttl, so that a dead session is detected at
/// most that much late.
fn poll_interval(sessions: &[Session]) -> Duration {
    let shortest = sessions.iter().map(|session| session.ttl).min();
    shortest.map_or(POLL_INTERVAL.1, |ttl| (ttl / 5).clamp(POLL_INTERVAL.0, POLL_INTERVAL.1))
}
