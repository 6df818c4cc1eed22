//! Who gets what.

use std::collections::BTreeSet;
use std::time::Duration;

use longshore::UnitId;

use super::need::Need;
use super::seat::{Seat, SeatId};
use super::{Board, Place, Stage};

/// A task that fits nowhere is overtaken by others for so long; then a worker is kept for it.
const PATIENCE: Duration = Duration::from_millis(500);
/// Threads' worth of tasks that may wait here because they fit nowhere, at least.
const ASIDE: u32 = 256;

/// A task is given to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// To whom.
    pub seat: SeatId,
    /// What.
    pub unit: UnitId,
}

impl<C> Board<C> {
    /// Gives what waits to whoever has room, and a little more to those that work fast. Each is
    /// given once: it is its worker's until that one ends it, gives it back or is lost.
    pub fn schedule(&mut self, now: Duration) -> Vec<Given> {
        let mut given = Vec::new();
        let mut blocked = BTreeSet::new();
        while let Some((need, unit)) = self.first(&blocked) {
            match self.best_seat(&need, unit) {
                Some(seat) => given.push(self.give(&need, unit, seat)),
                None => {
                    self.keep_a_seat(now, &need, unit);
                    blocked.insert(need);
                }
            }
        }
        self.give_ahead(&blocked, &mut given);
        given
    }

    /// The first task of all lines that are not blocked.
    fn first(&self, blocked: &BTreeSet<Need>) -> Option<(Need, UnitId)> {
        let lines = self.waiting.iter().filter(|(need, _)| !blocked.contains(need));
        let heads = lines.filter_map(|(need, line)| Some((line.first()?, need)));
        heads.min_by_key(|(head, _)| **head).map(|((_, unit), need)| (need.clone(), *unit))
    }

    /// The worker whose free room it fills best.
    fn best_seat(&self, need: &Need, unit: UnitId) -> Option<SeatId> {
        let may = |id: &SeatId| self.kept.get(id).is_none_or(|kept| *kept == unit);
        let fits = |id: &SeatId| self.seats.get(id).is_some_and(|seat| seat.fits(need));
        let roomy = self.by_room.range((need.threads, SeatId(0))..).map(|(_, id)| *id);
        let mut fitting = roomy.filter(|id| may(id) && fits(id));
        fitting.next()
    }

    fn give(&mut self, need: &Need, unit: UnitId, seat: SeatId) -> Given {
        if let Some(task) = self.tasks.get_mut(&unit) {
            task.place = Place::At(seat, Stage::Given);
            let key = (task.rank, unit);
            self.unqueue(need, key);
        }
        if let Some(at) = self.seats.get_mut(&seat) {
            at.sit(unit, need);
        }
        self.refresh(seat);
        Given { seat, unit }
    }

    /// Keeps the worker free that will soonest have room, if the task has waited long enough.
    fn keep_a_seat(&mut self, now: Duration, need: &Need, unit: UnitId) {
        let waited = self.tasks.get(&unit).map_or(Duration::ZERO, |task| now - task.since.min(now));
        if waited < PATIENCE || self.kept.values().any(|kept| *kept == unit) {
            return;
        }
        let takes = |id: &SeatId, seat: &Seat| {
            seat.noted.is_some() && !self.kept.contains_key(id) && seat.could_hold(need)
        };
        let candidates = self.seats.iter().filter(|(id, seat)| takes(id, seat));
        let least = candidates.min_by_key(|(_, seat)| seat.load().saturating_sub(seat.threads));
        if let Some((id, _)) = least {
            self.kept.insert(*id, unit);
        }
    }

    /// Gives workers that are fast a little beyond what they can run: what is there is spread over
    /// all of them.
    fn give_ahead(&mut self, blocked: &BTreeSet<Need>, given: &mut Vec<Given>) {
        let hungry: Vec<SeatId> =
            self.hungry.iter().filter(|id| !self.kept.contains_key(id)).copied().collect();
        let lines: Vec<Need> =
            blocked.iter().filter(|need| need.may_wait_at_worker()).cloned().collect();
        for (served, id) in hungry.iter().enumerate() {
            let Some(seat) = self.seats.get(id) else { continue };
            let left: usize =
                lines.iter().filter_map(|need| Some(self.waiting.get(need)?.len())).sum();
            let share = left.div_ceil(hungry.len() - served);
            let mut appetite = seat.appetite();
            for _ in 0..share {
                let seat = self.seats.get(id);
                let could = |need: &&Need| seat.is_some_and(|seat| seat.could_hold(need));
                let heads = lines.iter().filter(could).filter_map(|need| {
                    let head = self.waiting.get(need)?.first()?;
                    (need.threads <= appetite).then_some((head, need))
                });
                let Some(((_, unit), need)) = heads.min_by_key(|(head, _)| **head) else { break };
                let (unit, need) = (*unit, need.clone());
                appetite -= need.threads;
                given.push(self.give(&need, unit, *id));
            }
        }
    }

    /// Threads' worth of tasks that should be claimed: what is free now, and so much more of what is
    /// quick that claims are few and nobody waits for one. Nothing more of what is slow: what is
    /// claimed is not overtaken by what comes later. Where what waits here fits nowhere, others
    /// are claimed beside it, within reason.
    pub fn wants(&self) -> u32 {
        let sum = |numbers: &mut dyn Iterator<Item = u32>| numbers.fold(0, u32::saturating_add);
        let seats = || self.seats.values().filter(|seat| seat.noted.is_some());
        let quick = sum(&mut seats().map(|seat| seat.pace.credit(seat.threads)));
        let here = sum(&mut self.waiting.iter().map(|(need, line)| {
            u32::try_from(line.len()).unwrap_or(u32::MAX).saturating_mul(need.threads)
        }));
        let room = sum(&mut self.by_room.iter().map(|(room, _)| *room));
        let most = sum(&mut seats().map(|seat| seat.threads)).saturating_mul(4).max(ASIDE);
        let room = if here < most { room } else { 0 };
        let ahead = quick.saturating_mul(4);
        // Little by little would cost a commit each.
        let ahead = Some(ahead.saturating_sub(here)).filter(|more| *more >= ahead / 2).unwrap_or(0);
        room.saturating_add(ahead)
    }

    /// The widest task that any worker could hold, and the most that any has of each resource.
    pub fn largest(&self) -> Need {
        let mut largest = Need::default();
        for seat in self.seats.values().filter(|seat| seat.noted.is_some()) {
            largest.threads = largest.threads.max(seat.threads);
            for (name, amount) in &seat.resources {
                let most = largest.resources.entry(name.clone()).or_default();
                *most = (*most).max(*amount);
            }
        }
        largest
    }

    /// Tasks that should be asked back: they wait at a worker that is busy, while another is idle and
    /// nothing waits here.
    pub fn recalls(&self) -> Vec<Given> {
        if !self.waiting.is_empty() {
            return Vec::new();
        }
        let mut idle: u32 = self
            .seats
            .iter()
            .filter(|(id, seat)| seat.noted.is_some() && !self.kept.contains_key(id))
            .map(|(_, seat)| seat.room())
            .sum();
        let mut recalls = Vec::new();
        for (id, seat) in self.seats.iter().filter(|(_, seat)| seat.load() > seat.threads) {
            let mut beyond = seat.load() - seat.threads;
            for unit in seat.tasks().into_iter().rev() {
                let Some(task) = self.tasks.get(&unit) else { continue };
                let threads = task.need.threads;
                if threads > beyond || threads > idle || task.place != Place::At(*id, Stage::Given)
                {
                    break;
                }
                (beyond, idle) = (beyond - threads, idle - threads);
                recalls.push(Given { seat: *id, unit });
            }
        }
        recalls
    }
}
