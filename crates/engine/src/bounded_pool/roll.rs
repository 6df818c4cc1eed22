//! The permits that this process holds: whom the keeper extends, and who has lost.
//!
//! Places in a list, not a map: entering and leaving is on the way of every permit.

use std::sync::{Mutex, MutexGuard, PoisonError};

use longshore_core::PermitId;
use tokio::sync::watch;
use tokio::time::Instant;

/// All permits of this process.
pub(super) struct Roll {
    places: Mutex<Places>,
    /// Moves when some were lost.
    lost: watch::Sender<u64>,
}

#[derive(Default)]
struct Places {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
}

#[derive(Clone, Copy)]
struct Entry {
    id: PermitId,
    /// Its lease is good until then by our own clock, which began before the back end's did.
    good_until: Instant,
    lost: bool,
}

impl Roll {
    pub(super) fn new() -> Self {
        Self { places: Mutex::default(), lost: watch::Sender::new(0) }
    }

    fn open(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one in; its place.
    pub(super) fn enter(&self, id: PermitId, good_until: Instant) -> usize {
        let entry = Some(Entry { id, good_until, lost: false });
        let mut places = self.open();
        if let Some(place) = places.free.pop() {
            places.entries[place] = entry;
            return place;
        }
        places.entries.push(entry);
        places.entries.len() - 1
    }

    /// Lets one go.
    pub(super) fn leave(&self, place: usize) {
        let mut places = self.open();
        places.entries[place] = None;
        places.free.push(place);
    }

    /// Whether one was lost, and until when its lease is good.
    pub(super) fn look(&self, place: usize) -> (bool, Instant) {
        self.open().entries[place]
            .map_or_else(|| (true, Instant::now()), |e| (e.lost, e.good_until))
    }

    /// Those that have not been lost.
    pub(super) fn held(&self) -> Vec<PermitId> {
        let places = self.open();
        places.entries.iter().flatten().filter(|entry| !entry.lost).map(|entry| entry.id).collect()
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        let places = self.open();
        places.entries.len() - places.free.len()
    }

    /// These were extended, but for those that are lost. Who came meanwhile is not concerned.
    pub(super) fn extended(&self, ids: &[PermitId], lost: &[PermitId], good_until: Instant) {
        let (ids, gone) = (sorted(ids), sorted(lost));
        self.change(|entry| {
            if gone.binary_search(&entry.id).is_ok() {
                entry.lost = true;
            } else if ids.binary_search(&entry.id).is_ok() {
                entry.good_until = good_until;
            }
        });
    }

    /// Those whose leases have run out are lost: nobody could extend them.
    pub(super) fn lapse(&self, now: Instant) {
        self.change(|entry| entry.lost |= entry.good_until <= now);
    }

    fn change(&self, mut change: impl FnMut(&mut Entry)) {
        let mut lost = 0;
        for entry in self.open().entries.iter_mut().flatten().filter(|entry| !entry.lost) {
            change(entry);
            lost += u64::from(entry.lost);
        }
        if lost > 0 {
            self.lost.send_modify(|sum| *sum += lost);
        }
    }

    /// Hears when some are lost.
    pub(super) fn losses(&self) -> watch::Receiver<u64> {
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
        let (roll, now) = (Roll::new(), Instant::now());
        let later = now + Duration::from_secs(9);
        let ids = [PermitId::new(), PermitId::new(), PermitId::new()];
        let losses = roll.losses();
        let places = ids.map(|id| roll.enter(id, now));
        roll.leave(places[1]);
        assert_eq!((roll.held(), roll.count()), (vec![ids[0], ids[2]], 2));
        assert_eq!(roll.enter(PermitId::new(), later), places[1]);
        roll.extended(&ids, &[ids[0]], later);
        assert_eq!((roll.look(places[0]).0, roll.look(places[2])), (true, (false, later)));
        assert!(losses.has_changed().unwrap());
        roll.lapse(later);
        assert_eq!((roll.held(), roll.count()), (vec![], 3));
    }
}
