//! Who works, what waits, and who gets what: every decision of a server, without a socket.
//!
//! Events go in (`on_register`, `on_heartbeat`, `on_task_done`, `on_worker_lost`, …), and
//! [`Board::schedule`] says what is given to whom. Time is a parameter: how long the server has been
//! up, on a monotonic clock.
//!
//! What waits is grouped by what it needs: one that does not fit holds up its like, and nobody else.
//! Scripts go to the worker that they fill best; beyond what runs, a worker gets a little ahead, so
//! that it need not ask before it goes on. One that fits nowhere for a while has a worker kept for it.

mod need;
mod pace;
mod schedule;
mod seat;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use longshore::UnitId;
use longshore::session::Lease;

pub use need::Need;
pub use schedule::Given;
pub use seat::{Mood, Seat, SeatId};

/// A task as the server has claimed it, with whatever belongs to it.
#[derive(Debug, Clone)]
pub struct Task<C> {
    /// The claim.
    pub lease: Lease,
    /// The claim as its worker was told of it: an adopted task is known there by an older one.
    pub told: Lease,
    /// Smaller goes first.
    pub rank: i64,
    /// What it takes up.
    pub need: Need,
    /// Whatever belongs to it.
    pub cargo: C,
    place: Place,
    /// Since when it is here, or waits again.
    since: Duration,
}

/// Where a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Here.
    Waiting,
    /// With a worker that may come back: the server was restarted.
    Astray,
    /// With a worker.
    At(SeatId, Stage),
}

/// How far a task is with its worker, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Given,
    Begun,
}

/// What a worker's loss means.
#[derive(Debug, Default)]
pub struct Lost {
    /// These had begun, or may have: they count as lost. Gone from the board.
    pub lost: Vec<Lease>,
    /// So many had not, and wait again.
    pub kept: usize,
}

/// What a worker must hear when it has introduced itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reunion {
    /// It holds these, and they are not its own any more.
    pub forget: Vec<Lease>,
    /// So many that it should hold it does not: they wait again.
    pub missing: usize,
}

/// The state of all this.
#[derive(Debug)]
pub struct Board<C> {
    seats: BTreeMap<SeatId, Seat>,
    by_uid: HashMap<String, SeatId>,
    next_seat: u32,
    tasks: HashMap<UnitId, Task<C>>,
    waiting: BTreeMap<Need, BTreeSet<(i64, UnitId)>>,
    astray: BTreeSet<UnitId>,
    /// Seats by their free threads, those that take tasks only.
    by_room: BTreeSet<(u32, SeatId)>,
    /// Seats that should get tasks ahead.
    hungry: BTreeSet<SeatId>,
    /// Seats that are kept for a task that fits nowhere else.
    kept: BTreeMap<SeatId, UnitId>,
}

impl<C> Default for Board<C> {
    fn default() -> Self {
        Self {
            seats: BTreeMap::new(),
            by_uid: HashMap::new(),
            next_seat: 0,
            tasks: HashMap::new(),
            waiting: BTreeMap::new(),
            astray: BTreeSet::new(),
            by_room: BTreeSet::new(),
            hungry: BTreeSet::new(),
            kept: BTreeMap::new(),
        }
    }
}

/// Workers: coming, living, going.
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

/// Tasks: coming, running, ending.
impl<C> Board<C> {
    /// A task that was claimed just now.
    pub fn add(&mut self, now: Duration, lease: Lease, rank: i64, need: Need, cargo: C) {
        let task =
            Task { lease, told: lease, rank, need, cargo, place: Place::Waiting, since: now };
        self.queue(&task);
        self.tasks.insert(lease.unit, task);
    }

    /// A task of an earlier life: whoever has it may come back. It is known there as `told`.
    pub fn add_astray(
        &mut self,
        now: Duration,
        (lease, told): (Lease, Lease),
        rank: i64,
        need: Need,
        cargo: C,
    ) {
        let task = Task { lease, told, rank, need, cargo, place: Place::Astray, since: now };
        self.astray.insert(lease.unit);
        self.tasks.insert(lease.unit, task);
    }

    /// Those of an earlier life that nobody came back with: gone from the board.
    pub fn give_up_astray(&mut self) -> Vec<Task<C>> {
        let units = std::mem::take(&mut self.astray);
        units.into_iter().filter_map(|unit| self.tasks.remove(&unit)).collect()
    }

    /// Those of an earlier life that nobody came back with wait again: no worker has them.
    pub fn requeue_astray(&mut self, now: Duration) {
        for unit in std::mem::take(&mut self.astray) {
            if let Some(task) = self.tasks.get_mut(&unit) {
                task.told = task.lease;
            }
            self.wait_again(now, unit);
        }
    }

    /// How many of an earlier life nobody has come back with yet.
    pub fn astray(&self) -> usize {
        self.astray.len()
    }

    /// A worker has begun a task.
    pub fn on_task_started(&mut self, id: SeatId, told: Lease) {
        if let Some(task) = self.tasks.get_mut(&told.unit).filter(|task| task.told == told)
            && task.place == Place::At(id, Stage::Given)
        {
            task.place = Place::At(id, Stage::Begun);
        }
    }

    /// A worker has ended a task, after running it for so long. `None` if it was not its own.
    pub fn on_task_done(
        &mut self,
        now: Duration,
        id: SeatId,
        told: Lease,
        ran: Duration,
    ) -> Option<Task<C>> {
        let task = self.tasks.get(&told.unit).filter(|task| task.told == told)?;
        if !matches!(task.place, Place::At(seat, _) if seat == id) {
            return None;
        }
        if let Some(seat) = self.seats.get_mut(&id) {
            seat.pace.on_end(ran);
            seat.idle_since = now;
        }
        self.unseat(told.unit);
        self.refresh(id);
        self.tasks.remove(&told.unit)
    }

    /// A worker gives a task back that it has not begun.
    pub fn on_task_returned(&mut self, now: Duration, id: SeatId, told: Lease) {
        let task = self.tasks.get(&told.unit).filter(|task| task.told == told);
        if task.is_some_and(|task| matches!(task.place, Place::At(seat, _) if seat == id)) {
            self.unseat(told.unit);
            self.wait_again(now, told.unit);
            self.refresh(id);
        }
    }

    /// Takes a task off the board that waits. `None` if a worker has it: it must be asked.
    pub fn withdraw(&mut self, unit: UnitId) -> Option<Task<C>> {
        let task = self.tasks.get(&unit).filter(|task| task.place == Place::Waiting)?;
        let (need, key) = (task.need.clone(), (task.rank, unit));
        self.unqueue(&need, key);
        self.tasks.remove(&unit)
    }

    /// Takes all off the board that wait.
    pub fn withdraw_all(&mut self) -> Vec<Task<C>> {
        let units = std::mem::take(&mut self.waiting).into_values().flatten();
        units.filter_map(|(_, unit)| self.tasks.remove(&unit)).collect()
    }

    /// The worker that has a task.
    pub fn holder(&self, unit: UnitId) -> Option<SeatId> {
        match self.tasks.get(&unit)?.place {
            Place::At(id, _) => Some(id),
            Place::Waiting | Place::Astray => None,
        }
    }

    /// Every task, in no order.
    pub fn tasks(&self) -> impl Iterator<Item = (UnitId, &Task<C>)> {
        self.tasks.iter().map(|(unit, task)| (*unit, task))
    }

    /// A task by its unit.
    pub fn task(&self, unit: UnitId) -> Option<&Task<C>> {
        self.tasks.get(&unit)
    }

    /// Whether a worker has said that it has begun the task.
    pub fn has_begun(&self, unit: UnitId) -> bool {
        self.tasks.get(&unit).is_some_and(|task| matches!(task.place, Place::At(_, Stage::Begun)))
    }

    fn queue(&mut self, task: &Task<C>) {
        let like = self.waiting.entry(task.need.clone()).or_default();
        like.insert((task.rank, task.lease.unit));
    }

    fn unqueue(&mut self, need: &Need, key: (i64, UnitId)) {
        if let Some(like) = self.waiting.get_mut(need) {
            like.remove(&key);
            if like.is_empty() {
                self.waiting.remove(need);
            }
        }
        self.kept.retain(|_, unit| *unit != key.1);
    }

    fn wait_again(&mut self, now: Duration, unit: UnitId) {
        let Some(task) = self.tasks.get_mut(&unit) else { return };
        (task.place, task.since) = (Place::Waiting, now);
        let (need, key) = (task.need.clone(), (task.rank, unit));
        self.waiting.entry(need).or_default().insert(key);
    }

    fn seat_task(&mut self, unit: UnitId, id: SeatId) {
        let Some(task) = self.tasks.get_mut(&unit) else { return };
        task.place = Place::At(id, Stage::Given);
        if let Some(seat) = self.seats.get_mut(&id) {
            seat.sit(unit, &task.need);
        }
    }

    /// Takes a task from its worker; it is nowhere then.
    fn unseat(&mut self, unit: UnitId) {
        let Some(task) = self.tasks.get(&unit) else { return };
        if let Place::At(id, _) = task.place
            && let Some(seat) = self.seats.get_mut(&id)
        {
            seat.leave(unit, &task.need);
        }
    }
}

/// What there is.
impl<C> Board<C> {
    /// The workers.
    pub fn seats(&self) -> impl Iterator<Item = (SeatId, &Seat)> {
        self.seats.iter().map(|(id, seat)| (*id, seat))
    }

    /// One worker.
    pub fn seat(&self, id: SeatId) -> Option<&Seat> {
        self.seats.get(&id)
    }

    /// A worker by its identity.
    pub fn seat_of(&self, uid: &str) -> Option<SeatId> {
        self.by_uid.get(uid).copied()
    }

    /// How many tasks wait here.
    pub fn waiting(&self) -> usize {
        self.waiting.values().map(BTreeSet::len).sum()
    }

    /// Threads of all tasks, wherever they are.
    pub fn threads(&self) -> u64 {
        let lines = self.waiting.iter();
        let waiting = lines.map(|(need, line)| line.len() as u64 * u64::from(need.threads));
        let seats = self.seats.values().map(|seat| u64::from(seat.load()));
        waiting.chain(seats).sum::<u64>() + self.astray.len() as u64
    }

    /// How many tasks there are, wherever.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether there is no task.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    fn forget_room(&mut self, id: SeatId) {
        self.hungry.remove(&id);
        self.by_room.retain(|(_, seat)| *seat != id);
    }

    /// Notes again how much room a seat has.
    fn refresh(&mut self, id: SeatId) {
        let Some(seat) = self.seats.get_mut(&id) else { return self.forget_room(id) };
        if let Some(room) = seat.noted.take() {
            self.by_room.remove(&(room, id));
        }
        self.hungry.remove(&id);
        if seat.mood != Mood::Working {
            return;
        }
        seat.noted = Some(seat.room());
        self.by_room.insert((seat.room(), id));
        if seat.is_hungry() {
            self.hungry.insert(id);
        }
    }
}
