//! Upkeep services: reclaim, promote, prune, fire schedules. One shape, one loop.
//!
//! A service says what it does once and how often; the loop waits for leadership (one process at a
//! time does the upkeep, see [`Elector`]), spreads the times, backs off from a store that is away,
//! and repeats at once while there is more.

mod elector;
mod promoter;
mod pruner;
mod reclaimer;
mod scheduler;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::store::Retention;
use longshore_core::{Result, SessionId, Store};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::backoff::{Backoff, jitter};

pub use elector::{Elector, LOOK, Leadership, TERM};
pub use promoter::Promoter;
pub use pruner::Pruner;
pub use reclaimer::Reclaimer;
pub use scheduler::Scheduler;

/// The role that all services share: whoever does one does them all, and asks for one role only.
pub const ROLE: &str = "upkeep";

/// Which upkeep services a worker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Services {
    /// All, one process at a time.
    #[default]
    All,
    /// None: others do.
    None,
}

/// What one round of a service did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// How many things it moved, for the log.
    pub moved: u64,
    /// There is more to do at once.
    pub more: bool,
    /// Come back after this long, if sooner than usual.
    pub next: Option<Duration>,
}

/// A piece of upkeep.
pub trait Service: Send {
    /// Its name, for the log.
    const NAME: &'static str;

    /// How often it looks.
    fn every(&self) -> Duration;

    /// Does a bounded amount of work at `now`, on the monotonic clock.
    fn run_once(&mut self, now: Instant) -> impl Future<Output = Result<Report>> + Send;

    /// The round could not be done: whatever was learnt by watching is stale.
    fn interrupted(&mut self) {}

    /// Returns when the service should look before its time.
    fn hint(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// Runs every service for ever, for a store whose upkeep falls to this process whenever `session`
/// leads. `scheduled` is notified when something may have become due earlier.
pub async fn all(
    store: Arc<dyn Store>,
    session: impl Fn() -> Option<SessionId>,
    scheduled: Arc<Notify>,
    retention: Retention,
) {
    let (elector, leads) = Elector::new(Arc::clone(&store), ROLE);
    let promoter = Promoter::new(Arc::clone(&store), scheduled);
    let pruner = Pruner::new(Arc::clone(&store), retention);
    tokio::join!(
        elector.stand(session),
        serve(Reclaimer::new(Arc::clone(&store)), leads.clone()),
        serve(promoter, leads.clone()),
        serve(Scheduler::new(store), leads.clone()),
        serve(pruner, leads),
    );
}

/// Runs a service for ever, while its process leads.
pub async fn serve<S: Service>(mut service: S, mut leadership: Leadership) {
    let mut backoff = Backoff::store();
    loop {
        if !leadership.leads() {
            leadership.gained().await;
            // Others did it meanwhile: what was seen before is old.
            service.interrupted();
        }
        let wait = match service.run_once(Instant::now()).await {
            Ok(report) if report.more => Duration::ZERO,
            Ok(report) => report.next.unwrap_or_else(|| jitter(service.every())),
            Err(error) => {
                tracing::debug!(%error, service = S::NAME, "the round could not be done");
                service.interrupted();
                tokio::time::sleep(backoff.next_wait().max(service.every() / 4)).await;
                continue;
            }
        };
        backoff.reset();
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = service.hint() => {}
            () = leadership.lost() => {}
        }
    }
}
