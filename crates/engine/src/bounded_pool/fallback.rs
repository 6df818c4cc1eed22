//! Backend outages: how long they last, and the local permits that this process grants meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::alerts::PoolAlertKind;
use super::inner::PoolInner;
use super::permit::Permit;
use super::settings::OnOutage;
use crate::Backoff;

/// Tries before a request falls back to local permits, or fails if it does not wait.
pub(super) const TRIES_BEFORE_FALLBACK: u32 = 3;
/// How long a request waits for a local permit before it asks the backend again.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct BackendOutage {
    /// Whether an outage is in progress; read on every acquire.
    is_active: AtomicBool,
    since: Mutex<Option<Instant>>,
    /// Local permits and their maximum weight, if the pool fails open.
    local: Option<(Arc<Semaphore>, u32)>,
}

impl BackendOutage {
    pub(super) fn new(on_outage: &OnOutage) -> Self {
        let local = match on_outage {
            OnOutage::FailClosed => None,
            OnOutage::FailOpen { max_weight } => {
                Some((Arc::new(Semaphore::new(*max_weight as usize)), *max_weight))
            }
        };
        Self { is_active: AtomicBool::new(false), since: Mutex::default(), local }
    }

    /// How long the outage has lasted.
    pub(super) fn duration(&self) -> Option<Duration> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).map(|since| since.elapsed())
    }

    /// The maximum weight of local permits and the weight in use, if the pool fails open.
    pub(super) fn local_usage(&self) -> Option<(u32, u32)> {
        let (local, max_weight) = self.local.as_ref()?;
        let free = u32::try_from(local.available_permits()).unwrap_or(u32::MAX);
        Some((*max_weight, max_weight.saturating_sub(free)))
    }

    /// Ends the outage: the backend answered.
    pub(super) fn end(&self) {
        if self.is_active.load(Ordering::Relaxed) {
            self.is_active.store(false, Ordering::Relaxed);
            *self.since.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Begins an outage. Returns false if one is in progress already.
    fn begin(&self) -> bool {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = since.is_none();
        self.is_active.store(true, Ordering::Relaxed);
        since.get_or_insert_with(Instant::now);
        is_new
    }

    async fn acquire_local(&self, weight: u32, wait: Duration) -> Option<OwnedSemaphorePermit> {
        let (local, max_weight) = self.local.as_ref()?;
        let weight = weight.min(*max_weight);
        timeout(wait, Arc::clone(local).acquire_many_owned(weight)).await.ok()?.ok()
    }
}

impl PoolInner {
    /// Records that the backend did not answer, and polls it until it does.
    pub(super) fn on_backend_error(self: &Arc<Self>, error: &longshore_core::Error) {
        self.alert(PoolAlertKind::BackendLost, &error.to_string());
        if self.outage.begin() {
            let inner = Arc::downgrade(self);
            self.spawn_until_closed(async move {
                let mut backoff = Backoff::store();
                loop {
                    backoff.wait().await;
                    let Some(inner) = inner.upgrade() else { return };
                    if inner.permits.stats(&inner.name).await.is_ok() {
                        tracing::info!(pool = %inner.name, "the pool's backend is available again");
                        return inner.outage.end();
                    }
                }
            });
        }
    }

    /// Whether to grant local permits: the pool fails open, and the backend failed `tries` times or
    /// is known to be down.
    pub(super) fn uses_local_permits(&self, tries: u32) -> bool {
        let known_down = || self.outage.duration().is_some_and(|time| time > RECHECK_INTERVAL);
        self.outage.local.is_some() && (tries >= TRIES_BEFORE_FALLBACK || known_down())
    }

    /// A local permit, if one is free before the backend is asked again.
    pub(super) async fn local_permit(self: &Arc<Self>, weight: u32) -> Option<Permit> {
        let local = self.outage.acquire_local(weight, RECHECK_INTERVAL).await?;
        Some(Permit::local(self, local))
    }

    /// A local permit, if one is free now.
    pub(super) async fn try_local_permit(self: &Arc<Self>, weight: u32) -> Option<Permit> {
        let local = self.outage.acquire_local(weight, Duration::ZERO).await?;
        Some(Permit::local(self, local))
    }
}
