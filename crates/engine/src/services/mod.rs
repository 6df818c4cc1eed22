//! Upkeep services: reclaim, promote, prune. One shape, one loop.
//!
//! A service says what it does once and how often; the loop asks for leadership (one process at a
//! time does each service), spreads the times, backs off from a store that is away, and repeats at
//! once while there is more.

mod promoter;
mod pruner;
mod reclaimer;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::{Result, SessionId, Store};
use tokio::time::Instant;

use crate::backoff::{Backoff, jitter};

pub use promoter::Promoter;
pub use pruner::Pruner;
pub use reclaimer::Reclaimer;

/// Which upkeep services a worker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Services {
    /// All, one process at a time each.
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
    /// Its name, and the role it leads.
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

/// How long a leadership lasts without renewal: as long as upkeep pauses when its leader dies.
const TERM: Duration = Duration::from_secs(5);

/// Runs a service for ever, while `session` leads its role.
pub async fn serve<S: Service>(
    mut service: S,
    store: Arc<dyn Store>,
    session: impl Fn() -> Option<SessionId>,
) {
    let mut seat = Seat { store, leads_until: None };
    let mut backoff = Backoff::store();
    loop {
        let round = match seat.take::<S>(&session).await {
            Ok(true) => service.run_once(Instant::now()).await.map(Some),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        };
        let wait = match round {
            Ok(Some(report)) if report.more => Duration::ZERO,
            Ok(Some(report)) => report.next.unwrap_or_else(|| jitter(service.every())),
            Ok(None) => jitter(TERM),
            Err(error) => {
                tracing::debug!(%error, service = S::NAME, "the round could not be done");
                service.interrupted();
                tokio::time::sleep(backoff.next().max(service.every() / 4)).await;
                continue;
            }
        };
        backoff.reset();
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = service.hint(), if seat.leads() => {}
        }
    }
}

/// A place at the head of a role.
struct Seat {
    store: Arc<dyn Store>,
    leads_until: Option<Instant>,
}

impl Seat {
    fn leads(&self) -> bool {
        self.leads_until.is_some_and(|until| Instant::now() < until)
    }

    /// Whether we lead; asks the store only in the second half of a term.
    async fn take<S: Service>(&mut self, session: &impl Fn() -> Option<SessionId>) -> Result<bool> {
        let asked = Instant::now();
        if self.leads_until.is_some_and(|until| asked + TERM / 2 < until) {
            return Ok(true);
        }
        let Some(session) = session() else {
            return Ok(false);
        };
        self.leads_until = None;
        if self.store.lead(S::NAME, session, TERM).await? {
            self.leads_until = Some(asked + TERM);
        }
        Ok(self.leads_until.is_some())
    }
}
