//! What all handles and guards of a pool share, and the tasks that serve them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use longshore_core::{PermitId, Permits, PoolName};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::alerts::Throttle;
use super::errands::{self, Errand};
use super::outage::Outage;
use super::pilot::{self, Meter};
use super::roll::Roll;
use super::settings::Settings;
use super::stats::BoundedPoolStats;
use super::{keeper, stats};

/// How long alerts on their way are waited for.
const TELLING: Duration = Duration::from_secs(10);

pub(super) struct Desk {
    pub(super) name: PoolName,
    pub(super) permits: Arc<dyn Permits>,
    pub(super) settings: Settings,
    pub(super) roll: Roll,
    pub(super) outage: Outage,
    pub(super) throttle: Throttle,
    pub(super) meter: Meter,
    /// Tasks are not ended with the pool: what was dropped last is still to be given back.
    pub(super) tasks: TaskTracker,
    /// Alerts on their way.
    pub(super) telling: TaskTracker,
    errands: Mutex<Option<UnboundedSender<Errand>>>,
    attended: AtomicBool,
    ended: CancellationToken,
    _end: DropGuard,
}

impl Desk {
    pub(super) fn new(permits: Arc<dyn Permits>, name: PoolName, settings: Settings) -> Self {
        let (ended, telling) = (CancellationToken::new(), TaskTracker::new());
        // Closed, it can be waited for at any time.
        telling.close();
        Self {
            telling,
            name,
            permits,
            roll: Roll::new(),
            outage: Outage::new(&settings.on_outage),
            throttle: Throttle::default(),
            meter: Meter::default(),
            tasks: TaskTracker::new(),
            errands: Mutex::default(),
            attended: AtomicBool::new(false),
            _end: ended.clone().drop_guard(),
            ended,
            settings,
        }
    }

    /// Sees to it that the pool's tasks run. They live in the runtime that was there first; when it is
    /// gone, in the next one.
    pub(super) fn attend(self: &Arc<Self>) {
        if self.attended.load(Ordering::Acquire) {
            return;
        }
        let mut errands = self.errands.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.attended.swap(true, Ordering::AcqRel) {
            *errands = Some(self.start());
        }
    }

    fn start(self: &Arc<Self>) -> UnboundedSender<Errand> {
        let (sender, inbox) = mpsc::unbounded_channel();
        let here = Present(Arc::downgrade(self));
        let (permits, name) = (Arc::clone(&self.permits), self.name.clone());
        self.tasks.spawn(errands::run(permits, name, self.settings.ttl, inbox));
        let (weak, ttl, ended) = (Arc::downgrade(self), self.settings.ttl, self.ended.clone());
        self.tasks.spawn(async move {
            let _here = here;
            ended.run_until_cancelled(keeper::keep(weak, ttl)).await;
        });
        if let Some(adaptive) = self.settings.adaptive {
            let (weak, ended) = (Arc::downgrade(self), self.ended.clone());
            self.tasks.spawn(async move {
                ended.run_until_cancelled(pilot::steer(weak, adaptive)).await;
            });
        }
        sender
    }

    /// Runs something beside, as long as the pool is there.
    pub(super) fn beside(&self, work: impl Future<Output = ()> + Send + 'static) {
        let ended = self.ended.clone();
        self.tasks.spawn(async move {
            ended.run_until_cancelled(work).await;
        });
    }

    /// Gives one back, or leaves the line, without waiting for it.
    pub(super) fn give_back(self: &Arc<Self>, id: PermitId) {
        if self.permits.release_at_once(&self.name, id) || self.send(Errand::Release(id)) {
            return;
        }
        // The runtime of our tasks is gone. Without another one its lease will end it.
        if Handle::try_current().is_ok() {
            self.attend();
            self.send(Errand::Release(id));
        }
    }

    pub(super) fn send(&self, errand: Errand) -> bool {
        let errands = self.errands.lock().unwrap_or_else(PoisonError::into_inner);
        errands.as_ref().is_some_and(|errands| errands.send(errand).is_ok())
    }

    pub(super) async fn settle(&self) {
        let (done, settled) = tokio::sync::oneshot::channel();
        if self.send(Errand::Settle(done)) {
            // Dropped means that nobody is left to do it.
            let _ = settled.await;
        }
        // An alarm that hangs keeps nobody for ever.
        let _ = timeout(TELLING, self.telling.wait()).await;
    }

    pub(super) async fn stats(&self) -> BoundedPoolStats {
        stats::read(self).await
    }
}

/// Says that the pool's tasks are gone, when they are.
struct Present(Weak<Desk>);

impl Drop for Present {
    fn drop(&mut self) {
        if let Some(desk) = self.0.upgrade() {
            desk.attended.store(false, Ordering::Release);
        }
    }
}
