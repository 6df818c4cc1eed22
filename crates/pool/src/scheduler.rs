//! The scheduler of a pool: all decisions about workers and calls, without threads, processes or a
//! clock.
//!
//! Whether a worker is idle is always derived from the worker slots, never from a separate counter
//! that could drift. The [`crate::backend`] executes the decisions outside the lock. This file
//! handles calls; `maintenance` starts, replaces and stops workers; `invariants` checks
//! consistency.

mod invariants;
mod maintenance;
#[cfg(all(test, not(feature = "_shuttle")))]
mod tests;
mod worker_slot;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub(crate) use self::maintenance::LONGEST_REST;
pub use self::worker_slot::Cause;
use self::worker_slot::{Phase, Seat};
use crate::settings::{Settings, WhenFull};

/// A worker's number; never reused, never 0.
pub(crate) type WorkerId = u64;

/// The position of a waiting call: its priority, then its sequence number.
pub(crate) type Ticket = (u8, u64);

/// The scheduler. `J` is the type of a job.
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Table<J> {
    settings: Settings,
    /// Workers are threads: they cannot be killed in the middle of a call, only abandoned.
    threads: bool,
    workers: BTreeMap<WorkerId, Seat>,
    /// Calls that wait for a worker.
    queue: BTreeMap<Ticket, J>,
    /// Calls that wait for queue space, in the order of arrival.
    line: BTreeMap<u64, (u8, J)>,
    tickets: u64,
    next_id: WorkerId,
    closing: bool,
    /// There are more workers than `max`, because the pool was resized.
    shrinking: bool,
    /// Back-off: no worker is started before this time, because the last start failed.
    not_before: Option<Instant>,
    /// Failed starts since the last answered call.
    failures: u32,
    /// Maintenance has to run before its time.
    alarm: bool,
}

/// What happened to a submitted call.
#[derive(Debug, PartialEq)]
pub(crate) enum Submitted<J> {
    /// This worker gets it.
    Given(WorkerId, J),
    /// It waits under this ticket. If there is a worker id, that worker has to be started.
    Queued(Ticket, Option<WorkerId>),
    /// The queue is full.
    Full(J),
    /// The pool is closing.
    Closing(J),
    /// There is no worker, and none can be started at the moment.
    Nobody(J),
}

/// What a worker does next.
#[derive(Debug, PartialEq)]
pub(crate) enum Next<J> {
    /// Run this job.
    Take(J),
    /// Wait for a call.
    Wait,
    /// Stop.
    Leave(Cause),
}

/// A command to the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Start this worker.
    Start(WorkerId),
    /// Stop this worker; it is idle.
    End(WorkerId, Cause),
    /// Log that this worker takes too long to start.
    Late(WorkerId),
}

/// Numbers of workers by state, and of waiting calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// All except abandoned ones.
    pub(crate) workers: usize,
    pub(crate) busy: usize,
    pub(crate) starting: usize,
    pub(crate) abandoned: usize,
    /// Workers that can take calls, busy or not.
    pub(crate) serving: usize,
    /// Minimum number of workers.
    pub(crate) min: usize,
    /// Maximum number of workers.
    pub(crate) max: usize,
    /// Calls that wait for a worker.
    pub(crate) queue: usize,
    /// Calls that wait for queue space.
    pub(crate) line: usize,
    pub(crate) closing: bool,
}

impl<J> Table<J> {
    /// `threads`: workers cannot be killed in the middle of a call, only abandoned.
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

    /// Submits a call.
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
        // A call for which a worker is being started does not count against the queue's limit.
        let soon = self.starting() + usize::from(self.may_grow(1, now));
        if !self.line.is_empty() || self.queue.len() >= self.settings.queue.saturating_add(soon) {
            return self.queue_up(job, priority, when_full, now);
        }
        self.enqueue(job, priority, now)
    }

    /// The queue is full: rejects the call, or adds it to the overflow list.
    fn queue_up(&mut self, job: J, priority: u8, when: WhenFull, now: Instant) -> Submitted<J> {
        if when == WhenFull::Refuse {
            // A worker may be started for calls that wait; this call does not wait.
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

    /// Requeues a call that its worker never started. The queue's limit does not apply.
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

    /// Takes the next call for a worker, and refills the queue.
    fn pop(&mut self) -> Option<J> {
        let next = self.queue.pop_first().map(|(_, job)| job);
        let next = next.or_else(|| self.line.pop_first().map(|(_, (_, job))| job));
        self.move_up();
        next
    }

    /// Moves calls from the overflow list to free places in the queue.
    fn move_up(&mut self) {
        while self.queue.len() < self.settings.queue
            && let Some((number, (priority, job))) = self.line.pop_first()
        {
            self.queue.insert((priority, number), job);
        }
    }

    /// Calls that wait, in the queue or for queue space.
    fn waiting(&self) -> usize {
        self.queue.len() + self.line.len()
    }

    /// Removes a call that still waits.
    pub(crate) fn withdraw(&mut self, ticket: Ticket) -> Option<J> {
        let job = self.queue.remove(&ticket).or_else(|| self.withdraw_from_line(ticket));
        self.move_up();
        job
    }

    /// Removes a call that still waits for queue space.
    pub(crate) fn withdraw_from_line(&mut self, ticket: Ticket) -> Option<J> {
        self.line.remove(&ticket.1).map(|(_, job)| job)
    }

    /// The worker for the next call: an idle one, else the one with the fewest calls.
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

    /// A worker is ready. The worker that it replaces is stopped now if it is idle.
    pub(crate) fn ready(&mut self, id: WorkerId, now: Instant) -> (Next<J>, Option<Order>) {
        let Some(seat) = self.workers.get_mut(&id) else {
            return (Next::Leave(Cause::Closing), None);
        };
        if seat.phase != Phase::Starting {
            return (self.next(id), None);
        }
        (seat.phase, seat.born, seat.free_since) = (Phase::Working, now, now);
        let former = seat.replaces.take();
        // The next replacement may start, and this worker's idle timeout has to be scheduled.
        self.alarm = true;
        let order = former.and_then(|former| self.dismiss(former));
        (self.next(id), order)
    }

    /// Stops a worker that has been replaced.
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

    /// A worker skips a call that it was given, because the call was cancelled.
    pub(crate) fn passed_over(&mut self, id: WorkerId, now: Instant) -> Next<J> {
        if let Some(seat) = self.workers.get_mut(&id) {
            seat.in_flight = seat.in_flight.saturating_sub(1);
            (seat.free_since, seat.overdue) = (now, None);
        }
        self.next(id)
    }

    /// The next action of a worker.
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

    /// Sets how many calls a worker may be given in addition to the running one.
    pub(crate) fn set_ahead(&mut self, id: WorkerId, ahead: usize) {
        if let Some(seat) = self.workers.get_mut(&id) {
            seat.ahead = ahead;
        }
    }

    /// Another call for a busy worker that may prefetch.
    pub(crate) fn take_ahead(&mut self, id: WorkerId) -> Option<J> {
        self.workers.get(&id).filter(|seat| seat.is_open() && seat.in_flight > 0)?;
        let job = self.pop()?;
        self.give(id);
        Some(job)
    }

    /// Requests that a worker is replaced; it runs until its replacement is ready.
    pub(crate) fn replace(&mut self, id: WorkerId, cause: Cause) {
        if let Some(seat) = self.workers.get_mut(&id).filter(|seat| seat.phase == Phase::Working) {
            seat.due.get_or_insert(cause);
            self.alarm = true;
        }
    }

    /// Marks a worker as abandoned: its thread hangs in a call, or its process is being killed. It
    /// gets no more calls, and closing does not wait for it.
    pub(crate) fn abandon(&mut self, id: WorkerId) {
        if let Some(seat) = self.workers.get_mut(&id) {
            seat.phase = Phase::Abandoned;
            self.alarm = true;
        }
    }

    /// The call that a thread runs was cancelled. The thread keeps its slot until `when`, and after
    /// that as long as no more threads may be abandoned.
    pub(crate) fn unwanted(&mut self, id: WorkerId, when: Instant, now: Instant) {
        if let Some(seat) = self.workers.get_mut(&id).filter(|seat| seat.in_flight > 0) {
            seat.overdue = Some(when);
            self.abandon_overdue(now);
            self.alarm = true;
        }
    }

    /// A worker has ended. Returns the calls that no worker can run now, and whether the worker
    /// failed before its first call: then the next start is delayed, since it would probably fail
    /// the same way.
    pub(crate) fn gone(&mut self, id: WorkerId, cause: Cause, now: Instant) -> (Vec<J>, bool) {
        self.alarm = true;
        let useless = |seat: Seat| seat.calls == 0 && seat.serves() && cause.is_failure();
        let useless = self.workers.remove(&id).is_some_and(useless);
        if useless {
            self.back_off(now);
        }
        (self.stranded(now), useless)
    }

    /// Closes the pool for new calls; queued and running ones are finished. Returns the calls that
    /// waited for queue space.
    pub(crate) fn close(&mut self) -> Vec<J> {
        (self.closing, self.alarm) = (true, true);
        std::mem::take(&mut self.line).into_values().map(|(_, job)| job).collect()
    }

    /// Removes all waiting calls, so that the caller can reject them.
    pub(crate) fn clear(&mut self) -> Vec<J> {
        let line = std::mem::take(&mut self.line).into_values().map(|(_, job)| job);
        std::mem::take(&mut self.queue).into_values().chain(line).collect()
    }

    /// Takes the request for immediate maintenance.
    pub(crate) fn take_alarm(&mut self) -> bool {
        std::mem::take(&mut self.alarm)
    }

    /// Whether no worker is left. Abandoned threads do not count; abandoned processes do, since
    /// they are being killed.
    pub(crate) fn is_empty(&self) -> bool {
        let left = |seat: &Seat| !(self.threads && seat.phase == Phase::Abandoned);
        !self.workers.values().any(left)
    }

    /// Numbers of workers by state, and of waiting calls.
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

/// Delay after a failed start; it doubles from the first to the second value.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
