//! What a worker's parts share: the settings, the desk, the counters, and one view of whether the
//! store is there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_core::session::{Lease, NewSession, Order};
use longshore_core::{Error, SessionId, Store};
use tokio::sync::{Mutex, Notify};

use crate::backoff::Backoff;
use crate::client::Client;
use crate::control::WorkerControl;
use crate::held::Desk;
use crate::stats::WorkerStats;
use crate::waiting::Waits;
use crate::worker::{Settings, Worker};

/// A running worker's common ground.
pub(crate) struct Station {
    pub(crate) settings: Settings,
    pub(crate) control: WorkerControl,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) desk: Desk,
    /// Runs that only wait.
    pub(crate) waits: Arc<Waits>,
    /// What handlers send with.
    pub(crate) client: Client,
    /// Held while a claim is under way, so that nobody takes its units for forgotten ones.
    pub(crate) claiming: Mutex<()>,
    /// The session is gone and must be renewed.
    pub(crate) renew: Notify,
    /// A unit was put off and may be due soon.
    pub(crate) scheduled: Arc<Notify>,
    away: AtomicBool,
}

impl Station {
    pub(crate) fn new(worker: Worker) -> Self {
        let Worker { settings, control, stats } = worker;
        let client = Client::scoped(Arc::clone(&settings.store), settings.scope.clone());
        Self {
            desk: Desk::new(settings.slots, settings.resources.clone()),
            client: client.inside_handler(),
            waits: Arc::new(Waits::new(settings.slots)),
            settings,
            control,
            stats,
            claiming: Mutex::new(()),
            renew: Notify::new(),
            scheduled: Arc::default(),
            away: AtomicBool::new(false),
        }
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.settings.store
    }

    /// How the worker announces itself.
    pub(crate) fn introduction(&self, id: SessionId) -> NewSession {
        let policies = self.settings.handlers.iter();
        let kinds: BTreeMap<_, _> =
            policies.map(|(kind, registered)| (kind.clone(), registered.policy.clone())).collect();
        NewSession {
            id,
            label: self.settings.label.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kinds,
            slots: self.settings.slots,
            ttl: self.settings.ttl,
        }
    }

    /// The store did not answer. Said aloud once per outage.
    pub(crate) fn store_failed(&self, error: &Error) {
        if !self.away.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "the store is away; holding on to what is held");
        } else {
            tracing::debug!(%error, "the store is still away");
        }
    }

    /// The store answered. Said aloud if it had been away.
    pub(crate) fn store_answered(&self) {
        if self.away.load(Ordering::Relaxed) && self.away.swap(false, Ordering::Relaxed) {
            tracing::info!("the store is back");
        }
    }

    /// The store says that `session` has ended: everything held is void.
    pub(crate) fn session_gone(&self, session: SessionId) {
        let Some(lost) = self.desk.void(session) else {
            return;
        };
        self.stats.on_lost(lost);
        tracing::warn!(%session, lost, "the session was ended by others; starting a new one");
        self.renew.notify_one();
    }

    /// Gives unstarted units back. Should the store stay away, ending the session does it.
    pub(crate) async fn release(&self, leases: Vec<Lease>) {
        let Some(session) = self.desk.session().filter(|_| !leases.is_empty()) else {
            return;
        };
        self.stats.on_returned(leases.len());
        let mut backoff = Backoff::store();
        while self.control.order() < Order::Stop {
            match self.store().release(session, &leases).await {
                Err(error) if error.is_retryable() => self.store_failed(&error),
                Err(Error::SessionGone(_)) => return self.session_gone(session),
                Err(error) => return tracing::error!(%error, "units could not be given back"),
                Ok(()) => return self.store_answered(),
            }
            backoff.wait().await;
        }
    }
}
