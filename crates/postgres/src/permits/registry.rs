//! The pools that this process has used: their requests in flight, and the waiters that can be
//! granted a permit with the reply to another request.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longshore_core::permits::{PermitGrant, PermitReply, PermitRequest};
use longshore_core::{Coalescer, PermitId, PoolName};
use uuid::Uuid;

use super::uuid;

/// A waiter that learns of its permit later than this asks again. The server adds the same time to
/// its lease (`longshore_handover_grace`).
const HANDOVER_GRACE: Duration = Duration::from_secs(1);
/// Listening waiters that one call names. The others are woken and ask again.
const MAX_LISTENING: usize = 256;

/// The pools that this process has used.
#[derive(Debug, Default)]
pub(crate) struct PoolRegistry(Mutex<HashMap<PoolName, Arc<PoolEntry>>>);

impl PoolRegistry {
    /// Finds or adds a pool.
    pub(crate) fn entry(&self, pool: &PoolName) -> Arc<PoolEntry> {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = pools.get(pool) {
            return Arc::clone(entry);
        }
        Arc::clone(pools.entry(pool.clone()).or_default())
    }
}

/// One pool.
#[derive(Debug)]
pub(crate) struct PoolEntry {
    /// Coalesces the requests to this pool.
    pub(super) jobs: Arc<Coalescer<PermitRequest, PermitReply>>,
    waiters: Mutex<PoolWaiters>,
}

impl Default for PoolEntry {
    fn default() -> Self {
        Self { jobs: Arc::new(Coalescer::sequential()), waiters: Mutex::default() }
    }
}

#[derive(Debug, Default)]
struct PoolWaiters {
    /// The waiters that await a wake-up, each with the number of its futures.
    listening: BTreeMap<PermitId, usize>,
    /// Permits that were granted to waiters and not received yet.
    handed: HashMap<PermitId, HandedGrant>,
}

/// A permit that was granted to a waiter with the reply to another request.
#[derive(Debug)]
struct HandedGrant {
    grant: PermitGrant,
    /// When that request was sent: the permit was granted later.
    requested_at: Instant,
}

impl PoolEntry {
    fn waiters(&self) -> MutexGuard<'_, PoolWaiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a waiter as listening until the guard is dropped.
    pub(crate) fn listen(self: &Arc<Self>, id: PermitId) -> ListenGuard {
        *self.waiters().listening.entry(id).or_default() += 1;
        ListenGuard { entry: Arc::clone(self), id }
    }

    /// The listening waiters, longest first.
    pub(super) fn listening(&self) -> Vec<Uuid> {
        self.waiters().listening.keys().take(MAX_LISTENING).map(|id| uuid(*id)).collect()
    }

    /// Stores a permit for its waiter. If the waiter is gone, its release returns the permit.
    pub(super) fn hand_over(&self, id: PermitId, grant: PermitGrant, requested_at: Instant) {
        let handed = &mut self.waiters().handed;
        handed.retain(|_, handed| handed.requested_at.elapsed() < HANDOVER_GRACE);
        handed.insert(id, HandedGrant { grant, requested_at });
    }

    /// The permit that was granted to this waiter, if that was less than [`HANDOVER_GRACE`] ago.
    pub(crate) fn take_grant(&self, id: PermitId) -> Option<PermitGrant> {
        let handed = self.waiters().handed.remove(&id)?;
        (handed.requested_at.elapsed() < HANDOVER_GRACE).then_some(handed.grant)
    }
}

/// Marks a waiter as listening.
#[derive(Debug)]
pub(crate) struct ListenGuard {
    entry: Arc<PoolEntry>,
    id: PermitId,
}

impl Drop for ListenGuard {
    fn drop(&mut self) {
        let listening = &mut self.entry.waiters().listening;
        if let Some(futures) = listening.get_mut(&self.id) {
            *futures -= 1;
            if *futures == 0 {
                listening.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_listens_until_its_last_future_ends() {
        let (entry, id) = (Arc::new(PoolEntry::default()), PermitId::new());
        let both = [entry.listen(id), entry.listen(id)];
        for guard in both {
            assert_eq!(entry.listening(), [uuid(id)]);
            drop(guard);
        }
        assert!(entry.listening().is_empty());
    }

    #[test]
    fn a_permit_is_received_once_and_in_time() {
        let entry = PoolEntry::default();
        let (id, late) = (PermitId::new(), PermitId::new());
        let grant = PermitGrant { fence: 7, waited: Duration::ZERO };
        entry.hand_over(late, grant, Instant::now().checked_sub(HANDOVER_GRACE).unwrap());
        assert_eq!(entry.take_grant(late), None);
        entry.hand_over(id, grant, Instant::now());
        assert_eq!(entry.take_grant(id), Some(grant));
        assert_eq!(entry.take_grant(id), None);
    }
}
