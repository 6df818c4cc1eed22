//! Elects one of many processes for a role.
//!
//! The store grants a role to one session for a term. The elector renews it at half of the term, by
//! its own monotonic clock, counted from before the request. Closing a session releases its roles
//! in the same transaction, so the successor of a stopped leader takes over at its next poll, and
//! the successor of a killed leader at the end of the term.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::{Result, SessionId, Store};
use tokio::sync::watch;
use tokio::time::Instant;

use super::trouble_alerts::TroubleAlerts;
use crate::backoff::{Backoff, jitter};
use crate::bounded_pool::{AlertSink, LogAlertSink};

/// How long leadership lasts without renewal. If the leader is killed, the role is vacant for this
/// long plus at most one poll.
pub const LEADERSHIP_TERM: Duration = Duration::from_secs(4);

/// Maximum time between two polls of a follower. All workers but one only poll, so this is most of
/// the load on an idle store.
pub const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Longest wait before a failed renewal is retried.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(1);

/// How long the store may fail to grant the role to any process before an alert is raised.
const ALERT_DELAY: Duration = Duration::from_secs(15);

/// Campaigns for one role.
pub struct Elector {
    store: Arc<dyn Store>,
    role: String,
    term_end: watch::Sender<Option<Instant>>,
    alerts: TroubleAlerts,
}

impl Elector {
    /// Creates an elector for `role`, and a handle that reports whether it leads.
    pub fn new(store: Arc<dyn Store>, role: impl Into<String>) -> (Self, Leadership) {
        let (term_end, receiver) = watch::channel(None);
        let alerts = trouble_alerts(Arc::new(LogAlertSink));
        (Self { store, role: role.into(), term_end, alerts }, Leadership(receiver))
    }

    /// Sets the receiver of alerts.
    #[must_use]
    pub fn alert_sink(mut self, sink: Arc<dyn AlertSink>) -> Self {
        self.alerts = trouble_alerts(sink);
        self
    }

    /// Campaigns until the future is dropped. `session` returns the session that holds the role, if
    /// there is one at the moment.
    pub async fn campaign(mut self, session: impl Fn() -> Option<SessionId>) {
        let mut backoff = Backoff::store();
        loop {
            let requested_at = Instant::now();
            let wait = match self.request(session(), requested_at).await {
                Ok(true) => LEADERSHIP_TERM / 2,
                Ok(false) => jitter(POLL_INTERVAL),
                Err(error) => {
                    // A granted term stays valid until its end.
                    self.alert(requested_at, &error);
                    tokio::time::sleep(backoff.next_wait().min(MAX_RETRY_WAIT)).await;
                    continue;
                }
            };
            backoff.reset();
            tokio::time::sleep(wait).await;
        }
    }

    /// Reports a request that was started at `requested_at` and makes no process leader.
    fn alert(&mut self, requested_at: Instant, cause: &dyn Display) {
        let role = &self.role;
        tracing::debug!(role, %cause, "the role is not granted");
        let message =
            format!("the store grants the role `{role}` to no process, maintenance does not run: {cause}");
        self.alerts.raise(requested_at, message);
    }

    async fn request(&mut self, session: Option<SessionId>, requested_at: Instant) -> Result<bool> {
        let granted = match session {
            Some(session) => self.store.acquire_leadership(&self.role, session, LEADERSHIP_TERM).await?,
            None => false,
        };
        let took = requested_at.elapsed();
        match granted && took >= LEADERSHIP_TERM {
            true => self.alert(requested_at, &format_args!("its answer takes {took:.1?}")),
            // Without a session the store was not asked.
            false if session.is_some() => self.alerts.clear(),
            false => {}
        }
        let term_end = granted.then(|| requested_at + LEADERSHIP_TERM);
        let before = self.term_end.send_replace(term_end);
        if before.is_some() != granted {
            tracing::debug!(role = self.role, leads = granted, "leadership changed");
        }
        Ok(granted)
    }
}

fn trouble_alerts(sink: Arc<dyn AlertSink>) -> TroubleAlerts {
    TroubleAlerts::new(sink, "elector", ALERT_DELAY)
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
