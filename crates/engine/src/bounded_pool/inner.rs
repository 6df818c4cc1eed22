//! State shared by all handles and permits of a pool, and its background tasks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use longshore_core::{PermitId, Permits, PoolName};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::adaptive_limit::{self, UsageMeter};
use super::alerts::AlertThrottle;
use super::fallback::BackendOutage;
use super::held_permits::HeldPermits;
use super::release_task::{self, ReleaseCommand};
use super::settings::PoolSettings;
use super::stats::BoundedPoolStats;
use super::{lease_renewer, stats};
use crate::HeartbeatPlacement;

/// How long to wait for alerts in flight.
const ALERT_FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct PoolInner {
    pub(super) name: PoolName,
    pub(super) permits: Arc<dyn Permits>,
    pub(super) settings: PoolSettings,
    pub(super) held_permits: HeldPermits,
    pub(super) outage: BackendOutage,
    pub(super) throttle: AlertThrottle,
    pub(super) meter: UsageMeter,
    /// Not stopped with the pool: permits dropped last must still be released.
    pub(super) tasks: TaskTracker,
    /// Alerts in flight.
    pub(super) alert_tasks: TaskTracker,
    release_tx: Mutex<Option<UnboundedSender<ReleaseCommand>>>,
    tasks_running: AtomicBool,
    /// The renewer runs on the thread of renewals, for as long as the pool exists.
    has_renewal_thread: AtomicBool,
    closed: CancellationToken,
    _close_on_drop: DropGuard,
}

impl PoolInner {
    pub(super) fn new(permits: Arc<dyn Permits>, name: PoolName, settings: PoolSettings) -> Self {
        let (closed, alert_tasks) = (CancellationToken::new(), TaskTracker::new());
        // A closed tracker can be waited for at any time.
        alert_tasks.close();
        Self {
            alert_tasks,
            name,
            permits,
            held_permits: HeldPermits::new(),
            outage: BackendOutage::new(&settings.on_outage),
            throttle: AlertThrottle::default(),
            meter: UsageMeter::default(),
            tasks: TaskTracker::new(),
            release_tx: Mutex::default(),
            tasks_running: AtomicBool::new(false),
            has_renewal_thread: AtomicBool::new(false),
            _close_on_drop: closed.clone().drop_guard(),
            closed,
            settings,
        }
    }

    /// Starts the pool's tasks unless they run. They live in the runtime of the first caller; after
    /// it is gone, in the next caller's. Renewals have a thread of their own.
    pub(super) fn ensure_tasks(self: &Arc<Self>) {
        if self.tasks_running.load(Ordering::Acquire) {
            return;
        }
        let mut release_tx = self.release_tx.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.tasks_running.swap(true, Ordering::AcqRel) {
            *release_tx = Some(self.start());
        }
    }

    fn start(self: &Arc<Self>) -> UnboundedSender<ReleaseCommand> {
        let (sender, commands) = mpsc::unbounded_channel();
        let guard = TasksGuard(Arc::downgrade(self));
        let (permits, name) = (Arc::clone(&self.permits), self.name.clone());
        let releases = release_task::run(permits, name, self.settings.ttl, commands);
        self.tasks.spawn(async move {
            let _guard = guard;
            releases.await;
        });
        self.start_renewals();
        if let Some(adaptive) = self.settings.adaptive {
            let (weak, closed) = (Arc::downgrade(self), self.closed.clone());
            self.tasks.spawn(async move {
                closed.run_until_cancelled(adaptive_limit::run(weak, adaptive)).await;
            });
        }
        sender
    }

    fn start_renewals(self: &Arc<Self>) {
        let (weak, ttl, closed) = (Arc::downgrade(self), self.settings.ttl, self.closed.clone());
        let renewals = async move {
            closed.run_until_cancelled(lease_renewer::run(weak, ttl)).await;
        };
        let thread = match self.settings.renewals {
            HeartbeatPlacement::Thread => lease_renewer::thread(),
            HeartbeatPlacement::Task => None,
        };
        match thread {
            Some(_) if self.has_renewal_thread.swap(true, Ordering::AcqRel) => {}
            Some(thread) => drop(self.tasks.spawn_on(renewals, thread)),
            None => drop(self.tasks.spawn(renewals)),
        }
    }

    /// Runs a task in the background until the pool is closed.
    pub(super) fn spawn_until_closed(&self, work: impl Future<Output = ()> + Send + 'static) {
        let closed = self.closed.clone();
        self.tasks.spawn(async move {
            closed.run_until_cancelled(work).await;
        });
    }

    /// Releases a permit, or leaves the wait queue, in the background.
    pub(super) fn release_in_background(self: &Arc<Self>, id: PermitId) {
        if self.permits.try_release_now(&self.name, id) || self.send_command(ReleaseCommand::Release(id)) {
            return;
        }
        // The runtime of the tasks is gone. Without another runtime the permit's lease expires.
        if Handle::try_current().is_ok() {
            self.ensure_tasks();
            self.send_command(ReleaseCommand::Release(id));
        }
    }

    pub(super) fn send_command(&self, command: ReleaseCommand) -> bool {
        let release_tx = self.release_tx.lock().unwrap_or_else(PoisonError::into_inner);
        release_tx.as_ref().is_some_and(|release_tx| release_tx.send(command).is_ok())
    }

    pub(super) async fn settle(&self) {
        let (done, settled) = tokio::sync::oneshot::channel();
        if self.send_command(ReleaseCommand::Flush(done)) {
            // A dropped sender means that the task is gone.
            let _ = settled.await;
        }
        // Bounded: an alert sink that hangs must not block shutdown.
        let _ = timeout(ALERT_FLUSH_TIMEOUT, self.alert_tasks.wait()).await;
    }

    pub(super) async fn stats(&self) -> BoundedPoolStats {
        stats::read(self).await
    }
}

/// Marks the pool's tasks as stopped on drop.
struct TasksGuard(Weak<PoolInner>);

impl Drop for TasksGuard {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.tasks_running.store(false, Ordering::Release);
        }
    }
}
