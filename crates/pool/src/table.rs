//! Who works, who is free, who waits: every decision of a pool, without threads, processes or time
//! of its own.
//!
//! "A worker is free" is always read off the table of workers, never off a count that could go
//! astray. What is decided here is done by others ([`crate::crew`]), outside the lock. This file
//! owns the way of a call; `tend` who is started, replaced and let go; `sanity` what always holds.

mod sanity;
mod seat;
mod tend;
#[cfg(all(test, not(feature = "_shuttle")))]
mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub use self::seat::Cause;
use self::seat::{Phase, Seat};
pub(crate) use self::tend::LONGEST_REST;
use crate::settings::{Settings, WhenFull};

/// A worker's number; never given twice, never 0.
pub(crate) type WorkerId = u64;

/// A call's place among those that wait: its priority, then its number.
pub(crate) type Ticket = (u8, u64);

/// The table. `J` is what waits and is given to workers.
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Table<J> {
    settings: Settings,
    /// Workers cannot be ended in the middle of something, only abandoned.
    threads: bool,
    workers: BTreeMap<WorkerId, Seat>,
    /// Calls that wait for a worker.
    queue: BTreeMap<Ticket, J>,
    /// Calls whose callers wait for a place in the queue, in the order in which they came.
    line: BTreeMap<u64, (u8, J)>,
    tickets: u64,
    next_id: WorkerId,
    closing: bool,
    /// There are more workers than there may be: the pool was made smaller.
    shrinking: bool,
    /// No worker is started before this: the last one could not be.
    not_before: Option<Instant>,
    /// Starts that failed since the last call that was answered.
    failures: u32,
    /// Something wants to be tended before its time.
    alarm: bool,
}

/// What became of a call that was handed in.
#[derive(Debug, PartialEq)]
pub(crate) enum Submitted<J> {
    /// This worker gets it.
    Given(WorkerId, J),
    /// It waits, under this ticket; perhaps a worker is to be started.
    Queued(Ticket, Option<WorkerId>),
    /// As many wait as may.
    Full(J),
    /// The pool ends.
    Closing(J),
    /// Nobody is there to do it, and nobody can be started at the moment.
    Nobody(J),
}

/// What a worker does after a call.
#[derive(Debug, PartialEq)]
pub(crate) enum Next<J> {
    /// This.
    Take(J),
    /// It waits.
    Wait,
    /// It ends.
    Leave(Cause),
}

/// What is to be done to the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Start this one.
    Start(WorkerId),
    /// End this one; it is free.
    End(WorkerId, Cause),
    /// Say that this one takes too long to start.
    Late(WorkerId),
}

/// How many workers there are, by what they do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// All but those that were given up.
    pub(crate) workers: usize,
    pub(crate) busy: usize,
    pub(crate) starting: usize,
    pub(crate) abandoned: usize,
    /// Those that can take calls, busy or not.
    pub(crate) serving: usize,
    /// What there must be.
    pub(crate) min: usize,
    /// What there may be.
    pub(crate) max: usize,
    /// Calls that wait for a worker.
    pub(crate) queue: usize,
    /// Calls that wait for a place in the queue.
    pub(crate) line: usize,
    pub(crate) closing: bool,
}

impl<J> Table<J> {
    /// `threads`: workers cannot be ended in the middle of something, only abandoned.
    pub(crate) fn new(settings: Settings, threads: bool) -> Self {
        Self {
            settings,
            threads,
            workers: BTreeMap::new(),
            queue: BTreeMap::new(),
            line: BTreeMap::new(),
            tickets: 0,
            next_id: 1,
            closing: false,
            shrinking: false,
            not_before: None,
            failures: 0,
            alarm: false,
        }
    }

    /// Takes a call in.
    pub(crate) fn submit(
        &mut self,
        job: J,
        priority: u8,
        when_full: WhenFull,
        now: Instant,
    ) -> Submitted<J> {
        if self.closing {
            return Submitted::Closing(job);
        }
        if let Some(id) = self.free_worker() {
            self.give(id);
            return Submitted::Given(id, job);
        }
        // A call for which a worker is being started waits for it, not in the queue.
        let soon = self.starting() + usize::from(self.may_grow(1, now));
        if !self.line.is_empty() || self.queue.len() >= self.settings.queue.saturating_add(soon) {
            return self.queue_up(job, priority, when_full, now);
        }
        self.enqueue(job, priority, now)
    }

    /// As many wait as may: the call comes back, or its caller waits in line.
    fn queue_up(&mut self, job: J, priority: u8, when: WhenFull, now: Instant) -> Submitted<J> {
        if when == WhenFull::Refuse {
            // Somebody may be started for those that wait; not for this one, which does not.
            self.alarm |= self.may_grow(0, now);
            return Submitted::Full(job);
        }
        let start = self.grow(1, now);
        if start.is_none() && !self.anybody() {
            return Submitted::Nobody(job);
        }
        self.tickets += 1;
        self.line.insert(self.tickets, (priority, job));
        Submitted::Queued((priority, self.tickets), start)
    }

    /// Puts a call back that its worker never began. It is not refused for those that wait.
    pub(crate) fn put_back(&mut self, job: J, priority: u8, now: Instant) -> Submitted<J> {
        if let Some(id) = self.free_worker() {
            self.give(id);
            return Submitted::Given(id, job);
        }
        self.enqueue(job, priority, now)
    }

    fn enqueue(&mut self, job: J, priority: u8, now: Instant) -> Submitted<J> {
        let start = self.grow(1, now);
        if start.is_none() && !self.anybody() {
            return Submitted::Nobody(job);
        }
        self.tickets += 1;
        let ticket = (priority, self.tickets);
        self.queue.insert(ticket, job);
        Submitted::Queued(ticket, start)
    }

    /// The next call for a worker, and those in line move up.
    fn pop(&mut self) -> Option<J> {
        let next = self.queue.pop_first().map(|(_, job)| job);
        let next = next.or_else(|| self.line.pop_first().map(|(_, (_, job))| job));
        self.move_up();
        next
    }

    /// Who is first in line gets the places in the queue that came free.
    fn move_up(&mut self) {
        while self.queue.len() < self.settings.queue
            && let Some((number, (priority, job))) = self.line.pop_first()
        {
            self.queue.insert((priority, number), job);
        }
    }

    /// Calls that wait, in the queue or in line for it.
    fn waiting(&self) -> usize {
        self.queue.len() + self.line.len()
    }

    /// Takes a call out, if it still waits.
    pub(crate) fn withdraw(&mut self, ticket: Ticket) -> Option<J> {
        let job = self.queue.remove(&ticket).or_else(|| self.withdraw_from_line(ticket));
        self.move_up();
        job
    }

    /// The same for one that never got as far as the queue.
    pub(crate) fn withdraw_from_line(&mut self, ticket: Ticket) -> Option<J> {
        self.line.remove(&ticket.1).map(|(_, job)| job)
    }

    /// Who takes the next call: a free worker, else the one with the least before it.
    fn free_worker(&self) -> Option<WorkerId> {
        let mut best: Option<(usize, WorkerId)> = None;
        for (id, seat) in self.workers.iter().filter(|(_, seat)| seat.is_open()) {
            if seat.in_flight == 0 {
                return Some(*id);
            }
            if best.is_none_or(|(least, _)| seat.in_flight < least) {
                best = Some((seat.in_flight, *id));
            }
        }
        best.map(|(_, id)| id)
    }

    fn give(&mut self, id: WorkerId) {
        if let Some(seat) = self.workers.get_mut(&id) {
            seat.in_flight += 1;
            seat.calls += 1;
        }
    }

    /// A worker is ready. Whom it replaces, if free, ends now.
    pub(crate) fn ready(&mut self, id: WorkerId, now: Instant) -> (Next<J>, Option<Order>) {
        let Some(seat) = self.workers.get_mut(&id) else {
            return (Next::Leave(Cause::Closing), None);
        };
        if seat.phase != Phase::Starting {
            return (self.next(id), None);
        }
        (seat.phase, seat.born, seat.free_since) = (Phase::Working, now, now);
        let former = seat.replaces.take();
        // Others who are due may have their turn, and this one has a time at which it is idle.
        self.alarm = true;
        let order = former.and_then(|former| self.dismiss(former));
        (self.next(id), order)
    }

    /// Lets a worker go that has been replaced.
    fn dismiss(&mut self, id: WorkerId) -> Option<Order> {
        let seat = self.workers.get_mut(&id).filter(|seat| seat.phase == Phase::Working)?;
        let cause = seat.due.unwrap_or(Cause::OwnWish);
        seat.phase = Phase::Leaving(cause);
        (seat.in_flight == 0).then_some(Order::End(id, cause))
    }

    /// A worker has answered a call.
    pub(crate) fn finished(&mut self, id: WorkerId, now: Instant) -> Next<J> {
        self.failures = 0;
        self.passed_over(id, now)
    }

    /// A worker does not begin a call that it was given: nobody wants it.
    pub(crate) fn passed_over(&mut self, id: WorkerId, now: Instant) -> Next<J> {
        if let Some(seat) = self.workers.get_mut(&id) {
            seat.in_flight = seat.in_flight.saturating_sub(1);
            (seat.free_since, seat.overdue) = (now, None);
        }
        self.next(id)
    }

    /// What a worker does now.
    pub(crate) fn next(&mut self, id: WorkerId) -> Next<J> {
        let too_many = self.shrinking && self.seated() > self.settings.max;
        let Some(seat) = self.workers.get_mut(&id) else { return Next::Leave(Cause::Died) };
        if too_many && seat.phase == Phase::Working {
            seat.phase = Phase::Leaving(Cause::Surplus);
        }
        match seat.phase {
            Phase::Leaving(cause) if seat.in_flight == 0 => return Next::Leave(cause),
            Phase::Abandoned => return Next::Leave(Cause::Timeout),
            Phase::Leaving(_) | Phase::Starting => return Next::Wait,
            Phase::Working => {}
        }
        if seat.is_worn() {
            seat.due = Some(Cause::Calls);
            self.alarm = true;
        }
        if seat.is_open()
            && let Some(job) = self.pop()
        {
            self.give(id);
            return Next::Take(job);
        }
        self.leave_if_closing(id)
    }

    fn leave_if_closing(&mut self, id: WorkerId) -> Next<J> {
        match self.workers.get_mut(&id).filter(|seat| seat.is_free()) {
            Some(seat) if self.closing => {
                seat.phase = Phase::Leaving(Cause::Closing);
                Next::Leave(Cause::Closing)
            }
            _ => Next::Wait,
        }
    }

    /// How many calls a worker may be given beyond the one it is at.
    pub(crate) fn set_ahead(&mut self, id: WorkerId, ahead: usize) {
        if let Some(seat) = self.workers.get_mut(&id) {
            seat.ahead = ahead;
        }
    }

    /// Another call for a worker that may have some ahead.
    pub(crate) fn take_ahead(&mut self, id: WorkerId) -> Option<J> {
        self.workers.get(&id).filter(|seat| seat.is_open() && seat.in_flight > 0)?;
        let job = self.pop()?;
        self.give(id);
        Some(job)
    }

    /// A worker should be replaced; it works on until its replacement is there.
    pub(crate) fn replace(&mut self, id: WorkerId, cause: Cause) {
        if let Some(seat) = self.workers.get_mut(&id).filter(|seat| seat.phase == Phase::Working) {
            seat.due.get_or_insert(cause);
            self.alarm = true;
        }
    }

    /// A worker takes no more calls from now on, and is not waited for: its thread was given up, or
    /// its process is being killed.
    pub(crate) fn abandon(&mut self, id: WorkerId) {
        if let Some(seat) = self.workers.get_mut(&id) {
            seat.phase = Phase::Abandoned;
            self.alarm = true;
        }
    }

    /// Nobody wants the call that a thread is at. It keeps its seat until `when`, and then as long
    /// as no more threads may be abandoned.
    pub(crate) fn unwanted(&mut self, id: WorkerId, when: Instant, now: Instant) {
        if let Some(seat) = self.workers.get_mut(&id).filter(|seat| seat.in_flight > 0) {
            seat.overdue = Some(when);
            self.abandon_overdue(now);
            self.alarm = true;
        }
    }

    /// A worker is no more. Who waits for nobody is to be told; and whether it was of no use, so
    /// that the next is not started at once to do the same.
    pub(crate) fn gone(&mut self, id: WorkerId, cause: Cause, now: Instant) -> (Vec<J>, bool) {
        self.alarm = true;
        let useless = |seat: Seat| seat.calls == 0 && seat.serves() && cause.is_failure();
        let useless = self.workers.remove(&id).is_some_and(useless);
        if useless {
            self.back_off(now);
        }
        (self.stranded(now), useless)
    }

    /// No more calls are taken in. What waits and runs is still done; who is in line is told.
    pub(crate) fn close(&mut self) -> Vec<J> {
        (self.closing, self.alarm) = (true, true);
        std::mem::take(&mut self.line).into_values().map(|(_, job)| job).collect()
    }

    /// Everything that still waits, to be told that nobody comes.
    pub(crate) fn clear(&mut self) -> Vec<J> {
        let line = std::mem::take(&mut self.line).into_values().map(|(_, job)| job);
        std::mem::take(&mut self.queue).into_values().chain(line).collect()
    }

    /// Whether something wants to be tended now. Once asked, it is taken care of.
    pub(crate) fn take_alarm(&mut self) -> bool {
        std::mem::take(&mut self.alarm)
    }

    /// Whether nobody is left. An abandoned thread is not waited for; a process is, since it is
    /// being killed.
    pub(crate) fn is_empty(&self) -> bool {
        let left = |seat: &Seat| !(self.threads && seat.phase == Phase::Abandoned);
        !self.workers.values().any(left)
    }

    /// How many there are, by what they do.
    pub(crate) fn counts(&self) -> Counts {
        let count = |which: fn(&Seat) -> bool| self.workers.values().filter(|s| which(s)).count();
        let abandoned = count(|seat| seat.phase == Phase::Abandoned);
        Counts {
            workers: self.workers.len() - abandoned,
            busy: count(|seat| seat.phase != Phase::Abandoned && seat.in_flight > 0),
            starting: self.starting(),
            abandoned,
            serving: count(|seat| seat.phase == Phase::Working),
            min: self.settings.min,
            max: self.settings.max,
            queue: self.queue.len(),
            line: self.line.len(),
            closing: self.closing,
        }
    }
}

/// After a start that failed the next waits so long, twice as long each time.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
