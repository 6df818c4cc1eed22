//! The guard of a held permit.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::permits::PermitGrant;
use longshore_core::{PermitId, Result};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use super::inner::PoolInner;
use super::settings::OnOutage;

/// A held permit: its lease is renewed until it is dropped, which releases it.
#[must_use = "dropping the permit releases it"]
pub struct Permit {
    inner: Arc<PoolInner>,
    origin: PermitOrigin,
    since: Instant,
    outcome: CallOutcome,
    /// Whether it is released already.
    is_released: bool,
}

/// Where the permit comes from.
enum PermitOrigin {
    /// Granted by the backend.
    Pool { id: PermitId, index: usize, grant: PermitGrant },
    /// Granted by this process during an outage. The backend does not know it.
    Local { _permit: OwnedSemaphorePermit },
}

/// The result of the work that the permit was for: input of an adaptive maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallOutcome {
    /// The work succeeded.
    #[default]
    Ok,
    /// The other side rejected it as too much load.
    Rejected,
    /// The other side failed, or did not answer in time.
    Failed,
}

impl Permit {
    pub(super) fn of_pool(inner: &Arc<PoolInner>, id: PermitId, grant: PermitGrant, sent: Instant) -> Self {
        let index = inner.held_permits.insert(id, sent + inner.settings.ttl);
        let origin = PermitOrigin::Pool { id, index, grant };
        Self { inner: Arc::clone(inner), origin, since: sent, outcome: CallOutcome::Ok, is_released: false }
    }

    pub(super) fn local(inner: &Arc<PoolInner>, permit: OwnedSemaphorePermit) -> Self {
        let origin = PermitOrigin::Local { _permit: permit };
        Self {
            inner: Arc::clone(inner),
            origin,
            since: Instant::now(),
            outcome: CallOutcome::Ok,
            is_released: false,
        }
    }

    /// Fencing token: larger than that of every earlier permit of this pool. A resource that
    /// compares tokens can reject a holder that lost its permit. `None` for a permit granted during
    /// an outage.
    pub fn fence(&self) -> Option<u64> {
        match &self.origin {
            PermitOrigin::Pool { grant, .. } => Some(grant.fence),
            PermitOrigin::Local { .. } => None,
        }
    }

    /// How long the request waited, by the backend's clock.
    pub fn waited(&self) -> Duration {
        match &self.origin {
            PermitOrigin::Pool { grant, .. } => grant.waited,
            PermitOrigin::Local { .. } => Duration::ZERO,
        }
    }

    /// Whether another holder may have the permit: its lease expired, or the pool was reset. A lost
    /// permit is never reacquired.
    pub fn is_lost(&self) -> bool {
        match self.status() {
            None => false,
            Some((lost, valid_until)) => lost || (self.expires_by_time() && valid_until <= Instant::now()),
        }
    }

    /// Returns when the permit is lost.
    pub async fn lost(&self) {
        let mut losses = self.inner.held_permits.subscribe_losses();
        while !self.is_lost() {
            let expiry = match self.status() {
                Some((_, valid_until)) if self.expires_by_time() => Some(valid_until),
                _ => None,
            };
            let expired = async {
                match expiry {
                    Some(time) => sleep_until(time).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = losses.changed() => {}
                () = expired => {}
            }
        }
    }

    fn status(&self) -> Option<(bool, Instant)> {
        match &self.origin {
            PermitOrigin::Pool { index, .. } => Some(self.inner.held_permits.status(*index)),
            PermitOrigin::Local { .. } => None,
        }
    }

    /// Whether the lease expires by time alone. If the pool fails open, only the backend's answer
    /// ends it.
    fn expires_by_time(&self) -> bool {
        self.inner.settings.on_outage == OnOutage::FailClosed
    }

    /// Sets the result of the work. Default: success.
    pub fn set_outcome(&mut self, outcome: CallOutcome) {
        self.outcome = outcome;
    }

    /// Releases the permit and waits for the backend. On an error it is released in the background.
    pub async fn release(mut self) -> Result<()> {
        let PermitOrigin::Pool { id, .. } = &self.origin else { return Ok(()) };
        let (permits, pool) = (&self.inner.permits, &self.inner.name);
        if !permits.try_release_now(pool, *id) {
            permits.release(pool, &[*id], false).await?;
        }
        self.is_released = true;
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.inner.settings.adaptive.is_some() {
            self.inner.meter.count(self.outcome, self.since.elapsed(), self.waited());
        }
        if let PermitOrigin::Pool { id, index, .. } = &self.origin {
            self.inner.held_permits.remove(*index);
            if !self.is_released {
                self.inner.release_in_background(*id);
            }
        }
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Permit({}, {:?})", self.inner.name, self.fence())
    }
}
