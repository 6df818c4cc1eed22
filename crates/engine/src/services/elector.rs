//! Elects one process of many for a role, and tells those who ask.
//!
//! The store gives a role to one session for a term; the elector renews it at half of the term, on
//! the monotonic clock of its own process, counted from before it asked. A session that is closed
//! gives its roles up in the same transaction, so a stopped leader's successor begins with its next
//! look; a killed one's when the term is over.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::{Result, SessionId, Store};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::backoff::{Backoff, jitter};

/// How long a leadership lasts without renewal: as long as a role rests when its leader is killed,
/// save for the time until somebody looks.
pub const TERM: Duration = Duration::from_secs(4);

/// How often, at least, one who does not lead looks whether the role is free. Of many workers all
/// but one do only this, so it is most of what they ask an idle store.
pub const LOOK: Duration = Duration::from_secs(2);

/// The longest wait before a renewal is tried again that the store did not answer.
const RETRY: Duration = Duration::from_secs(1);

/// Stands for one role, for ever.
pub struct Elector {
    store: Arc<dyn Store>,
    role: String,
    until: watch::Sender<Option<Instant>>,
}

impl Elector {
    /// An elector for `role`, and what others know of it.
    pub fn new(store: Arc<dyn Store>, role: impl Into<String>) -> (Self, Leadership) {
        let (until, seen) = watch::channel(None);
        (Self { store, role: role.into(), until }, Leadership(seen))
    }

    /// Asks for the role again and again. `session` is the identity that stands for it, if there
    /// is one at the moment.
    pub async fn stand(self, session: impl Fn() -> Option<SessionId>) {
        let mut backoff = Backoff::store();
        loop {
            let wait = match self.ask(session()).await {
                Ok(true) => TERM / 2,
                Ok(false) => jitter(LOOK),
                Err(error) => {
                    // What was granted lasts until its end.
                    tracing::debug!(%error, role = self.role, "the role could not be asked for");
                    tokio::time::sleep(backoff.next_wait().min(RETRY)).await;
                    continue;
                }
            };
            backoff.reset();
            tokio::time::sleep(wait).await;
        }
    }

    async fn ask(&self, session: Option<SessionId>) -> Result<bool> {
        let asked = Instant::now();
        let granted = match session {
            Some(session) => self.store.lead(&self.role, session, TERM).await?,
            None => false,
        };
        let until = granted.then(|| asked + TERM);
        let before = self.until.send_replace(until);
        if before.is_some() != granted {
            tracing::debug!(role = self.role, leads = granted, "the leadership changed");
        }
        Ok(granted)
    }
}

/// Whether this process leads a role. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Leadership(watch::Receiver<Option<Instant>>);

impl Leadership {
    /// Whether it leads now.
    pub fn leads(&self) -> bool {
        in_term(&self.0.borrow())
    }

    /// Returns as soon as it leads.
    pub async fn gained(&mut self) {
        if self.0.wait_for(in_term).await.is_err() {
            // Nobody stands any more, so it is never gained.
            std::future::pending::<()>().await;
        }
    }

    /// Returns as soon as it does not lead.
    pub async fn lost(&mut self) {
        loop {
            let until = *self.0.borrow_and_update();
            let Some(until) = until.filter(|_| self.leads()) else { return };
            tokio::select! {
                // An error says that nobody renews it: the term's end decides.
                Ok(()) = self.0.changed() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }
}

fn in_term(until: &Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() < until)
}
