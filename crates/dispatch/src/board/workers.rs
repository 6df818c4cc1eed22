//! Workers: coming, living, going.

use std::collections::BTreeSet;
use std::time::Duration;

use longshore::UnitId;
use longshore::session::Lease;

use super::{Board, Lost, Mood, Place, Reunion, Seat, SeatId, Stage};

impl<C> Board<C> {
    /// A worker introduces itself, for the first time or again. `holds` is what it has from earlier.
    pub fn on_register(&mut self, now: Duration, new: Seat, holds: &[Lease]) -> (SeatId, Reunion) {
        let id = match self.by_uid.get(&new.uid) {
            Some(id) => *id,
            None => {
                self.next_seat += 1;
                SeatId(self.next_seat)
            }
        };
        self.by_uid.insert(new.uid.clone(), id);
        let known = self.seats.remove(&id);
        let mut seat = new;
        (seat.heard, seat.mood, seat.idle_since) = (now, Mood::Working, now);
        if let Some(known) = known {
            seat.take_over(known);
        }
        self.seats.insert(id, seat);
        let reunion = self.reunite(now, id, holds);
        self.refresh(id);
        (id, reunion)
    }

    /// Compares what a worker holds with what it should hold.
    fn reunite(&mut self, now: Duration, id: SeatId, holds: &[Lease]) -> Reunion {
        let mut reunion = Reunion::default();
        let mut found = BTreeSet::new();
        for lease in holds {
            let task = self.tasks.get(&lease.unit).filter(|task| task.told == *lease);
            match task.map(|task| task.place) {
                Some(Place::At(seat, _)) if seat == id => _ = found.insert(lease.unit),
                Some(Place::Astray) => {
                    self.astray.remove(&lease.unit);
                    self.seat_task(lease.unit, id);
                    found.insert(lease.unit);
                }
                _ => reunion.forget.push(*lease),
            }
        }
        let should: Vec<UnitId> = self.seats.get(&id).map_or_else(Vec::new, Seat::tasks);
        for unit in should.into_iter().filter(|unit| !found.contains(unit)) {
            self.unseat(unit);
            self.wait_again(now, unit);
            reunion.missing += 1;
        }
        reunion
    }

    /// A worker gave a sign of life; false if nobody knows it any more.
    pub fn on_heartbeat(&mut self, now: Duration, id: SeatId) -> bool {
        self.seats.get_mut(&id).map(|seat| seat.heard = now).is_some()
    }

    /// A worker's connection is gone. It may come back.
    pub fn on_disconnect(&mut self, now: Duration, id: SeatId) {
        self.set_mood(id, Mood::Away(now));
    }

    /// A worker will take nothing new.
    pub fn on_draining(&mut self, id: SeatId) {
        self.set_mood(id, Mood::Draining);
    }

    fn set_mood(&mut self, id: SeatId, mood: Mood) {
        if let Some(seat) = self.seats.get_mut(&id) {
            seat.mood = mood;
        }
        self.kept.remove(&id);
        self.refresh(id);
    }

    /// Nobody could be heard until now: the silence was ours, and the watch begins anew.
    pub fn on_deafness(&mut self, now: Duration) {
        for seat in self.seats.values_mut() {
            seat.heard = now;
            if let Mood::Away(since) = &mut seat.mood {
                *since = now;
            }
        }
    }

    /// Workers that have been silent for `ttl`, or away for `grace`.
    pub fn overdue(&self, now: Duration, ttl: Duration, grace: Duration) -> Vec<SeatId> {
        let late = |seat: &Seat| match seat.mood {
            Mood::Away(since) => now.saturating_sub(since) >= grace,
            _ => now.saturating_sub(seat.heard) >= ttl,
        };
        self.seats.iter().filter(|(_, seat)| late(seat)).map(|(id, _)| *id).collect()
    }

    /// A worker is gone for good. What it had begun, or may have, is lost; the rest waits again.
    pub fn on_worker_lost(&mut self, now: Duration, id: SeatId) -> Lost {
        let Some(seat) = self.seats.get(&id) else { return Lost::default() };
        let (threads, uid, units) = (seat.threads, seat.uid.clone(), seat.tasks());
        let (mut lost, mut ahead) = (Lost::default(), 0);
        for unit in units {
            let Some(task) = self.tasks.get(&unit) else { continue };
            // A worker begins what it was given in order, and may not have lived to tell of it.
            let may_have_begun = ahead + task.need.threads <= threads;
            ahead += task.need.threads;
            let begun = matches!(task.place, Place::At(_, Stage::Begun));
            self.unseat(unit);
            if begun || may_have_begun {
                lost.lost.extend(self.tasks.remove(&unit).map(|task| task.lease));
            } else {
                self.wait_again(now, unit);
                lost.kept += 1;
            }
        }
        self.seats.remove(&id);
        self.by_uid.remove(&uid);
        self.kept.remove(&id);
        self.forget_room(id);
        lost
    }

    /// A worker has left in good order. What it still had was not begun.
    pub fn on_worker_left(&mut self, now: Duration, id: SeatId) {
        for unit in self.seats.get(&id).map_or_else(Vec::new, Seat::tasks) {
            self.unseat(unit);
            self.wait_again(now, unit);
        }
        self.on_worker_lost(now, id);
    }
}
