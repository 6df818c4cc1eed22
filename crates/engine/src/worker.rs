//! A worker: built here, lived in `life`. Owns the settings and their checks, nothing that runs.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use longshore_core::store::{Queues, Retention};
use longshore_core::{BatchId, Error, Kind, Policy, Scope, Store};
use serde::de::DeserializeOwned;

use crate::bounded_pool::BoundedPool;
use crate::context::Context;
use crate::control::WorkerControl;
use crate::handler::{Closure, ErasedHandler, Handler, IntoHandlerResult, Typed};
use crate::life;
use crate::pulse::Heartbeat;
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
    pub(crate) settings: Settings,
    pub(crate) control: WorkerControl,
    pub(crate) stats: Arc<WorkerStats>,
}

/// A worker in the making. See [`Worker::builder`].
pub struct WorkerBuilder {
    settings: Settings,
    twice: Option<Kind>,
}

/// How many units of a worker with `slots` slots may have begun without their end being recorded:
/// those that run and those on their way to the store. This many are repeated, at most, when the
/// worker is killed.
pub const fn most_at_risk(slots: u32) -> u32 {
    let most = slots.saturating_mul(3);
    if most > 32 { most } else { 32 }
}

/// Whether units are claimed before there is a slot for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClaimAhead {
    /// What the worker finishes in about 100 ms, by its measured rate. Nothing for slow handlers.
    #[default]
    Adaptive,
    /// Never.
    Off,
}

/// Why a worker cannot be built.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// It would take every unit and run none.
    #[error("a worker needs at least one handler")]
    NoHandlers,
    /// One of two would never run.
    #[error("kind `{0}` has two handlers")]
    TwoHandlers(Kind),
    /// It would never run anything.
    #[error("a worker needs at least one slot")]
    NoSlots,
    /// Beats cannot be that frequent.
    #[error("a session's ttl must be at least 1 s, not {0:?}")]
    ShortTtl(Duration),
}

/// Why a worker ended badly. Whatever it held is taken over by others after its session's ttl.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The store refused it.
    #[error(transparent)]
    Store(#[from] Error),
    /// Signals cannot be listened to.
    #[error("cannot listen to signals")]
    Signals(#[source] io::Error),
    /// One of the worker's own tasks ended: a bug in Longshore.
    #[error("the worker's {0} ended unexpectedly")]
    TaskEnded(&'static str),
}

/// Everything a worker was told.
pub(crate) struct Settings {
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
    pub(crate) claim_ahead: ClaimAhead,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) handlers: HashMap<Kind, Registered>,
    /// What units of a kind hold a permit of while they run.
    pub(crate) holds: HashMap<Kind, BoundedPool>,
}

/// A kind's handler and its policy for units that bring none.
pub(crate) struct Registered {
    pub(crate) policy: Policy,
    pub(crate) handler: Arc<dyn ErasedHandler>,
}

impl Worker {
    /// Starts a worker's description: 1 slot, all queues, every tenant, upkeep services on.
    pub fn builder(store: Arc<dyn Store>) -> WorkerBuilder {
        WorkerBuilder { settings: Settings::new(store), twice: None }
    }

    /// A handle to steer the worker with while it runs.
    pub fn control(&self) -> WorkerControl {
        self.control.clone()
    }

    /// The worker's counters.
    pub fn stats(&self) -> Arc<WorkerStats> {
        Arc::clone(&self.stats)
    }

    /// Works until drained, stopped or (with `until_idle`) out of work. Dropping the future drops
    /// all handlers at once; their units are taken over by others after the session's ttl.
    // Boxed, so that it is compiled in this crate and not, less carefully, in the caller's.
    pub fn run(self) -> BoxFuture<'static, Result<WorkerReport, WorkerError>> {
        Box::pin(life::live(self))
    }
}

impl Settings {
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
            claim_ahead: ClaimAhead::Adaptive,
            heartbeat: Heartbeat::Thread,
            handlers: HashMap::new(),
            holds: HashMap::new(),
        }
    }
}

#[expect(clippy::return_self_not_must_use, reason = "a builder without build() does nothing")]
impl WorkerBuilder {
    /// How many units of weight 1 run at once.
    pub fn slots(mut self, slots: u32) -> Self {
        self.settings.slots = slots;
        self
    }

    /// Named resources that units may ask for, as `gpu` → 2.
    pub fn resources(mut self, resources: BTreeMap<String, u32>) -> Self {
        self.settings.resources = resources;
        self
    }

    /// Which queues it takes from.
    pub fn queues(mut self, queues: Queues) -> Self {
        self.settings.queues = queues;
        self
    }

    /// Whose units it takes.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.settings.scope = scope;
        self
    }

    /// Takes units of this batch only.
    pub fn batch(mut self, batch: BatchId) -> Self {
        self.settings.batch = Some(batch);
        self
    }

    /// What people see in the list of workers.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.settings.label = label.into();
        self
    }

    /// After this long without a heartbeat others take its units over. Default 15 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = ttl;
        self
    }

    /// How long a handler that was asked to end may go on before it is dropped. Default 5 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// Whether it ends by itself when nothing is ready, leased or scheduled and no batch is open.
    pub fn until_idle(mut self, until_idle: bool) -> Self {
        self.settings.until_idle = until_idle;
        self
    }

    /// Whether it also does the store's upkeep.
    pub fn services(mut self, services: Services) -> Self {
        self.settings.services = services;
        self
    }

    /// How long ended units are kept, if it does the upkeep.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.settings.retention = retention;
        self
    }

    /// Whether it claims before there is a slot.
    pub fn claim_ahead(mut self, claim_ahead: ClaimAhead) -> Self {
        self.settings.claim_ahead = claim_ahead;
        self
    }

    /// Where the heart beats. Leave it on its thread unless time is paused, as in tests.
    pub fn heartbeat(mut self, heartbeat: Heartbeat) -> Self {
        self.settings.heartbeat = heartbeat;
        self
    }

    /// Registers a handler. `policy` is for units that bring none.
    pub fn handle(self, kind: Kind, policy: Policy, handler: impl Handler) -> Self {
        self.handle_erased(kind, policy, Arc::new(Typed(handler)))
    }

    /// Registers a closure as a handler. It may return a `Result` with any error that can be
    /// shown (a retry), a `Result<T, Verdict>`, or a [`crate::HandlerResult`].
    pub fn handle_fn<F, I, R>(self, kind: Kind, policy: Policy, handler: F) -> Self
    where
        F: Fn(Context, I) -> R + Send + Sync + 'static,
        I: DeserializeOwned + Send + 'static,
        R: Future<Output: IntoHandlerResult> + Send + 'static,
    {
        self.handle_erased(kind, policy, Arc::new(Closure::new(handler)))
    }

    /// Registers a handler that reads the payload itself.
    pub fn handle_erased(
        mut self,
        kind: Kind,
        policy: Policy,
        handler: Arc<dyn ErasedHandler>,
    ) -> Self {
        let registered = Registered { policy, handler };
        if self.settings.handlers.insert(kind.clone(), registered).is_some() {
            self.twice = Some(kind);
        }
        self
    }

    /// Units of this kind run while they hold a permit of `pool`. Their time begins with it. One for which
    /// there is none, within the wait that the pool allows, goes back and comes again a second later, and has
    /// used no attempt; one whose permit is lost is dropped where it stands, and tried again if its policy
    /// says so. Whoever waits stands in its slot: a pool that is often full wants a short wait.
    pub fn hold(mut self, kind: Kind, pool: BoundedPool) -> Self {
        self.settings.holds.insert(kind, pool);
        self
    }

    /// Checks the description.
    pub fn build(self) -> Result<Worker, BuildError> {
        let Self { settings, twice } = self;
        if let Some(kind) = twice {
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
