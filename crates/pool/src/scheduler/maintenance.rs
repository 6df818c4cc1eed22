//! Maintenance of the workers: start, replace, abandon and stop them.

use std::time::{Duration, Instant};

use super::worker_slot::{Cause, Phase, Seat};
use super::{BACKOFF, Order, Table, WorkerId};

impl<J> Table<J> {
    /// Runs maintenance: starts missing workers, replaces workers that are due, stops idle ones. Few
    /// workers are replaced at a time, and each replacement is ready before the old worker stops.
    pub(crate) fn tend(&mut self, now: Instant) -> Vec<Order> {
        let orders = self.orders(now);
        self.alarm = false;
        orders
    }

    fn orders(&mut self, now: Instant) -> Vec<Order> {
        let mut orders = Vec::new();
        self.abandon_overdue(now);
        self.notice_late(&mut orders, now);
        if self.closing {
            // Queued calls are still run, if need be by a new worker.
            orders.extend((!self.anybody()).then(|| self.grow(0, now)).flatten().map(Order::Start));
            self.end_free(&mut orders, Cause::Closing, |_| true);
            return orders;
        }
        while self.seated() < self.settings.min && self.may_start(now) {
            orders.push(Order::Start(self.seat(None, now)));
        }
        while let Some(id) = self.grow(0, now) {
            orders.push(Order::Start(id));
        }
        self.replace_due(&mut orders, now);
        self.end_idle(&mut orders, now);
        self.end_surplus(&mut orders);
        orders
    }

    /// Starts workers up to the maximum.
    pub(crate) fn fill(&mut self, now: Instant) -> Vec<Order> {
        let mut orders = Vec::new();
        while self.seated() < self.settings.max && self.may_start(now) && !self.closing {
            orders.push(Order::Start(self.seat(None, now)));
        }
        orders
    }

    /// When maintenance has to run again, if nothing happens before. `None`: never.
    pub(crate) fn tend_at(&self, now: Instant) -> Option<Instant> {
        let settings = &self.settings;
        let spare = self.seated() > settings.min && !self.closing;
        let seats = self.workers.values().flat_map(|seat| {
            let free_since = if seat.in_flight == 0 { seat.free_since } else { now };
            let idle = free_since.checked_add(settings.idle_timeout);
            let late = self.threads && seat.phase == Phase::Starting && !seat.late;
            let working = seat.phase == Phase::Working;
            [
                idle.filter(|_| spare && working),
                seat.ends_at().filter(|_| working && seat.due.is_none()),
                seat.overdue.filter(|when| *when > now),
                seat.born.checked_add(settings.start_timeout).filter(|_| late),
            ]
        });
        let start = self.not_before.filter(|when| *when > now);
        seats.flatten().chain(start).min()
    }

    /// Workers that count against `max`: not stopping ones, and not a replacement beside
    /// the worker that it replaces.
    pub(super) fn seated(&self) -> usize {
        let stays = |id: &WorkerId| self.workers.get(id).is_some_and(Seat::serves);
        let counts = |seat: &&Seat| seat.serves() && !seat.replaces.as_ref().is_some_and(stays);
        self.workers.values().filter(counts).count()
    }

    pub(super) fn starting(&self) -> usize {
        self.workers.values().filter(|seat| seat.phase == Phase::Starting).count()
    }

    fn abandoned(&self) -> usize {
        self.workers.values().filter(|seat| seat.phase == Phase::Abandoned).count()
    }

    pub(super) fn anybody(&self) -> bool {
        self.workers.values().any(Seat::serves)
    }

    /// Whether a worker would be started if `more` calls were added to the waiting ones.
    pub(super) fn may_grow(&self, more: usize, now: Instant) -> bool {
        self.waiting() + more > self.starting()
            && self.seated() < self.settings.max
            && self.may_start(now)
    }

    /// Adds a worker to start, if the waiting calls and `more` others need one.
    pub(super) fn grow(&mut self, more: usize, now: Instant) -> Option<WorkerId> {
        self.may_grow(more, now).then(|| self.seat(None, now))
    }

    fn may_start(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|time| time <= now)
    }

    fn seat(&mut self, replaces: Option<WorkerId>, now: Instant) -> WorkerId {
        let id = self.next_id;
        self.next_id += 1;
        // Schedules the check of its start timeout.
        self.alarm = true;
        self.workers.insert(id, Seat::new(id, &self.settings, replaces, now));
        id
    }

    /// A worker could not be started. Returns the calls that no worker can run now.
    pub(crate) fn start_failed(&mut self, id: WorkerId, now: Instant) -> Vec<J> {
        self.alarm = true;
        // A slow start was already counted as a failure.
        if !self.workers.remove(&id).is_some_and(|seat| seat.late) {
            self.back_off(now);
        }
        self.stranded(now)
    }

    /// Delays the next start, longer after each failure.
    pub(super) fn back_off(&mut self, now: Instant) {
        let wait = BACKOFF.0.saturating_mul(1 << self.failures.min(10)).min(BACKOFF.1);
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + wait);
    }

    /// Removes all waiting calls if there is no worker and none may be started yet.
    pub(crate) fn stranded(&mut self, now: Instant) -> Vec<J> {
        match self.anybody() || self.may_start(now) {
            true => Vec::new(),
            false => self.clear(),
        }
    }

    /// Abandons threads that hang in cancelled calls, up to the limit of abandoned threads.
    pub(super) fn abandon_overdue(&mut self, now: Instant) {
        let mut room = self.settings.max_abandoned.saturating_sub(self.abandoned());
        for seat in self.workers.values_mut() {
            let over = seat.overdue.is_some_and(|when| when <= now) && seat.in_flight > 0;
            if room > 0 && over && seat.phase != Phase::Abandoned {
                seat.phase = Phase::Abandoned;
                room -= 1;
            }
        }
    }

    /// Reports threads that take too long to start. They cannot be killed; the process backend
    /// enforces its start timeout itself.
    fn notice_late(&mut self, orders: &mut Vec<Order>, now: Instant) {
        let limit = self.settings.start_timeout;
        let mut room = self.settings.max_abandoned.saturating_sub(self.abandoned());
        let before = orders.len();
        let starting = |seat: &Seat| seat.phase == Phase::Starting && !seat.late;
        for (id, seat) in &mut self.workers {
            if self.threads && starting(seat) && now.duration_since(seat.born) >= limit {
                seat.late = true;
                orders.push(Order::Late(*id));
                if room > 0 {
                    seat.phase = Phase::Abandoned;
                    room -= 1;
                }
            }
        }
        if orders.len() > before {
            self.back_off(now);
        }
    }

    fn replace_due(&mut self, orders: &mut Vec<Order>, now: Instant) {
        for seat in self.workers.values_mut().filter(|seat| seat.phase == Phase::Working) {
            if seat.ends_at().is_some_and(|end| end <= now) {
                seat.due.get_or_insert(Cause::Age);
            }
        }
        let at_once = (self.settings.max / 10).max(1);
        let underway: Vec<WorkerId> =
            self.workers.values().filter_map(|seat| seat.replaces).collect();
        let due = |(id, seat): &(&WorkerId, &Seat)| {
            seat.due.is_some() && seat.phase == Phase::Working && !underway.contains(id)
        };
        let due: Vec<WorkerId> = self.workers.iter().filter(due).map(|(id, _)| *id).collect();
        for id in due.into_iter().take(at_once.saturating_sub(underway.len())) {
            if self.may_start(now) {
                orders.push(Order::Start(self.seat(Some(id), now)));
                self.slow_down(id, now);
            }
        }
    }

    /// If a worker asks for its replacement, or exceeds the memory limit, before its first call,
    /// its successor probably will too. So the next start is delayed, longer each time.
    fn slow_down(&mut self, former: WorkerId, now: Instant) {
        let useless = |seat: &Seat| {
            seat.calls == 0 && matches!(seat.due, Some(Cause::OwnWish | Cause::Memory))
        };
        if self.workers.get(&former).is_some_and(useless) {
            self.back_off(now);
        }
    }

    fn end_idle(&mut self, orders: &mut Vec<Order>, now: Instant) {
        let limit = self.settings.idle_timeout;
        let spare = self.seated().saturating_sub(self.settings.min);
        let idle = |seat: &Seat| seat.is_free() && now.duration_since(seat.free_since) >= limit;
        let idle: Vec<WorkerId> = self
            .workers
            .iter()
            .rev()
            .filter(|(_, seat)| idle(seat))
            .map(|(id, _)| *id)
            .take(spare)
            .collect();
        self.end_free(orders, Cause::Idle, |id| idle.contains(&id));
    }

    fn end_free(
        &mut self,
        orders: &mut Vec<Order>,
        cause: Cause,
        which: impl Fn(WorkerId) -> bool,
    ) {
        for (id, seat) in &mut self.workers {
            if seat.is_free() && which(*id) {
                seat.phase = Phase::Leaving(cause);
                orders.push(Order::End(*id, cause));
            }
        }
    }

    /// Changes the number of workers. Surplus workers stop when they are idle.
    pub(crate) fn resize(&mut self, min: usize, max: usize) {
        (self.settings.min, self.settings.max) = (min, max);
        self.shrinking = self.seated() > max;
        self.alarm = true;
    }

    fn end_surplus(&mut self, orders: &mut Vec<Order>) {
        if !self.shrinking {
            return;
        }
        let surplus = self.seated().saturating_sub(self.settings.max);
        let free = self.workers.iter().rev().filter(|(_, seat)| seat.is_free()).map(|(id, _)| *id);
        let free: Vec<WorkerId> = free.take(surplus).collect();
        self.end_free(orders, Cause::Surplus, |id| free.contains(&id));
        self.shrinking = self.seated() > self.settings.max;
    }
}

/// Longest time between two runs of maintenance.
pub(crate) const LONGEST_REST: Duration = Duration::from_secs(3600);
