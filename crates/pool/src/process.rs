//! Persistent worker processes, in any language: killed when they hang, replaced when they die.
//!
//! The caller's thread writes a call to the worker's pipe ([`worker`]). One task per worker reads
//! the answers ([`reader`]); another handles start, stop and failures ([`lifecycle`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use longshore_process::OrphanReaper;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::backend::{Backend, CancelReason};
use crate::call_state::CallState;
use crate::error::{CallError, CancelEffect};
use crate::job::Job;
use crate::one_shot::ResourceLimits;
use crate::pool::WorkerPool;
use crate::program::Program;
use crate::scheduler::{EndCause, WorkerId};
use crate::settings::PoolSettings;
use crate::shared::Shared;
use worker::{StopRequest, Worker};

mod lifecycle;
mod outbox;
mod pipelining;
mod reader;
mod spawn;
mod stderr;
mod worker;

impl WorkerPool {
    /// Opens a pool of persistent processes: this same program, or a command that speaks the worker
    /// protocol. Returns once its `min` workers are ready, or with the error of the first that
    /// could not be started.
    ///
    /// ```no_run
    /// use longshore_pool::{Program, PoolSettings, WorkerPool};
    ///
    /// # async fn resized() -> Result<(), longshore_pool::CallError> {
    /// let program = Program::command("python3").arg("images.py");
    /// let pool = WorkerPool::processes("images", program, PoolSettings::default()).await?;
    /// let size: (u32, u32) = pool.call("size", "harbour.png").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn processes(
        name: impl Into<String>,
        program: Program,
        settings: PoolSettings,
    ) -> Result<Self, CallError> {
        let config = ProcessConfig { program, one_call: false, limits: ResourceLimits::default() };
        Self::open(name.into(), settings, Box::new(Processes::new(config))).await
    }
}

/// How worker processes are started.
pub(crate) struct ProcessConfig {
    pub(crate) program: Program,
    /// Each process makes one call and ends.
    pub(crate) one_call: bool,
    pub(crate) limits: ResourceLimits,
}

/// Runs workers as processes.
pub(crate) struct Processes {
    config: Arc<ProcessConfig>,
    workers: Arc<Workers>,
    tasks: Mutex<JoinSet<()>>,
    reaper: Arc<OrphanReaper>,
    runtime: Handle,
}

/// The worker processes, by id.
#[derive(Default)]
pub(crate) struct Workers(RwLock<HashMap<WorkerId, Arc<Worker>>>);

impl Workers {
    fn find(&self, id: WorkerId) -> Option<Arc<Worker>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    fn add(&self, worker: Arc<Worker>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(worker.id, worker);
    }

    pub(crate) fn remove(&self, id: WorkerId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    fn all(&self) -> Vec<Arc<Worker>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

impl Processes {
    pub(crate) fn new(config: ProcessConfig) -> Self {
        Self {
            config: Arc::new(config),
            workers: Arc::default(),
            tasks: Mutex::default(),
            reaper: OrphanReaper::shared(),
            runtime: Handle::current(),
        }
    }
}

impl Backend for Processes {
    fn start(&self, shared: &Arc<Shared>, id: WorkerId) {
        let worker = Arc::new(Worker::new(id, self.config.one_call, &shared.settings));
        self.workers.add(Arc::clone(&worker));
        let lifecycle = lifecycle::WorkerLifecycle {
            worker,
            shared: Arc::clone(shared),
            config: Arc::clone(&self.config),
            workers: Arc::clone(&self.workers),
            reaper: Arc::clone(&self.reaper),
        };
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(lifecycle.run(), &self.runtime);
    }

    fn dispatch(&self, shared: &Arc<Shared>, id: WorkerId, job: Job) {
        match self.workers.find(id) {
            Some(worker) => worker.dispatch(shared, job),
            None => shared.requeue(job),
        }
    }

    fn stop(&self, _: &Arc<Shared>, id: WorkerId, cause: EndCause) {
        if let Some(worker) = self.workers.find(id) {
            worker.request_stop(StopRequest::Graceful(cause));
        }
    }

    fn cancel(
        &self,
        shared: &Arc<Shared>,
        id: WorkerId,
        call_state: &Arc<CallState>,
        reason: CancelReason,
    ) -> CancelEffect {
        let worker = self.workers.find(id);
        worker.map_or(CancelEffect::LeftRunning, |worker| worker.cancel(shared, call_state, reason))
    }

    fn kill_all(&self) {
        for worker in self.workers.all() {
            worker.kill(StopRequest::Kill(EndCause::Closing));
        }
    }

    fn pid(&self, id: WorkerId) -> Option<u32> {
        self.workers.find(id).and_then(|worker| worker.pid())
    }
}
