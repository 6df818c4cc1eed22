//! The pool's public type: open, inspect, close. Calls are in `calls`; waiting for a call is in
//! `pending`.

mod builder;
mod call_many;
mod calls;
mod pending;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::JoinSet;

pub use self::builder::PoolBuilder;
use crate::backend::Backend;
use crate::error::{CallError, ErrorKind};
use crate::health::Health;
use crate::job::call_error;
use crate::metrics::PUBLISH_INTERVAL;
use crate::operation::{Operation, OperationSet};
use crate::scheduler::{EndCause, MAX_MAINTENANCE_INTERVAL, PoolCounts};
use crate::settings::PoolSettings;
use crate::shared::{Shared, start_failed};
use crate::stats::WorkerPoolStats;
use crate::threads::Threads;

/// An elastic group of workers that run named operations. Clones share the same pool; when the last
/// one is dropped, the workers are killed.
#[derive(Clone)]
pub struct WorkerPool {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    /// The maintenance task; ends with the pool.
    _maintenance: JoinSet<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.close();
        self.shared.kill_all();
    }
}

impl WorkerPool {
    /// Opens a pool of threads. Returns once its `min` workers are ready, or with the error of the
    /// first that could not be started.
    pub async fn threads(
        name: impl Into<String>,
        operations: impl OperationSet,
        settings: PoolSettings,
    ) -> Result<Self, CallError> {
        Self::open(name.into(), settings, Box::new(Threads::new(Arc::new(operations)))).await
    }

    pub(crate) async fn open(
        name: String,
        settings: PoolSettings,
        backend: Box<dyn Backend>,
    ) -> Result<Self, CallError> {
        let rejected = |name: &str, reason: &str| call_error(name, "", start_failed(reason), None);
        if let Some(message) = settings.invalid_setting() {
            return Err(rejected(&name, message));
        }
        if Handle::try_current().is_err() {
            return Err(rejected(&name, "a pool needs a tokio runtime"));
        }
        let shared = Arc::new(Shared::new(name, settings, backend));
        let mut maintenance = JoinSet::new();
        maintenance.spawn(run_maintenance_task(Arc::clone(&shared)));
        let pool = Self { inner: Arc::new(Inner { shared, _maintenance: maintenance }) };
        pool.wait_until(|counts| counts.serving >= counts.min).await?;
        Ok(pool)
    }

    /// Starts workers up to `max`, and waits until each is ready; an error if one cannot be
    /// started. Workers above `min` stop again after the idle timeout.
    pub async fn warm_up(&self) -> Result<(), CallError> {
        self.inner.shared.start_to_max();
        // With a very short idle timeout, one may have stopped before the last is ready.
        self.wait_until(|counts| counts.serving >= counts.max || counts.starting == 0).await
    }

    /// Waits until `enough` is true; an error if a worker cannot be started.
    async fn wait_until(&self, enough: impl Fn(&PoolCounts) -> bool) -> Result<(), CallError> {
        let shared = &self.inner.shared;
        let before = shared.starts().failures;
        loop {
            let changed = shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (counts, starts) = (shared.counts(), shared.starts());
            let kind = match starts.error {
                _ if counts.closing => Some(ErrorKind::ShuttingDown),
                // A start that failed since we began to wait, or earlier with no start under way.
                Some(kind) if starts.failures > before || counts.starting == 0 => Some(kind),
                _ if enough(&counts) => return Ok(()),
                _ => None,
            };
            if let Some(kind) = kind {
                return Err(call_error(&shared.name, "", kind, None));
            }
            changed.await;
        }
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        &self.inner.shared.name
    }

    /// Whether the pool supports [`WorkerPool::run_blocking`].
    #[cfg(feature = "axum")]
    pub(crate) fn runs_closures(&self) -> bool {
        self.inner.shared.isolation() == crate::backend::Isolation::Threads
    }

    /// The operations; empty as long as no worker has reported them.
    pub fn list_operations(&self) -> Vec<Operation> {
        self.inner.shared.registry.list()
    }

    /// Waits until more than `known` workers have died without being told to end. Returns how many have.
    pub async fn wait_for_deaths(&self, known: u64) -> u64 {
        let shared = &self.inner.shared;
        loop {
            let changed = shared.changed.notified();
            let deaths = shared.counters.ended().get(EndCause::Died.name()).copied().unwrap_or(0);
            if deaths > known {
                return deaths;
            }
            changed.await;
        }
    }

    /// A snapshot of the pool's statistics.
    pub fn stats(&self) -> WorkerPoolStats {
        let shared = &self.inner.shared;
        let (counts, counters) = (shared.counts(), &shared.counters);
        WorkerPoolStats {
            workers: counts.workers,
            busy: counts.busy,
            starting: counts.starting,
            abandoned: counts.abandoned,
            queue_depth: counts.queue,
            queue_limit: shared.settings.queue,
            in_line: counts.overflow,
            calls: counters.calls.read(),
            operations: shared.registry.stats(),
            ended: counters.ended(),
            wait: counters.wait.percentiles(),
            run: counters.run.percentiles(),
        }
    }

    /// Whether the pool can serve calls.
    pub fn health(&self) -> Health {
        let shared = &self.inner.shared;
        Health::of(&shared.counts(), shared.settings.queue, shared.starts().error.as_ref())
    }

    /// Changes the number of workers. Surplus workers stop when they are idle. Missing workers are
    /// started ([`WorkerPool::warm_up`] waits for them).
    pub fn resize(&self, min: usize, max: usize) -> Result<(), CallError> {
        let shared = &self.inner.shared;
        let settings = PoolSettings { min, max, ..shared.settings.clone() };
        match settings.invalid_setting() {
            Some(message) => Err(call_error(self.name(), "", start_failed(message), None)),
            None => {
                shared.resize(min, max);
                Ok(())
            }
        }
    }

    /// Closes the pool: accepts no more calls, finishes queued and running ones, and stops the
    /// workers. After `limit`, queued calls are rejected, and processes are killed. Threads cannot
    /// be killed; they end after their call.
    pub async fn close(&self, limit: Duration) {
        let shared = &self.inner.shared;
        shared.close();
        let ended = async {
            loop {
                let changed = shared.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                shared.run_maintenance();
                if shared.is_empty() {
                    break;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(limit, ended).await.is_err() {
            shared.kill_all();
        }
    }
}

/// Shows the name only: the rest may be long.
impl std::fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerPool").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// The maintenance task of a pool. Runs when the scheduler requests it, or at the time that the
/// scheduler named last; sleeps otherwise.
async fn run_maintenance_task(shared: Arc<Shared>) {
    loop {
        let next = shared.run_maintenance();
        shared.counters.publish(|| shared.counts());
        let pause = next.map_or(MAX_MAINTENANCE_INTERVAL, |when| when.duration_since(Instant::now()));
        let pause =
            pause.clamp(Duration::from_millis(5), PUBLISH_INTERVAL.unwrap_or(MAX_MAINTENANCE_INTERVAL));
        let _ = tokio::time::timeout(pause, shared.maintenance_due.notified()).await;
    }
}
