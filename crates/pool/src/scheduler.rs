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

pub(crate) use self::maintenance::MAX_MAINTENANCE_INTERVAL;
pub use self::worker_slot::EndCause;
use self::worker_slot::{Phase, WorkerSlot};
use crate::settings::{PoolSettings, WhenQueueFull};

/// A worker's number; never reused, never 0.
pub(crate) type WorkerId = u64;

/// The position of a waiting call: its priority, then its sequence number.
pub(crate) type Ticket = (u8, u64);

/// A call, as the scheduler sees it.
pub(crate) trait ScheduledCall {
    /// Whether it must not share its worker with other calls.
    fn is_isolated(&self) -> bool;
}

/// The scheduler. `J` is the type of a job.
#[cfg_attr(test, derive(Clone))]
pub(crate) struct WorkerScheduler<J> {
    settings: PoolSettings,
    /// Workers are threads: they cannot be killed in the middle of a call, only abandoned.
    threads: bool,
    workers: BTreeMap<WorkerId, WorkerSlot>,
    /// Calls that wait for a worker.
    queue: BTreeMap<Ticket, J>,
    /// Calls that wait for queue space, in the order of arrival.
    overflow: BTreeMap<u64, (u8, J)>,
    tickets: u64,
    next_id: WorkerId,
    closing: bool,
    /// There are more workers than `max`, because the pool was resized.
    shrinking: bool,
    /// Back-off: no worker is started before this time, because the last start failed.
    start_not_before: Option<Instant>,
    /// Failed starts since the last answered call.
    failed_starts: u32,
    /// Maintenance has to run before its time.
    maintenance_requested: bool,
}

/// What happened to a submitted call.
#[derive(Debug, PartialEq)]
pub(crate) enum CallAdmission<J> {
    /// This worker gets it.
    Assigned(WorkerId, J),
    /// It waits under this ticket. If there is a worker id, that worker has to be started.
    Queued(Ticket, Option<WorkerId>),
    /// The queue is full.
    Full(J),
    /// The pool is closing.
    Closing(J),
    /// There is no worker, and none can be started at the moment.
    NoWorker(J),
}

/// What a worker does next.
#[derive(Debug, PartialEq)]
pub(crate) enum NextAction<J> {
    /// Run this job.
    Run(J),
    /// Wait for a call.
    Wait,
    /// Stop.
    Stop(EndCause),
}

/// A command to the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackendCommand {
    /// Start this worker.
    Start(WorkerId),
    /// Stop this worker; it is idle.
    Stop(WorkerId, EndCause),
    /// Log that this worker takes too long to start.
    ReportSlowStart(WorkerId),
}

/// Numbers of workers by state, and of waiting calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PoolCounts {
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
    pub(crate) overflow: usize,
    pub(crate) closing: bool,
}

impl<J: ScheduledCall> WorkerScheduler<J> {
    /// `threads`: workers cannot be killed in the middle of a call, only abandoned.
    pub(crate) fn new(settings: PoolSettings, threads: bool) -> Self {
        Self {
            settings,
            threads,
            workers: BTreeMap::new(),
            queue: BTreeMap::new(),
            overflow: BTreeMap::new(),
            tickets: 0,
            next_id: 1,
            closing: false,
            shrinking: false,
            start_not_before: None,
            failed_starts: 0,
            maintenance_requested: false,
        }
    }

    /// Submits a call.
    pub(crate) fn submit(
        &mut self,
        job: J,
        priority: u8,
        when_full: WhenQueueFull,
        now: Instant,
    ) -> CallAdmission<J> {
        if self.closing {
            return CallAdmission::Closing(job);
        }
        // Calls may wait although a worker accepts calls: the next one is isolated. Then no call
        // overtakes it, or the worker would never be idle.
        if self.waiting() == 0
            && let Some(id) = self.next_worker(&job)
        {
            self.assign(id, &job);
            return CallAdmission::Assigned(id, job);
        }
        // A call for which a worker is being started does not count against the queue's limit.
        let soon = self.starting() + usize::from(self.needs_worker(1, now));
        if !self.overflow.is_empty() || self.queue.len() >= self.settings.queue.saturating_add(soon) {
            return self.overflow_or_reject(job, priority, when_full, now);
        }
        self.enqueue(job, priority, now)
    }

    /// The queue is full: rejects the call, or adds it to the overflow list.
    fn overflow_or_reject(
        &mut self,
        job: J,
        priority: u8,
        when: WhenQueueFull,
        now: Instant,
    ) -> CallAdmission<J> {
        if when == WhenQueueFull::Refuse {
            // A worker may be started for calls that wait; this call does not wait.
            self.maintenance_requested |= self.needs_worker(0, now);
            return CallAdmission::Full(job);
        }
        let start = self.add_if_needed(1, now);
        if start.is_none() && !self.has_serving_worker() {
            return CallAdmission::NoWorker(job);
        }
        self.tickets += 1;
        self.overflow.insert(self.tickets, (priority, job));
        CallAdmission::Queued((priority, self.tickets), start)
    }

    /// Requeues a call that its worker never started. The queue's limit does not apply.
    pub(crate) fn requeue(&mut self, job: J, priority: u8, now: Instant) -> CallAdmission<J> {
        if let Some(id) = self.next_worker(&job) {
            self.assign(id, &job);
            return CallAdmission::Assigned(id, job);
        }
        self.enqueue(job, priority, now)
    }

    fn enqueue(&mut self, job: J, priority: u8, now: Instant) -> CallAdmission<J> {
        let start = self.add_if_needed(1, now);
        if start.is_none() && !self.has_serving_worker() {
            return CallAdmission::NoWorker(job);
        }
        self.tickets += 1;
        let ticket = (priority, self.tickets);
        self.queue.insert(ticket, job);
        CallAdmission::Queued(ticket, start)
    }

    /// Takes the next call for a worker that accepts calls, and refills the queue. An isolated call
    /// waits until a worker is idle, and the calls behind it wait with it.
    fn next_job(&mut self, id: WorkerId) -> Option<J> {
        let slot = self.workers.get(&id).filter(|slot| slot.accepts_calls())?;
        let queued = self.queue.first_key_value().map(|(_, job)| job);
        let next = queued.or_else(|| self.overflow.first_key_value().map(|(_, (_, job))| job))?;
        if next.is_isolated() && slot.in_flight > 0 {
            return None;
        }
        let next = self.queue.pop_first().map(|(_, job)| job);
        let next = next.or_else(|| self.overflow.pop_first().map(|(_, (_, job))| job))?;
        self.refill_queue();
        self.assign(id, &next);
        Some(next)
    }

    /// Moves calls from the overflow list to free places in the queue.
    fn refill_queue(&mut self) {
        while self.queue.len() < self.settings.queue
            && let Some((number, (priority, job))) = self.overflow.pop_first()
        {
            self.queue.insert((priority, number), job);
        }
    }

    /// Calls that wait, in the queue or for queue space.
    fn waiting(&self) -> usize {
        self.queue.len() + self.overflow.len()
    }

    /// Removes a call that still waits.
    pub(crate) fn withdraw(&mut self, ticket: Ticket) -> Option<J> {
        let job = self.queue.remove(&ticket).or_else(|| self.withdraw_from_overflow(ticket));
        self.refill_queue();
        job
    }

    /// Removes a call that still waits for queue space.
    pub(crate) fn withdraw_from_overflow(&mut self, ticket: Ticket) -> Option<J> {
        self.overflow.remove(&ticket.1).map(|(_, job)| job)
    }

    /// The worker for a call: an idle one, else the one with the fewest calls.
    fn next_worker(&self, job: &J) -> Option<WorkerId> {
        let mut best: Option<(usize, WorkerId)> = None;
        for (id, slot) in self.workers.iter().filter(|(_, slot)| slot.accepts_calls()) {
            if slot.in_flight == 0 {
                return Some(*id);
            }
            if best.is_none_or(|(least, _)| slot.in_flight < least) {
                best = Some((slot.in_flight, *id));
            }
        }
        best.filter(|_| !job.is_isolated()).map(|(_, id)| id)
    }

    fn assign(&mut self, id: WorkerId, job: &J) {
        if let Some(slot) = self.workers.get_mut(&id) {
            slot.in_flight += 1;
            slot.calls += 1;
            slot.isolated = job.is_isolated();
            self.maintenance_requested |= slot.may_leave_early();
        }
    }

    /// A worker is ready. The worker that it replaces is stopped now if it is idle.
    pub(crate) fn ready(&mut self, id: WorkerId, now: Instant) -> (NextAction<J>, Option<BackendCommand>) {
        let Some(slot) = self.workers.get_mut(&id) else {
            return (NextAction::Stop(EndCause::Closing), None);
        };
        if slot.phase != Phase::Starting {
            return (self.next(id), None);
        }
        (slot.phase, slot.started_at, slot.idle_since) = (Phase::Working, now, now);
        let predecessor = slot.replaces.take();
        // The next replacement may start, and this worker's idle timeout has to be scheduled.
        self.maintenance_requested = true;
        let command = predecessor.and_then(|predecessor| self.stop_replaced(predecessor));
        (self.next(id), command)
    }

    /// Stops a worker that has been replaced.
    fn stop_replaced(&mut self, id: WorkerId) -> Option<BackendCommand> {
        let slot = self.workers.get_mut(&id).filter(|slot| slot.phase == Phase::Working)?;
        let cause = slot.replace_cause.unwrap_or(EndCause::Requested);
        slot.phase = Phase::Leaving(cause);
        (slot.in_flight == 0).then_some(BackendCommand::Stop(id, cause))
    }

    /// A worker has answered a call.
    pub(crate) fn finished(&mut self, id: WorkerId, now: Instant) -> NextAction<J> {
        self.failed_starts = 0;
        self.call_skipped(id, now)
    }

    /// A worker skips a call that it was given, because the call was cancelled.
    pub(crate) fn call_skipped(&mut self, id: WorkerId, now: Instant) -> NextAction<J> {
        if let Some(slot) = self.workers.get_mut(&id) {
            slot.in_flight = slot.in_flight.saturating_sub(1);
            (slot.idle_since, slot.abandon_at, slot.isolated) = (now, None, false);
        }
        self.next(id)
    }

    /// The next action of a worker.
    pub(crate) fn next(&mut self, id: WorkerId) -> NextAction<J> {
        let too_many = self.shrinking && self.active_workers() > self.settings.max;
        let Some(slot) = self.workers.get_mut(&id) else { return NextAction::Stop(EndCause::Died) };
        if too_many && slot.phase == Phase::Working {
            slot.phase = Phase::Leaving(EndCause::Surplus);
        }
        match slot.phase {
            Phase::Leaving(cause) if slot.in_flight == 0 => {
                // Another worker may be replaced now.
                self.maintenance_requested = true;
                return NextAction::Stop(cause);
            }
            Phase::Abandoned => return NextAction::Stop(EndCause::Timeout),
            Phase::Leaving(_) | Phase::Starting => return NextAction::Wait,
            Phase::Working => {}
        }
        if slot.nears_max_calls() {
            slot.replace_cause = Some(EndCause::Calls);
            self.maintenance_requested = true;
        }
        if slot.is_used_up() && slot.in_flight == 0 {
            slot.phase = Phase::Leaving(EndCause::Calls);
            self.maintenance_requested = true;
            return NextAction::Stop(EndCause::Calls);
        }
        self.maintenance_requested |= slot.may_leave_early();
        match self.next_job(id) {
            Some(job) => NextAction::Run(job),
            None => self.stop_if_closing(id),
        }
    }

    fn stop_if_closing(&mut self, id: WorkerId) -> NextAction<J> {
        match self.workers.get_mut(&id).filter(|slot| slot.is_idle()) {
            Some(slot) if self.closing => {
                slot.phase = Phase::Leaving(EndCause::Closing);
                NextAction::Stop(EndCause::Closing)
            }
            _ => NextAction::Wait,
        }
    }

    /// Sets how many calls a worker may be given in addition to the running one.
    pub(crate) fn set_prefetch(&mut self, id: WorkerId, prefetch: usize) {
        if let Some(slot) = self.workers.get_mut(&id) {
            slot.prefetch = prefetch;
        }
    }

    /// Sets how many calls a worker runs at once.
    pub(crate) fn set_concurrency(&mut self, id: WorkerId, concurrency: usize) {
        if let Some(slot) = self.workers.get_mut(&id) {
            (slot.concurrency, slot.prefetch) = (concurrency, concurrency - 1);
        }
    }

    /// Another call for a busy worker that may prefetch.
    pub(crate) fn prefetch_next(&mut self, id: WorkerId) -> Option<J> {
        self.workers.get(&id).filter(|slot| slot.in_flight > 0)?;
        self.next_job(id)
    }

    /// Requests that a worker is replaced; it runs until its replacement is ready.
    pub(crate) fn replace(&mut self, id: WorkerId, cause: EndCause) {
        if let Some(slot) = self.workers.get_mut(&id).filter(|slot| slot.phase == Phase::Working) {
            slot.replace_cause.get_or_insert(cause);
            self.maintenance_requested = true;
        }
    }

    /// Marks a worker as abandoned: its thread hangs in a call, or its process is being killed. It
    /// gets no more calls, and no longer counts against `max`.
    pub(crate) fn abandon(&mut self, id: WorkerId) {
        if let Some(slot) = self.workers.get_mut(&id) {
            slot.phase = Phase::Abandoned;
            self.maintenance_requested = true;
        }
    }

    /// A call hangs in a worker that still runs others. The worker gets no more calls and no longer
    /// counts against `max`, and another one may start in its place, unless too many workers already
    /// end their last calls beside the others: then it works on. Returns whether it leaves.
    pub(crate) fn drain(&mut self, id: WorkerId) -> bool {
        let allowed = self.leaving_with_calls() < self.max_leaving();
        let Some(slot) = self.workers.get_mut(&id) else { return true };
        if slot.phase == Phase::Working {
            if !allowed {
                return false;
            }
            slot.phase = Phase::Leaving(EndCause::Timeout);
            self.maintenance_requested = true;
        }
        true
    }

    /// The call that a thread runs was cancelled. The thread keeps its slot until `when`, and after
    /// that as long as no more threads may be abandoned.
    pub(crate) fn schedule_abandon(&mut self, id: WorkerId, when: Instant, now: Instant) {
        if let Some(slot) = self.workers.get_mut(&id).filter(|slot| slot.in_flight > 0) {
            slot.abandon_at = Some(when);
            self.abandon_hung(now);
            self.maintenance_requested = true;
        }
    }

    /// A worker has ended. Returns the calls that no worker can run now, and whether the worker
    /// failed before its first call: then the next start is delayed, since it would probably fail
    /// the same way.
    pub(crate) fn worker_ended(&mut self, id: WorkerId, cause: EndCause, now: Instant) -> (Vec<J>, bool) {
        self.maintenance_requested = true;
        let failed_early = |slot: WorkerSlot| slot.calls == 0 && slot.is_serving() && cause.is_failure();
        let failed_early = self.workers.remove(&id).is_some_and(failed_early);
        if failed_early {
            self.back_off(now);
        }
        (self.take_unservable(now), failed_early)
    }

    /// Closes the pool for new calls; queued and running ones are finished. Returns the calls that
    /// waited for queue space.
    pub(crate) fn close(&mut self) -> Vec<J> {
        (self.closing, self.maintenance_requested) = (true, true);
        std::mem::take(&mut self.overflow).into_values().map(|(_, job)| job).collect()
    }

    /// Removes all waiting calls, so that the caller can reject them.
    pub(crate) fn take_all_waiting(&mut self) -> Vec<J> {
        let overflow = std::mem::take(&mut self.overflow).into_values().map(|(_, job)| job);
        std::mem::take(&mut self.queue).into_values().chain(overflow).collect()
    }

    /// Takes the request for immediate maintenance.
    pub(crate) fn take_maintenance_request(&mut self) -> bool {
        std::mem::take(&mut self.maintenance_requested)
    }

    /// Whether no worker is left. Abandoned threads do not count; abandoned processes do, since
    /// they are being killed.
    pub(crate) fn is_empty(&self) -> bool {
        let left = |slot: &WorkerSlot| !(self.threads && slot.phase == Phase::Abandoned);
        !self.workers.values().any(left)
    }

    /// Numbers of workers by state, and of waiting calls.
    pub(crate) fn counts(&self) -> PoolCounts {
        let count = |which: fn(&WorkerSlot) -> bool| self.workers.values().filter(|s| which(s)).count();
        let abandoned = count(|slot| slot.phase == Phase::Abandoned);
        PoolCounts {
            workers: self.workers.len() - abandoned,
            busy: count(|slot| slot.phase != Phase::Abandoned && slot.in_flight > 0),
            starting: self.starting(),
            abandoned,
            serving: count(|slot| slot.phase == Phase::Working),
            min: self.settings.min,
            max: self.settings.max,
            queue: self.queue.len(),
            overflow: self.overflow.len(),
            closing: self.closing,
        }
    }
}

/// Delay after a failed start; it doubles from the first to the second value.
const START_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
