//! Elects one of many processes for a role.
//!
//! The store grants a role to one session for a term. The elector renews it at half of the term, by
//! its own monotonic clock, counted from before the request. Closing a session releases its roles
//! in the same transaction, so the successor of a stopped leader takes over at its next poll, and
//! the successor of a killed leader at the end of the term.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::{Result, SessionId, Store};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::backoff::{Backoff, jitter};

/// How long leadership lasts without renewal. If the leader is killed, the role is vacant for this
/// long plus at most one poll.
pub const LEADERSHIP_TERM: Duration = Duration::from_secs(4);

/// Maximum time between two polls of a follower. All workers but one only poll, so this is most of
/// the load on an idle store.
pub const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Longest wait before a failed renewal is retried.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(1);

/// Campaigns for one role.
pub struct Elector {
    store: Arc<dyn Store>,
    role: String,
    term_end: watch::Sender<Option<Instant>>,
}

impl Elector {
    /// Creates an elector for `role`, and a handle that reports whether it leads.
    pub fn new(store: Arc<dyn Store>, role: impl Into<String>) -> (Self, Leadership) {
        let (term_end, receiver) = watch::channel(None);
        (Self { store, role: role.into(), term_end }, Leadership(receiver))
    }

    /// Campaigns until the future is dropped. `session` returns the session that holds the role, if
    /// there is one at the moment.
    pub async fn campaign(self, session: impl Fn() -> Option<SessionId>) {
        let mut backoff = Backoff::store();
        loop {
            let wait = match self.request(session()).await {
                Ok(true) => LEADERSHIP_TERM / 2,
                Ok(false) => jitter(POLL_INTERVAL),
                Err(error) => {
                    // A granted term stays valid until its end.
                    tracing::debug!(%error, role = self.role, "cannot request the role");
                    tokio::time::sleep(backoff.next_wait().min(MAX_RETRY_WAIT)).await;
                    continue;
                }
            };
            backoff.reset();
            tokio::time::sleep(wait).await;
        }
    }

    async fn request(&self, session: Option<SessionId>) -> Result<bool> {
        let requested_at = Instant::now();
        let granted = match session {
            Some(session) => self.store.acquire_leadership(&self.role, session, LEADERSHIP_TERM).await?,
            None => false,
        };
        let took = requested_at.elapsed();
        if granted && took >= LEADERSHIP_TERM {
            tracing::warn!(
                role = self.role,
                ?took,
                "the store is too slow to grant a role: maintenance does not run"
            );
        }
        let term_end = granted.then(|| requested_at + LEADERSHIP_TERM);
        let before = self.term_end.send_replace(term_end);
        if before.is_some() != granted {
            tracing::debug!(role = self.role, leads = granted, "leadership changed");
        }
        Ok(granted)
    }
}

/// Reports whether this process leads. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Leadership(watch::Receiver<Option<Instant>>);

impl Leadership {
    /// Whether it leads now.
    pub fn is_leader(&self) -> bool {
        is_current(&self.0.borrow())
    }

    /// Returns as soon as it leads.
    pub async fn wait_gained(&mut self) {
        if self.0.wait_for(is_current).await.is_err() {
            // The elector was dropped, so leadership is never gained.
            std::future::pending::<()>().await;
        }
    }

    /// Returns as soon as it does not lead.
    pub async fn wait_lost(&mut self) {
        loop {
            let term_end = *self.0.borrow_and_update();
            let Some(term_end) = term_end.filter(|_| self.is_leader()) else { return };
            tokio::select! {
                biased;
                // On an error the elector is gone: the end of the term decides.
                Ok(()) = self.0.changed() => {}
                () = tokio::time::sleep_until(term_end) => {}
            }
        }
    }
}

fn is_current(term_end: &Option<Instant>) -> bool {
    term_end.is_some_and(|term_end| Instant::now() < term_end)
}
