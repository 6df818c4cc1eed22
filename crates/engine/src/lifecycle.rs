//! A worker's lifecycle: open the session, run the tasks, quiet, drain, stop, close the session.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::Error;
use longshore_core::worker_session::WorkerCommand;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::backoff::Backoff;
use crate::heartbeat_thread::{HeartbeatPlacement, HeartbeatThread};
use crate::randomness::new_session_id;
use crate::services::{self, Services};
use crate::stats::WorkerReport;
use crate::worker::{Worker, WorkerError};
use crate::worker_inner::{StoreCall, WorkerInner};
use crate::{completer, executor, fetcher, heartbeat};

/// How long a stopping worker tries to record completions, and then to close its session.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs a worker from its first session to its report.
pub(crate) async fn run(worker: Worker) -> Result<WorkerReport, WorkerError> {
    let worker = Arc::new(WorkerInner::new(worker));
    if !open(&worker).await? {
        return Ok(worker.stats.report());
    }
    let mut tasks = WorkerTasks::default();
    tasks.start(&worker);
    let ended = tokio::select! {
        biased;
        () = shut_down(&worker) => Ok(()),
        name = tasks.first_exit() => Err(WorkerError::TaskEnded(name)),
    };
    tasks.stop().await;
    let left = worker.table.len() as u64;
    close(&worker).await;
    worker.store_alerts.flush().await;
    ended.map(|()| WorkerReport { left, ..worker.stats.report() })
}

/// Opens the session, retrying while the store is unavailable. Returns false if the worker was told
/// to end before it succeeded.
async fn open(worker: &WorkerInner) -> Result<bool, WorkerError> {
    let session = new_session_id();
    let mut backoff = Backoff::store();
    while worker.control.order() < WorkerCommand::Drain {
        match worker.store().open_session(worker.new_session(session)).await {
            Ok(()) => {
                worker.store_answered(StoreCall::Session);
                worker.table.set_session(session);
                tracing::info!(%session, slots = worker.settings.slots, "worker started");
                return Ok(true);
            }
            Err(error) if error.is_retryable() => worker.store_failed(StoreCall::Session, &error),
            Err(error) => return Err(error.into()),
        }
        let _ = timeout(backoff.next_wait(), worker.control.wait_for_order(WorkerCommand::Drain)).await;
    }
    Ok(false)
}

/// Returns once the worker was told to end and holds no unit, or the timeouts of a stop have
/// passed.
async fn shut_down(worker: &WorkerInner) {
    let WorkerInner { control, table, settings, .. } = worker;
    control.wait_for_order(WorkerCommand::Drain).await;
    tokio::select! {
        biased;
        () = table.wait_idle() => return,
        () = control.wait_for_order(WorkerCommand::Stop) => {}
    }
    table.stop();
    // Each run drops its handler after the grace itself; a second more lets it return.
    let _ = timeout(settings.grace + Duration::from_secs(1), table.wait_no_runs()).await;
    table.interrupt_running();
    let _ = timeout(SHUTDOWN_TIMEOUT, table.wait_idle()).await;
}

/// Closes the session: the store returns all units that it still holds to their queues.
async fn close(worker: &WorkerInner) {
    let Some(session) = worker.table.session() else {
        return;
    };
    let mut backoff = Backoff::store();
    let closing = async {
        loop {
            match worker.store().close_session(session).await {
                Err(error) if error.is_retryable() => backoff.wait().await,
                answer => return answer,
            }
        }
    };
    match timeout(SHUTDOWN_TIMEOUT, closing).await {
        Ok(Ok(()) | Err(Error::SessionGone(_))) => tracing::info!(%session, "worker ended"),
        Ok(Err(error)) => tracing::error!(%error, %session, "cannot close the session"),
        Err(_) => tracing::warn!(%session, "the store is unavailable: the session will expire"),
    }
}

/// Applies slot targets: the current one immediately, later ones as they are set.
fn apply_resizes(worker: &Arc<WorkerInner>) -> impl Future<Output = ()> + use<> {
    let worker = Arc::clone(worker);
    let mut target = worker.control.slot_target();
    let apply = |worker: &WorkerInner, target: &mut watch::Receiver<Option<u32>>| {
        if let Some(slots) = *target.borrow_and_update() {
            worker.table.resize(slots);
        }
    };
    apply(&worker, &mut target);
    async move {
        // The sender is in `worker.control`, so this loop does not end before the worker does.
        while target.changed().await.is_ok() {
            apply(&worker, &mut target);
        }
    }
}

/// The worker's tasks. Dropping them drops all handlers.
#[derive(Default)]
struct WorkerTasks {
    tasks: JoinSet<&'static str>,
    heartbeat_thread: Option<HeartbeatThread>,
}

impl WorkerTasks {
    fn start(&mut self, worker: &Arc<WorkerInner>) {
        self.start_heartbeat(worker);
        self.spawn("resizer", apply_resizes(worker));
        self.spawn("completer", completer::run(Arc::clone(worker)));
        self.spawn("executor", executor::run(Arc::clone(worker)));
        self.spawn("fetcher", fetcher::run(Arc::clone(worker)));
        if worker.settings.services == Services::All {
            self.start_services(worker);
        }
    }

    fn start_heartbeat(&mut self, worker: &Arc<WorkerInner>) {
        if worker.settings.heartbeat == HeartbeatPlacement::Thread {
            match HeartbeatThread::start(Arc::clone(worker)) {
                Ok(heartbeat_thread) => return self.heartbeat_thread = Some(heartbeat_thread),
                Err(error) => tracing::warn!(%error, "no heartbeat thread; running it as a task"),
            }
        }
        self.spawn("heartbeat", heartbeat::run(Arc::clone(worker)));
    }

    fn start_services(&mut self, worker: &Arc<WorkerInner>) {
        let session = {
            let worker = Arc::clone(worker);
            move || worker.table.session()
        };
        let (store, retention) = (Arc::clone(&worker.settings.store), worker.settings.retention);
        let (scheduled, alerts) = (Arc::clone(&worker.scheduled), Arc::clone(&worker.store_alerts));
        let services = services::run_all(store, session, scheduled, retention, alerts);
        self.spawn("services", services);
    }

    fn spawn(&mut self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(async move {
            part.await;
            name
        });
    }

    /// Returns the name of the first task that ended, which is a bug.
    async fn first_exit(&mut self) -> &'static str {
        let Self { tasks, heartbeat_thread } = self;
        let heartbeat = async {
            match heartbeat_thread {
                Some(heartbeat_thread) => heartbeat_thread.wait_exit().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = tasks.join_next() => match ended {
                Some(Ok(name)) => name,
                Some(Err(error)) => {
                    tracing::error!(%error, "a task of the worker panicked");
                    "task"
                }
                None => "tasks",
            },
            () = heartbeat => "heartbeat",
        }
    }

    async fn stop(mut self) {
        self.tasks.shutdown().await;
        if let Some(heartbeat_thread) = self.heartbeat_thread.take() {
            heartbeat_thread.stop().await;
        }
    }
}
