//! The permits that this process holds: the lease renewer extends them and marks lost ones.
//!
//! A slab, not a map: every acquire and release updates it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use longshore_core::PermitId;
use tokio::sync::watch;
use tokio::time::Instant;

/// All permits of this process.
pub(super) struct HeldPermits {
    slab: Mutex<PermitSlab>,
    /// Changes when permits are lost.
    lost: watch::Sender<u64>,
}

#[derive(Default)]
struct PermitSlab {
    entries: Vec<Option<HeldPermit>>,
    free: Vec<usize>,
}

#[derive(Clone, Copy)]
struct HeldPermit {
    id: PermitId,
    /// End of the lease by this process's clock, which started before the backend's.
    valid_until: Instant,
    lost: bool,
}

impl HeldPermits {
    pub(super) fn new() -> Self {
        Self { slab: Mutex::default(), lost: watch::Sender::new(0) }
    }

    fn slab(&self) -> MutexGuard<'_, PermitSlab> {
        self.slab.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a permit. Returns its index.
    pub(super) fn insert(&self, id: PermitId, valid_until: Instant) -> usize {
        let entry = Some(HeldPermit { id, valid_until, lost: false });
        let mut slab = self.slab();
        if let Some(index) = slab.free.pop() {
            slab.entries[index] = entry;
            return index;
        }
        slab.entries.push(entry);
        slab.entries.len() - 1
    }

    /// Removes a permit.
    pub(super) fn remove(&self, index: usize) {
        let mut slab = self.slab();
        slab.entries[index] = None;
        slab.free.push(index);
    }

    /// Whether a permit is lost, and when its lease ends.
    pub(super) fn status(&self, index: usize) -> (bool, Instant) {
        self.slab().entries[index].map_or_else(|| (true, Instant::now()), |e| (e.lost, e.valid_until))
    }

    /// The ids of permits that are not lost.
    pub(super) fn ids(&self) -> Vec<PermitId> {
        let slab = self.slab();
        slab.entries.iter().flatten().filter(|entry| !entry.lost).map(|entry| entry.id).collect()
    }

    /// The number of permits held.
    pub(super) fn len(&self) -> usize {
        let slab = self.slab();
        slab.entries.len() - slab.free.len()
    }

    /// Extends the leases of `ids` and marks `lost` ones as lost. Permits acquired since the call
    /// are unaffected.
    pub(super) fn mark_extended(&self, ids: &[PermitId], lost: &[PermitId], valid_until: Instant) {
        let (ids, lost) = (sorted(ids), sorted(lost));
        self.update_all(|entry| {
            if lost.binary_search(&entry.id).is_ok() {
                entry.lost = true;
            } else if ids.binary_search(&entry.id).is_ok() {
                entry.valid_until = valid_until;
            }
        });
    }

    /// Marks permits with an expired lease as lost.
    pub(super) fn expire(&self, now: Instant) {
        self.update_all(|entry| entry.lost |= entry.valid_until <= now);
    }

    fn update_all(&self, mut update: impl FnMut(&mut HeldPermit)) {
        let mut lost = 0;
        for entry in self.slab().entries.iter_mut().flatten().filter(|entry| !entry.lost) {
            update(entry);
            lost += u64::from(entry.lost);
        }
        if lost > 0 {
            self.lost.send_modify(|sum| *sum += lost);
        }
    }

    /// Reports when permits are lost.
    pub(super) fn subscribe_losses(&self) -> watch::Receiver<u64> {
        self.lost.subscribe()
    }
}

fn sorted(ids: &[PermitId]) -> Vec<PermitId> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn places_are_used_again_and_losses_are_told() {
        let (permits, now) = (HeldPermits::new(), Instant::now());
        let later = now + Duration::from_secs(9);
        let ids = [PermitId::new(), PermitId::new(), PermitId::new()];
        let losses = permits.subscribe_losses();
        let indexes = ids.map(|id| permits.insert(id, now));
        permits.remove(indexes[1]);
        assert_eq!((permits.ids(), permits.len()), (vec![ids[0], ids[2]], 2));
        assert_eq!(permits.insert(PermitId::new(), later), indexes[1]);
        permits.mark_extended(&ids, &[ids[0]], later);
        assert_eq!((permits.status(indexes[0]).0, permits.status(indexes[2])), (true, (false, later)));
        assert!(losses.has_changed().unwrap());
        permits.expire(later);
        assert_eq!((permits.ids(), permits.len()), (vec![], 3));
    }
}
