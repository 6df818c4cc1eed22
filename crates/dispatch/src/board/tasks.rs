//! Tasks: coming, running, ending.

use std::time::Duration;

use longshore::UnitId;
use longshore::session::Lease;

use super::{Board, Need, Place, SeatId, Stage, Task};

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

    pub(super) fn unqueue(&mut self, need: &Need, key: (i64, UnitId)) {
        if let Some(like) = self.waiting.get_mut(need) {
            like.remove(&key);
            if like.is_empty() {
                self.waiting.remove(need);
            }
        }
        self.kept.retain(|_, unit| *unit != key.1);
    }

    pub(super) fn wait_again(&mut self, now: Duration, unit: UnitId) {
        let Some(task) = self.tasks.get_mut(&unit) else { return };
        (task.place, task.since) = (Place::Waiting, now);
        let (need, key) = (task.need.clone(), (task.rank, unit));
        self.waiting.entry(need).or_default().insert(key);
    }

    pub(super) fn seat_task(&mut self, unit: UnitId, id: SeatId) {
        let Some(task) = self.tasks.get_mut(&unit) else { return };
        task.place = Place::At(id, Stage::Given);
        if let Some(seat) = self.seats.get_mut(&id) {
            seat.sit(unit, &task.need);
        }
    }

    /// Takes a task from its worker; it is nowhere then.
    pub(super) fn unseat(&mut self, unit: UnitId) {
        let Some(task) = self.tasks.get(&unit) else { return };
        if let Place::At(id, _) = task.place
            && let Some(seat) = self.seats.get_mut(&id)
        {
            seat.leave(unit, &task.need);
        }
    }
}
