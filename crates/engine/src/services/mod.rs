//! Maintenance services: rescue units, promote due units, prune, fire schedules. All have one
//! interface and one loop.
//!
//! A service implements one round and its interval. The loop waits for leadership (one process at a
//! time runs the services, see [`Elector`]), adds jitter, backs off while the store is unavailable,
//! and continues immediately while there is more work.

mod due_units;
mod elector;
mod pruner;
mod rescuer;
mod scheduler;
mod takeover;
mod trouble_alerts;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::store::Retention;
use longshore_core::{Result, SessionId, Store};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::AlertSink;
use crate::backoff::{Backoff, jitter};

pub use due_units::Promoter;
pub use elector::{Elector, LEADERSHIP_TERM, Leadership, POLL_INTERVAL};
pub use pruner::Pruner;
pub use rescuer::Rescuer;
pub use scheduler::Scheduler;
use takeover::Takeover;
use trouble_alerts::TroubleAlerts;

/// The role that all services share: one process runs all of them and requests one role only.
pub const MAINTENANCE_ROLE: &str = "upkeep";

/// A service that fails for longer raises an alert.
const ALERT_DELAY: Duration = Duration::from_secs(60);

/// How long the first takeover may delay the other services.
const FIRST_TAKEOVER_TIMEOUT: Duration = Duration::from_secs(1);

/// Which maintenance services a worker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Services {
    /// All; one process at a time is active.
    #[default]
    All,
    /// None: other processes run them.
    None,
}

/// The result of one round of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServiceReport {
    /// How many items were processed, for the log.
    pub moved: u64,
    /// More work is pending: run the next round immediately.
    pub more: bool,
    /// Run the next round after this long instead of the interval.
    pub next: Option<Duration>,
}

/// A maintenance service.
pub trait Service: Send {
    /// The name, for the log.
    const NAME: &'static str;

    /// The time between two rounds.
    fn interval(&self) -> Duration;

    /// Does a bounded amount of work at `now`, on the monotonic clock.
    fn run_once(&mut self, now: Instant) -> impl Future<Output = Result<ServiceReport>> + Send;

    /// Discards observations of earlier rounds after a long time without leadership.
    fn reset(&mut self) {}

    /// Returns when the next round should run before the interval has passed.
    fn early_wakeup(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// Runs every service until the future is dropped; they are active while `session` leads.
/// `scheduled` is notified when a unit may have become due earlier, `alerts` receives alerts. Units of
/// processes of this host that have ended are taken over first.
pub async fn run_all(
    store: Arc<dyn Store>,
    session: impl Fn() -> Option<SessionId>,
    scheduled: Arc<Notify>,
    retention: Retention,
    alerts: Arc<dyn AlertSink>,
) {
    let mut takeover = Takeover::new(Arc::clone(&store));
    // Before the election: a session that ends leaves its role. Errors are retried below.
    let _ = timeout(FIRST_TAKEOVER_TIMEOUT, takeover.run_once()).await;
    let (elector, leads) = Elector::new(Arc::clone(&store), MAINTENANCE_ROLE);
    let promoter = Promoter::new(Arc::clone(&store), scheduled);
    let pruner = Pruner::new(Arc::clone(&store), retention);
    let rescuer = Rescuer::new(Arc::clone(&store)).alert_sink(Arc::clone(&alerts));
    tokio::join!(
        takeover.run(),
        elector.alert_sink(Arc::clone(&alerts)).campaign(session),
        run_service(rescuer, leads.clone(), Arc::clone(&alerts)),
        run_service(promoter, leads.clone(), Arc::clone(&alerts)),
        run_service(Scheduler::new(store), leads.clone(), Arc::clone(&alerts)),
        run_service(pruner, leads, alerts),
    );
}

/// Runs a service until the future is dropped; it is active while its process leads. `alerts` hears of a service that
/// fails for a minute.
pub async fn run_service<S: Service>(mut service: S, mut leadership: Leadership, alerts: Arc<dyn AlertSink>) {
    let (mut backoff, mut alerts) = (Backoff::store(), TroubleAlerts::new(alerts, S::NAME, ALERT_DELAY));
    loop {
        if !leadership.is_leader() {
            let lost_at = Instant::now();
            leadership.wait_gained().await;
            // Observations from before a short lapse, as when the store is slow to renew a term, are still valid.
            if lost_at.elapsed() > LEADERSHIP_TERM {
                service.reset();
            }
        }
        let began = Instant::now();
        let wait = match service.run_once(began).await {
            Ok(report) if report.more => Duration::ZERO,
            Ok(report) => report.next.unwrap_or_else(|| jitter(service.interval())),
            Err(error) => {
                tracing::debug!(%error, service = S::NAME, "a maintenance round failed");
                alerts.raise(began, format!("rounds of the {} fail: {error}", S::NAME));
                tokio::time::sleep(backoff.next_wait().max(service.interval() / 4)).await;
                continue;
            }
        };
        backoff.reset();
        alerts.clear();
        tokio::select! {
            biased;
            () = tokio::time::sleep(wait) => {}
            () = service.early_wakeup() => {}
            () = leadership.wait_lost() => {}
        }
    }
}
