//! The pool's front: opened, looked at, closed. Calls are in `calls`, how one waits in `pending`.

mod builder;
mod calls;
mod many;
mod pending;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::JoinSet;

pub use self::builder::PoolBuilder;
use crate::crew::Crew;
use crate::error::{CallError, ErrorKind};
use crate::health::Health;
use crate::job::error;
use crate::meters::PUBLISH;
use crate::operation::{Operation, OperationSet};
use crate::settings::Settings;
use crate::shared::{Shared, start_failed};
use crate::stats::Stats;
use crate::table::{Counts, LONGEST_REST};
use crate::threads::Threads;

/// An elastic group of workers that run named operations. Clones are the same pool; when the last
/// one is dropped, its workers end.
#[derive(Clone)]
pub struct WorkerPool {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    /// Whoever looks after the workers; ends with the pool.
    _keeper: JoinSet<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.close();
        self.shared.kill_all();
    }
}

impl WorkerPool {
    /// A pool of threads. Returns once its `min` workers are ready; if one cannot be started, that is
    /// the error.
    pub async fn threads(
        name: impl Into<String>,
        operations: impl OperationSet,
        settings: Settings,
    ) -> Result<Self, CallError> {
        Self::open(name.into(), settings, Box::new(Threads::new(Arc::new(operations)))).await
    }

    pub(crate) async fn open(
        name: String,
        settings: Settings,
        crew: Box<dyn Crew>,
    ) -> Result<Self, CallError> {
        let refused = |name: &str, why: &str| error(name, "", start_failed(why), None);
        if let Some(fault) = settings.fault() {
            return Err(refused(&name, fault));
        }
        if Handle::try_current().is_err() {
            return Err(refused(&name, "a pool needs a tokio runtime"));
        }
        let shared = Arc::new(Shared::new(name, settings, crew));
        let mut keeper = JoinSet::new();
        keeper.spawn(keep(Arc::clone(&shared)));
        let pool = Self { inner: Arc::new(Inner { shared, _keeper: keeper }) };
        pool.until(|counts| counts.serving >= counts.min).await?;
        Ok(pool)
    }

    /// Starts as many workers as there may be, and waits until each is ready; an error if one cannot
    /// be started. Those above `min` leave again once they are idle for long.
    pub async fn warm_up(&self) -> Result<(), CallError> {
        self.inner.shared.fill();
        // One that is idle for a moment only may have left before the last is there.
        self.until(|counts| counts.serving >= counts.max || counts.starting == 0).await
    }

    /// Waits until there are workers enough; an error if one cannot be started.
    async fn until(&self, enough: impl Fn(&Counts) -> bool) -> Result<(), CallError> {
        let shared = &self.inner.shared;
        let before = shared.starts().failures;
        loop {
            let changed = shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (counts, starts) = (shared.counts(), shared.starts());
            let kind = match starts.error {
                _ if counts.closing => Some(ErrorKind::ShuttingDown),
                // One that failed meanwhile, or long ago with none on its way.
                Some(kind) if starts.failures > before || counts.starting == 0 => Some(kind),
                _ if enough(&counts) => return Ok(()),
                _ => None,
            };
            if let Some(kind) = kind {
                return Err(error(&shared.name, "", kind, None));
            }
            changed.await;
        }
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        &self.inner.shared.name
    }

    /// Whether [`WorkerPool::run_blocking`] can be asked of it.
    #[cfg(feature = "axum")]
    pub(crate) fn runs_closures(&self) -> bool {
        self.inner.shared.isolation() == crate::crew::Isolation::Threads
    }

    /// What can be called; nothing as long as no worker has said so.
    pub fn list_operations(&self) -> Vec<Operation> {
        self.inner.shared.known.list()
    }

    /// The pool at this moment.
    pub fn stats(&self) -> Stats {
        let shared = &self.inner.shared;
        let (counts, counters) = (shared.counts(), &shared.counters);
        Stats {
            workers: counts.workers,
            busy: counts.busy,
            starting: counts.starting,
            abandoned: counts.abandoned,
            queue_depth: counts.queue,
            queue_limit: shared.settings.queue,
            in_line: counts.line,
            calls: counters.calls.read(),
            operations: shared.known.stats(),
            ended: counters.ended(),
            wait: counters.wait.percentiles(),
            run: counters.run.percentiles(),
        }
    }

    /// Whether it can do its work.
    pub fn health(&self) -> Health {
        let shared = &self.inner.shared;
        Health::of(&shared.counts(), shared.settings.queue, shared.starts().error.as_ref())
    }

    /// Gives the pool another size. Workers that are too many end when they are free; those that are
    /// missing are started ([`WorkerPool::warm_up`] waits for them).
    pub fn resize(&self, min: usize, max: usize) -> Result<(), CallError> {
        let shared = &self.inner.shared;
        let settings = Settings { min, max, ..shared.settings.clone() };
        match settings.fault() {
            Some(fault) => Err(error(self.name(), "", start_failed(fault), None)),
            None => {
                shared.resize(min, max);
                Ok(())
            }
        }
    }

    /// Takes no more calls, lets those that wait and run come to their end, and ends the workers.
    /// After `limit`, those that still wait are told no, and processes are killed; threads cannot
    /// be, and end when they are done.
    pub async fn close(&self, limit: Duration) {
        let shared = &self.inner.shared;
        shared.close();
        let ended = async {
            loop {
                let changed = shared.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                shared.tend_now();
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

/// It says no more than its name: what it does may be long.
impl std::fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerPool").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// Looks after the workers until the pool is gone: when the table asks for it, or when it said that
/// it would want it next. Rests otherwise.
async fn keep(shared: Arc<Shared>) {
    loop {
        let again = shared.tend_now();
        shared.counters.publish(|| shared.counts());
        let rest = again.map_or(LONGEST_REST, |when| when.duration_since(Instant::now()));
        let rest = rest.clamp(Duration::from_millis(5), PUBLISH.unwrap_or(LONGEST_REST));
        let _ = tokio::time::timeout(rest, shared.tend.notified()).await;
    }
}
