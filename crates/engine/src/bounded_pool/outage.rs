//! While the back end is away: since when, and what this process gives by itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::alerts::PoolAlertKind;
use super::desk::Desk;
use super::guard::Permit;
use super::settings::OnOutage;
use crate::Backoff;

/// Tries before somebody does without the back end, or goes away if it does not wait.
pub(super) const TRIES: u32 = 3;
/// How long one waits for a permit of this process before it asks the back end again.
const LOOK: Duration = Duration::from_secs(1);

pub(super) struct Outage {
    /// Looked at on every way to a permit.
    lasts: AtomicBool,
    since: Mutex<Option<Instant>>,
    /// What this process gives by itself, if it does.
    own: Option<(Arc<Semaphore>, u32)>,
}

impl Outage {
    pub(super) fn new(on_outage: &OnOutage) -> Self {
        let own = match on_outage {
            OnOutage::FailClosed => None,
            OnOutage::FailOpen { most } => Some((Arc::new(Semaphore::new(*most as usize)), *most)),
        };
        Self { lasts: AtomicBool::new(false), since: Mutex::default(), own }
    }

    /// How long it has lasted.
    pub(super) fn lasts(&self) -> Option<Duration> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).map(|since| since.elapsed())
    }

    /// Most weight that this process may give, and what of it is held; if it gives any.
    pub(super) fn own(&self) -> Option<(u32, u32)> {
        let (room, most) = self.own.as_ref()?;
        let free = u32::try_from(room.available_permits()).unwrap_or(u32::MAX);
        Some((*most, most.saturating_sub(free)))
    }

    /// The back end answered.
    pub(super) fn over(&self) {
        if self.lasts.load(Ordering::Relaxed) {
            self.lasts.store(false, Ordering::Relaxed);
            *self.since.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// The back end did not answer; whether that is news.
    fn begin(&self) -> bool {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let news = since.is_none();
        self.lasts.store(true, Ordering::Relaxed);
        since.get_or_insert_with(Instant::now);
        news
    }

    async fn take(&self, weight: u32, wait: Duration) -> Option<OwnedSemaphorePermit> {
        let (room, most) = self.own.as_ref()?;
        let weight = weight.min(*most);
        timeout(wait, Arc::clone(room).acquire_many_owned(weight)).await.ok()?.ok()
    }
}

impl Desk {
    /// Notes that the back end did not answer, and looks for it until it does.
    pub(super) fn lost_back_end(self: &Arc<Self>, error: &longshore_core::Error) {
        self.alert(PoolAlertKind::BackEndLost, &error.to_string());
        if self.outage.begin() {
            let desk = Arc::downgrade(self);
            self.beside(async move {
                let mut backoff = Backoff::store();
                loop {
                    backoff.wait().await;
                    let Some(desk) = desk.upgrade() else { return };
                    if desk.permits.stats(&desk.name).await.is_ok() {
                        tracing::info!(pool = %desk.name, "the pool's back end is there again");
                        return desk.outage.over();
                    }
                }
            });
        }
    }

    /// Whether this process gives permits by itself now: the pool opens without its back end, and that one
    /// did not answer so often, or is known to be away.
    pub(super) fn is_open(&self, tries: u32) -> bool {
        let away = || self.outage.lasts().is_some_and(|time| time > LOOK);
        self.outage.own.is_some() && (tries >= TRIES || away())
    }

    /// A permit of this process' own, if there is one before the back end is to be asked again.
    pub(super) async fn own_permit(self: &Arc<Self>, weight: u32) -> Option<Permit> {
        let room = self.outage.take(weight, LOOK).await?;
        Some(Permit::of_process(self, room))
    }

    /// The same, if there is one now.
    pub(super) async fn own_permit_now(self: &Arc<Self>, weight: u32) -> Option<Permit> {
        let room = self.outage.take(weight, Duration::ZERO).await?;
        Some(Permit::of_process(self, room))
    }
}
