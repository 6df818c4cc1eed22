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
mod tasks;
#[cfg(test)]
mod tests;
mod workers;

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
