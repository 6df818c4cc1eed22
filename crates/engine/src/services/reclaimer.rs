//! Takes units back from workers that died.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::session::Session;
use longshore_core::stall::StallWatch;
use longshore_core::{Result, Store};
use tokio::time::Instant;

use super::{Report, Service};

/// Watches every session's beat and ends those that stand still for their ttl.
pub struct Reclaimer {
    store: Arc<dyn Store>,
    watch: StallWatch,
}

/// A longer gap between two looks means that we were away ourselves.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks, at least and at most: well within the patience.
const GAP: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(3));

impl Reclaimer {
    /// A reclaimer that has seen nothing yet.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, watch: StallWatch::default() }
    }
}

impl Service for Reclaimer {
    const NAME: &'static str = "reclaimer";

    fn every(&self) -> Duration {
        GAP.1
    }

    async fn run_once(&mut self, now: Instant) -> Result<Report> {
        let sessions = self.store.sessions().await?;
        let dead = self.watch.look(&sessions, now.into_std(), PATIENCE);
        let next = Some(gap(&sessions));
        if dead.is_empty() {
            return Ok(Report { next, ..Report::default() });
        }
        let reclaimed = self.store.reclaim(&dead).await?;
        if reclaimed.sessions > 0 {
            tracing::warn!(
                sessions = reclaimed.sessions,
                rescued = reclaimed.rescued,
                failed = reclaimed.failed,
                "took units back from dead workers"
            );
        }
        Ok(Report { moved: reclaimed.rescued + reclaimed.failed, more: false, next })
    }

    fn interrupted(&mut self) {
        self.watch.forget();
    }
}

/// How long until the next look: a fifth of the shortest ttl, so that a death is seen at most that
/// much later than it could be.
fn gap(sessions: &[Session]) -> Duration {
    let shortest = sessions.iter().map(|session| session.ttl).min();
    shortest.map_or(GAP.1, |ttl| (ttl / 5).clamp(GAP.0, GAP.1))
}
