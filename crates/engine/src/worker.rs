//! The worker's builder: settings and their checks. `lifecycle` runs the worker.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use longshore_core::store::{Queues, Retention};
use longshore_core::{BatchId, Error, Kind, Policy, Scope, Store};
use serde::de::DeserializeOwned;

use crate::bounded_pool::{AlertSink, BoundedPool, LogAlertSink};
use crate::context::Context;
use crate::control::WorkerControl;
use crate::handler::{ClosureHandler, ErasedHandler, Handler, IntoHandlerResult, TypedHandler};
use crate::heartbeat_thread::HeartbeatPlacement;
use crate::lifecycle;
use crate::services::Services;
use crate::stats::{WorkerReport, WorkerStats};

/// Claims units and runs their handlers, a bounded number at a time.
///
/// ```
/// use std::sync::Arc;
/// use longshore::{Client, Context, Kind, MemoryStore, NewUnit, Policy, Verdict, Worker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Arc::new(MemoryStore::default());
/// let shout = Kind::new("shout")?;
/// let worker = Worker::builder(store.clone())
///     .slots(8)
///     .handle_fn(shout.clone(), Policy::default(), |context: Context, word: String| async move {
///         context.progress(Some(0.5), Some("thinking"));
///         if word.is_empty() {
///             return Err(Verdict::fail("silence", "there is nothing to shout"));
///         }
///         Ok(word.to_uppercase())
///     })
///     .until_idle(true)
///     .build()?;
///
/// let client = Client::new(store);
/// client.send(NewUnit::new(shout.clone(), serde_json::json!("ahoy"))).await?;
/// client.send(NewUnit::new(shout, serde_json::json!(""))).await?;
/// let report = worker.run().await?;
/// assert_eq!((report.done, report.failed), (1, 1));
/// # Ok(())
/// # }
/// ```
pub struct Worker {
    pub(crate) settings: WorkerSettings,
    pub(crate) control: WorkerControl,
    pub(crate) stats: Arc<WorkerStats>,
}

/// Builder of a [`Worker`]. See [`Worker::builder`].
pub struct WorkerBuilder {
    settings: WorkerSettings,
    duplicate: Option<Kind>,
}

/// Maximum number of units that a worker with `slots` slots has started without a recorded outcome:
/// running units, and completions in flight to the store. If the worker is killed, at most this
/// many units run again. While handlers return within a millisecond, a worker with few slots has as
/// many as one with the slots to run what it runs in 20 ms, up to 384.
pub const fn max_unrecorded_units(slots: u32) -> u32 {
    let most = slots.saturating_mul(3);
    if most > 32 { most } else { 32 }
}

/// Whether the worker claims units before a slot is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prefetch {
    /// Claims what the worker finishes in about 100 ms at its measured rate. Slow handlers prefetch
    /// nothing.
    #[default]
    Adaptive,
    /// Claims a unit only when a slot is free.
    Off,
}

/// Why [`WorkerBuilder::build`] rejected the settings.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// Without a handler the worker would claim units and run none.
    #[error("a worker needs at least one handler")]
    NoHandlers,
    /// Only one handler per kind can run.
    #[error("kind `{0}` has two handlers")]
    TwoHandlers(Kind),
    /// Without a slot nothing can run.
    #[error("a worker needs at least one slot")]
    NoSlots,
    /// The heartbeat interval is a fraction of the ttl and has a lower bound.
    #[error("a session's ttl must be at least 1 s, not {0:?}")]
    ShortTtl(Duration),
}

/// Why a worker ended with an error. Other workers take over its units after the session's ttl.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The store rejected the worker's session.
    #[error(transparent)]
    Store(#[from] Error),
    /// The signal handlers could not be installed.
    #[error("cannot install signal handlers")]
    Signals(#[source] io::Error),
    /// One of the worker's tasks ended: a bug in Longshore.
    #[error("the worker's {0} task ended unexpectedly")]
    TaskEnded(&'static str),
}

/// All settings of a worker.
pub(crate) struct WorkerSettings {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) slots: u32,
    pub(crate) resources: BTreeMap<String, u32>,
    pub(crate) queues: Queues,
    pub(crate) scope: Scope,
    pub(crate) batch: Option<BatchId>,
    pub(crate) label: String,
    pub(crate) ttl: Duration,
    pub(crate) grace: Duration,
    pub(crate) until_idle: bool,
    pub(crate) services: Services,
    pub(crate) retention: Retention,
    pub(crate) alerts: Arc<dyn AlertSink>,
    pub(crate) claim_ahead: Prefetch,
    pub(crate) heartbeat: HeartbeatPlacement,
    pub(crate) immediate_takeover: bool,
    pub(crate) handlers: HashMap<Kind, RegisteredHandler>,
    /// Bounded pools by kind: a unit of the kind runs only while it holds a permit.
    pub(crate) permit_pools: HashMap<Kind, BoundedPool>,
}

/// A kind's handler, and the policy for units without one of their own.
pub(crate) struct RegisteredHandler {
    pub(crate) policy: Policy,
    pub(crate) handler: Arc<dyn ErasedHandler>,
}

impl Worker {
    /// Starts a builder with the defaults: 1 slot, all queues, every tenant, maintenance services
    /// on.
    pub fn builder(store: Arc<dyn Store>) -> WorkerBuilder {
        WorkerBuilder { settings: WorkerSettings::new(store), duplicate: None }
    }

    /// Returns a handle that quiets, drains, stops or resizes the running worker.
    pub fn control(&self) -> WorkerControl {
        self.control.clone()
    }

    /// Returns the worker's counters.
    pub fn stats(&self) -> Arc<WorkerStats> {
        Arc::clone(&self.stats)
    }

    /// Runs until the worker is drained, stopped or (with `until_idle`) out of work. Dropping the
    /// future drops all handlers immediately; other workers take over their units after the
    /// session's ttl.
    // Boxed, so that the future is compiled in this crate with its optimisation level and not in
    // the caller's.
    pub fn run(self) -> BoxFuture<'static, Result<WorkerReport, WorkerError>> {
        Box::pin(lifecycle::run(self))
    }
}

impl WorkerSettings {
    fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            slots: 1,
            resources: BTreeMap::new(),
            queues: Queues::All,
            scope: Scope::All,
            batch: None,
            label: format!("pid {}", std::process::id()),
            ttl: Duration::from_secs(15),
            grace: Duration::from_secs(5),
            until_idle: false,
            services: Services::All,
            retention: Retention::default(),
            alerts: Arc::new(LogAlertSink),
            claim_ahead: Prefetch::Adaptive,
            heartbeat: HeartbeatPlacement::Thread,
            immediate_takeover: false,
            handlers: HashMap::new(),
            permit_pools: HashMap::new(),
        }
    }
}

#[expect(clippy::return_self_not_must_use, reason = "a builder without build() does nothing")]
impl WorkerBuilder {
    /// Sets how many units of weight 1 run at once. Default 1.
    pub fn slots(mut self, slots: u32) -> Self {
        self.settings.slots = slots;
        self
    }

    /// Sets the named resources that units may require, such as `gpu` → 2.
    pub fn resources(mut self, resources: BTreeMap<String, u32>) -> Self {
        self.settings.resources = resources;
        self
    }

    /// Sets the queues to claim from. Default: all.
    pub fn queues(mut self, queues: Queues) -> Self {
        self.settings.queues = queues;
        self
    }

    /// Sets the tenants to claim for. Default: all.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.settings.scope = scope;
        self
    }

    /// Claims only units of this batch.
    pub fn batch(mut self, batch: BatchId) -> Self {
        self.settings.batch = Some(batch);
        self
    }

    /// Sets the label in the list of workers. Default: the process id.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.settings.label = label.into();
        self
    }

    /// Sets how long after the last heartbeat other workers take over the units. Default 15 s. See
    /// also [`Self::immediate_takeover`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = ttl;
        self
    }

    /// Sets how long a cancelled handler may continue before it is dropped. Default 5 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// Sets whether the worker ends when no unit is ready, leased or scheduled and no batch is
    /// open.
    pub fn until_idle(mut self, until_idle: bool) -> Self {
        self.settings.until_idle = until_idle;
        self
    }

    /// Sets whether the worker also runs the maintenance services.
    pub fn services(mut self, services: Services) -> Self {
        self.settings.services = services;
        self
    }

    /// Sets how long the pruner keeps ended units, if the worker runs the maintenance services.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.settings.retention = retention;
        self
    }

    /// Sets the receiver of alerts of the worker and its maintenance services. Default: the log.
    pub fn alert_sink(mut self, alerts: Arc<dyn AlertSink>) -> Self {
        self.settings.alerts = alerts;
        self
    }

    /// Sets whether the worker claims units before a slot is free.
    pub fn prefetch(mut self, claim_ahead: Prefetch) -> Self {
        self.settings.claim_ahead = claim_ahead;
        self
    }

    /// Sets where the heartbeat runs. Change it only for tests with paused time.
    pub fn heartbeat(mut self, heartbeat: HeartbeatPlacement) -> Self {
        self.settings.heartbeat = heartbeat;
        self
    }

    /// Lets other workers of this host take over the units as soon as this process has ended, as
    /// after `kill -9`, instead of after the ttl. Set it only if every process that a handler starts
    /// is started through [`longshore_process::OrphanReaper`]: the takeover waits for those to end,
    /// and for no others. Default off.
    pub fn immediate_takeover(mut self, immediate_takeover: bool) -> Self {
        self.settings.immediate_takeover = immediate_takeover;
        self
    }

    /// Registers a handler. `policy` applies to units without a policy of their own.
    pub fn handle(self, kind: Kind, policy: Policy, handler: impl Handler) -> Self {
        self.handle_erased(kind, policy, Arc::new(TypedHandler(handler)))
    }

    /// Registers a closure as a handler. It may return a `Result` with any error that implements
    /// `Display` (a retry), a `Result<T, Verdict>`, or a [`crate::HandlerResult`].
    pub fn handle_fn<F, I, R>(self, kind: Kind, policy: Policy, handler: F) -> Self
    where
        F: Fn(Context, I) -> R + Send + Sync + 'static,
        I: DeserializeOwned + Send + 'static,
        R: Future<Output: IntoHandlerResult> + Send + 'static,
    {
        self.handle_erased(kind, policy, Arc::new(ClosureHandler::new(handler)))
    }

    /// Registers a handler that parses the payload itself.
    pub fn handle_erased(mut self, kind: Kind, policy: Policy, handler: Arc<dyn ErasedHandler>) -> Self {
        let registered = RegisteredHandler { policy, handler };
        if self.settings.handlers.insert(kind.clone(), registered).is_some() {
            self.duplicate = Some(kind);
        }
        self
    }

    /// Requires a permit of `pool` while a unit of this kind runs. The unit's timeout starts when
    /// the permit is granted. If the pool grants none within its wait limit, the unit is snoozed
    /// for a second and uses no attempt. If the permit is lost, the run is dropped and retried by
    /// its policy. A unit that waits for a permit occupies its slot: give a pool that is often full
    /// a short wait limit.
    pub fn require_permit(mut self, kind: Kind, pool: BoundedPool) -> Self {
        self.settings.permit_pools.insert(kind, pool);
        self
    }

    /// Validates the settings.
    pub fn build(self) -> Result<Worker, BuildError> {
        let Self { settings, duplicate } = self;
        if let Some(kind) = duplicate {
            return Err(BuildError::TwoHandlers(kind));
        }
        if settings.handlers.is_empty() {
            return Err(BuildError::NoHandlers);
        }
        if settings.slots == 0 {
            return Err(BuildError::NoSlots);
        }
        if settings.ttl < Duration::from_secs(1) {
            return Err(BuildError::ShortTtl(settings.ttl));
        }
        Ok(Worker { settings, control: WorkerControl::new(), stats: Arc::default() })
    }
}
