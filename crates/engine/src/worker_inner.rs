//! State shared by a worker's tasks: settings, unit table, counters, and whether the store is
//! available.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use longshore_core::worker_session::{Lease, NewSession, WorkerCommand};
use longshore_core::{Error, SessionId, Store};
use longshore_process::ProcessIdentity;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::bounded_pool::ServiceAlert;
use crate::client::Client;
use crate::control::WorkerControl;
use crate::service_alerts::ServiceAlerts;
use crate::slot_yield::WaitTracker;
use crate::stats::WorkerStats;
use crate::unit_table::UnitTable;
use crate::worker::{Worker, WorkerSettings};

/// A running worker's shared state.
pub(crate) struct WorkerInner {
    pub(crate) settings: WorkerSettings,
    pub(crate) control: WorkerControl,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) table: UnitTable,
    /// Runs that wait for a limit.
    pub(crate) waits: Arc<WaitTracker>,
    /// The client that handlers use.
    pub(crate) client: Client,
    /// Locked during a claim, so that the heartbeat does not take its units for unknown leases.
    pub(crate) claiming: Mutex<()>,
    /// Notified when the session has ended and a new one must be opened.
    pub(crate) session_ended: Notify,
    /// Notified when a unit was scheduled and may be due soon.
    pub(crate) scheduled: Arc<Notify>,
    /// Alerts about the store: of the worker, and of its services.
    pub(crate) store_alerts: Arc<ServiceAlerts>,
    /// The [`StoreCall`]s that failed last.
    failing_calls: AtomicU8,
    /// Calls that the store has answered, other than finishes.
    store_answers: AtomicU64,
    outage: std::sync::Mutex<StoreOutage>,
    leases_differ_since: std::sync::Mutex<Option<Instant>>,
}

/// A part of the worker that calls the store. An outage lasts until each part that saw a failure sees a success: while
/// heartbeats succeed, calls with large outcomes may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum StoreCall {
    Session = 1,
    Claim = 2,
    Start = 4,
    Finish = 8,
}

/// The current outage of the store and the end of the one before, for the log.
#[derive(Debug, Default)]
struct StoreOutage {
    began: Option<Instant>,
    warned: bool,
    ended: Option<Instant>,
}

/// An outage that begins sooner after another one is logged only if it lasts as long as this: on a full disk, some calls
/// succeed and others fail.
const MIN_CALM: Duration = Duration::from_secs(5);

/// For how long after a failed claim the store may still lease units to it.
const LOST_CLAIM_TIME: Duration = Duration::from_secs(60);

impl WorkerInner {
    pub(crate) fn new(worker: Worker) -> Self {
        let Worker { settings, control, stats } = worker;
        let client = Client::scoped(Arc::clone(&settings.store), settings.scope.clone());
        Self {
            table: UnitTable::new(settings.slots, settings.resources.clone()),
            client: client.inside_handler(),
            waits: Arc::new(WaitTracker::new(settings.slots)),
            store_alerts: Arc::new(ServiceAlerts::new(Arc::clone(&settings.alerts))),
            settings,
            control,
            stats,
            claiming: Mutex::new(()),
            session_ended: Notify::new(),
            scheduled: Arc::default(),
            failing_calls: AtomicU8::new(0),
            store_answers: AtomicU64::new(0),
            outage: std::sync::Mutex::default(),
            leases_differ_since: std::sync::Mutex::default(),
        }
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.settings.store
    }

    /// Describes the worker for `open_session`.
    pub(crate) fn new_session(&self, id: SessionId) -> NewSession {
        let policies = self.settings.handlers.iter();
        let kinds: BTreeMap<_, _> =
            policies.map(|(kind, registered)| (kind.clone(), registered.policy.clone())).collect();
        NewSession {
            kinds,
            slots: self.settings.slots,
            ttl: self.settings.ttl,
            process: self.process_identity().map(|process| process.to_string()),
            ..NewSession::new(id, self.settings.label.clone())
        }
    }

    fn process_identity(&self) -> Option<ProcessIdentity> {
        self.settings.immediate_takeover.then(ProcessIdentity::current).flatten()
    }

    /// Records a failed call to the store. Raises an alert once per outage.
    pub(crate) fn store_failed(&self, call: StoreCall, error: &Error) {
        let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        self.failing_calls.fetch_or(call as u8, Ordering::Relaxed);
        let began = *outage.began.get_or_insert_with(Instant::now);
        let flaps = outage.ended.is_some_and(|ended| began - ended < MIN_CALM);
        if !outage.warned && (!flaps || began.elapsed() >= MIN_CALM) {
            outage.warned = true;
            // The error tells whether the store is unavailable or slow.
            let message = format!("a call to the store failed; keeping leases and retrying: {error}");
            self.store_alerts.raise(ServiceAlert { service: "store", message });
        } else {
            tracing::debug!(%error, "calls to the store still fail");
        }
    }

    /// Records an answer of the store. Logs the end of an outage.
    pub(crate) fn store_answered(&self, call: StoreCall) {
        if call != StoreCall::Finish {
            self.store_answers.fetch_add(1, Ordering::Relaxed);
        }
        // Read first: every call to the store ends here.
        if self.failing_calls.load(Ordering::Relaxed) & call as u8 == 0 {
            return;
        }
        let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        if self.failing_calls.fetch_and(!(call as u8), Ordering::Relaxed) != call as u8 {
            return;
        }
        if std::mem::take(&mut outage.warned) {
            tracing::info!("the store is available again");
        }
        (outage.began, outage.ended) = (None, Some(Instant::now()));
    }

    /// How many calls the store has answered, other than finishes.
    pub(crate) fn store_answers(&self) -> u64 {
        self.store_answers.load(Ordering::Relaxed)
    }

    /// Records that the store may count leases that the unit table does not have: a claim failed, or a lease was given
    /// up.
    pub(crate) fn leases_may_differ(&self) {
        *self.leases_differ_since.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether there may be leases that the unit table does not have.
    pub(crate) fn may_leases_differ(&self) -> bool {
        let since = *self.leases_differ_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|at| at.elapsed() < LOST_CLAIM_TIME)
    }

    /// Voids all leases of `session`, which the store reports as ended.
    pub(crate) fn session_gone(&self, session: SessionId) {
        let Some(lost) = self.table.void_session(session) else {
            return;
        };
        self.stats.on_lost(lost);
        tracing::warn!(%session, lost, "another process ended the session; opening a new one");
        self.session_ended.notify_one();
    }

    /// Returns unstarted units to their queues. If the store stays unavailable until the worker
    /// stops, closing the session returns them.
    pub(crate) async fn release(&self, leases: Vec<Lease>) {
        let Some(session) = self.table.session().filter(|_| !leases.is_empty()) else {
            return;
        };
        self.stats.on_returned(leases.len());
        let mut backoff = Backoff::store();
        while self.control.order() < WorkerCommand::Stop {
            match self.store().release(session, &leases).await {
                Ok(()) => return,
                Err(error) if error.is_retryable() => tracing::debug!(%error, "cannot release units yet"),
                Err(Error::SessionGone(_)) => return self.session_gone(session),
                Err(error) => return tracing::error!(%error, "cannot release units"),
            }
            backoff.wait().await;
        }
    }
}
