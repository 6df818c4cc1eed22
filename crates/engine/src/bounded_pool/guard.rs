//! A permit that is held.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::permits::Grant;
use longshore_core::{PermitId, Result};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use super::desk::Desk;
use super::settings::OnOutage;

/// A permit that is held: extended while it lives, given back when it is dropped.
#[must_use = "dropped, it is given back at once"]
pub struct Permit {
    desk: Arc<Desk>,
    of: Of,
    since: Instant,
    went: Went,
    /// Given back already.
    back: bool,
}

/// Whose permit it is.
enum Of {
    /// The pool's.
    Pool { id: PermitId, place: usize, grant: Grant },
    /// This process' own, given while the back end was away. Never the pool's to take back.
    Process { _room: OwnedSemaphorePermit },
}

/// How it went with what the permit was for: what an adaptive maximum goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Went {
    /// As it should.
    #[default]
    Well,
    /// The other side said that it is too much.
    Refused,
    /// The other side failed, or did not answer in time.
    Failed,
}

impl Permit {
    pub(super) fn of_pool(desk: &Arc<Desk>, id: PermitId, grant: Grant, sent: Instant) -> Self {
        let place = desk.roll.enter(id, sent + desk.settings.ttl);
        let of = Of::Pool { id, place, grant };
        Self { desk: Arc::clone(desk), of, since: sent, went: Went::Well, back: false }
    }

    pub(super) fn of_process(desk: &Arc<Desk>, room: OwnedSemaphorePermit) -> Self {
        let of = Of::Process { _room: room };
        Self { desk: Arc::clone(desk), of, since: Instant::now(), went: Went::Well, back: false }
    }

    /// Larger than that of every permit of this pool before: lets the other side tell a holder that lost
    /// its permit and does not know it yet from the present one, where it compares. `None` for one that
    /// was given while the back end was away.
    pub fn fence(&self) -> Option<u64> {
        match &self.of {
            Of::Pool { grant, .. } => Some(grant.fence),
            Of::Process { .. } => None,
        }
    }

    /// How long it had to wait, by the back end's clock.
    pub fn waited(&self) -> Duration {
        match &self.of {
            Of::Pool { grant, .. } => grant.waited,
            Of::Process { .. } => Duration::ZERO,
        }
    }

    /// Whether somebody else may hold it by now: its lease ran out, or the pool was reset. A lost permit
    /// is never taken again by itself.
    pub fn is_lost(&self) -> bool {
        match self.look() {
            None => false,
            Some((lost, good_until)) => lost || (self.lapses() && good_until <= Instant::now()),
        }
    }

    /// Returns when it is lost; never, if it is not.
    pub async fn lost(&self) {
        let mut losses = self.desk.roll.losses();
        while !self.is_lost() {
            let lapse = match self.look() {
                Some((_, good_until)) if self.lapses() => Some(good_until),
                _ => None,
            };
            let lapsed = async {
                match lapse {
                    Some(time) => sleep_until(time).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = losses.changed() => {}
                () = lapsed => {}
            }
        }
    }

    fn look(&self) -> Option<(bool, Instant)> {
        match &self.of {
            Of::Pool { place, .. } => Some(self.desk.roll.look(*place)),
            Of::Process { .. } => None,
        }
    }

    /// Whether time alone ends it. With a pool that opens in an outage only the back end's word does.
    fn lapses(&self) -> bool {
        self.desk.settings.on_outage == OnOutage::FailClosed
    }

    /// Says how it went with what the permit is for. Well, if nothing is said.
    pub fn note(&mut self, went: Went) {
        self.went = went;
    }

    /// Gives it back and waits until that is done. If the back end is away it is tried again beside, and
    /// the error says so.
    pub async fn release(mut self) -> Result<()> {
        let Of::Pool { id, .. } = &self.of else { return Ok(()) };
        let (permits, pool) = (&self.desk.permits, &self.desk.name);
        if !permits.release_at_once(pool, *id) {
            permits.release(pool, &[*id]).await?;
        }
        self.back = true;
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.desk.settings.adaptive.is_some() {
            self.desk.meter.count(self.went, self.since.elapsed(), self.waited());
        }
        if let Of::Pool { id, place, .. } = &self.of {
            self.desk.roll.leave(*place);
            if !self.back {
                self.desk.give_back(*id);
            }
        }
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Permit({}, {:?})", self.desk.name, self.fence())
    }
}
