//! Places at the table: so many connections at once, and who says nothing gives way to who comes.
//!
//! Without the second rule a crowd of idle connections would keep everybody else waiting until their
//! time is over. Who is being answered is never sent away.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// How many are looked at to find one who says nothing.
const LOOKS: usize = 1_000;
/// Between two looks, while all who are there are being answered.
const BREATH: Duration = Duration::from_millis(20);

/// All places.
pub(crate) struct Seats {
    room: Arc<Semaphore>,
    /// Whoever came, roughly in that order.
    taken: VecDeque<Weak<Seat>>,
}

/// The place of one connection, given back when it is dropped.
pub(crate) struct Seat {
    /// Requests that are being answered.
    busy: AtomicUsize,
    was_busy: AtomicBool,
    unwanted: Notify,
    _place: OwnedSemaphorePermit,
}

/// Somebody is being answered, until this is dropped.
pub(crate) struct Busy(Arc<Seat>);

impl Seats {
    pub(crate) fn new(count: usize) -> Self {
        let room = Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Self { room, taken: VecDeque::new() }
    }

    /// A place, as soon as there is one. May be dropped while it waits.
    pub(crate) async fn take(&mut self) -> Arc<Seat> {
        loop {
            let room = Arc::clone(&self.room);
            if room.available_permits() == 0 {
                self.send_one_away();
            }
            let waited = tokio::time::timeout(BREATH, room.acquire_owned()).await;
            // Nobody ever closes it.
            let Ok(Ok(place)) = waited else { continue };
            let seat = Arc::new(Seat {
                busy: AtomicUsize::new(0),
                was_busy: AtomicBool::new(false),
                unwanted: Notify::new(),
                _place: place,
            });
            self.taken.push_back(Arc::downgrade(&seat));
            self.tidy();
            return seat;
        }
    }

    /// Asks one who says nothing to leave; those who are being answered go to the end of the line.
    fn send_one_away(&mut self) {
        for _ in 0..LOOKS.min(self.taken.len()) {
            let Some(next) = self.taken.pop_front() else { return };
            let Some(seat) = next.upgrade() else { continue };
            if seat.busy.load(Ordering::Relaxed) == 0 {
                return seat.unwanted.notify_one();
            }
            self.taken.push_back(next);
        }
    }

    /// Forgets those who left, now and then.
    fn tidy(&mut self) {
        if self.taken.len() == self.taken.capacity() {
            self.taken.retain(|seat| seat.strong_count() > 0);
        }
    }
}

impl Seat {
    /// Notes that somebody is being answered.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.was_busy.store(true, Ordering::Relaxed);
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// Whether somebody is being answered.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    /// Whether anybody was answered here, or is: some of it may still be on its way.
    pub(crate) fn was_busy(&self) -> bool {
        self.was_busy.load(Ordering::Relaxed)
    }

    /// Returns once the place is wanted for others.
    pub(crate) async fn unwanted(&self) {
        self.unwanted.notified().await;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_says_nothing_gives_way_and_who_is_answered_does_not() {
        let mut seats = Seats::new(2);
        let (first, second) = (seats.take().await, seats.take().await);
        let busy = first.busy();
        seats.send_one_away();
        second.unwanted().await;
        drop(second);
        let third = seats.take().await;
        let also_busy = third.busy();
        seats.send_one_away();
        assert!(tokio::time::timeout(BREATH, third.unwanted()).await.is_err());
        drop((busy, also_busy));
        seats.send_one_away();
        first.unwanted().await;
    }
}
