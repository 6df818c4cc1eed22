//! Maintenance of the workers: start, replace, abandon and stop them.

use std::time::{Duration, Instant};

use super::worker_slot::{EndCause, Phase, WorkerSlot};
use super::{BackendCommand, START_BACKOFF, ScheduledCall, WorkerId, WorkerScheduler};

impl<J: ScheduledCall> WorkerScheduler<J> {
    /// Runs maintenance: starts missing workers, replaces workers that are due, stops idle ones.
    /// Few workers are replaced at a time, and each replacement is ready before the old worker
    /// stops.
    pub(crate) fn maintain(&mut self, now: Instant) -> Vec<BackendCommand> {
        let commands = self.commands(now);
        self.maintenance_requested = false;
        commands
    }

    fn commands(&mut self, now: Instant) -> Vec<BackendCommand> {
        let mut commands = Vec::new();
        self.abandon_hung(now);
        self.report_slow_starts(&mut commands, now);
        self.release_used_up();
        if self.closing {
            // Queued calls are still run, if need be by a new worker.
            commands.extend(
                (!self.has_serving_worker())
                    .then(|| self.add_if_needed(0, now))
                    .flatten()
                    .map(BackendCommand::Start),
            );
            self.stop_idle_workers(&mut commands, EndCause::Closing, |_| true);
            return commands;
        }
        while self.active_workers() < self.settings.min && self.may_start(now) {
            commands.push(BackendCommand::Start(self.add_slot(None, now)));
        }
        while let Some(id) = self.add_if_needed(0, now) {
            commands.push(BackendCommand::Start(id));
        }
        self.start_replacements(&mut commands, now);
        self.stop_after_idle_timeout(&mut commands, now);
        self.stop_surplus(&mut commands);
        commands
    }

    /// Starts workers up to the maximum.
    pub(crate) fn start_to_max(&mut self, now: Instant) -> Vec<BackendCommand> {
        let mut commands = Vec::new();
        while self.active_workers() < self.settings.max && self.may_start(now) && !self.closing {
            commands.push(BackendCommand::Start(self.add_slot(None, now)));
        }
        commands
    }

    /// When maintenance has to run again, if nothing happens before. `None`: never.
    pub(crate) fn next_maintenance(&self, now: Instant) -> Option<Instant> {
        let settings = &self.settings;
        let spare = self.active_workers() > settings.min && !self.closing;
        let slots = self.workers.values().flat_map(|slot| {
            let idle_since = if slot.in_flight == 0 { slot.idle_since } else { now };
            let idle = idle_since.checked_add(settings.idle_timeout);
            let late = self.threads && slot.phase == Phase::Starting && !slot.slow_start;
            let working = slot.phase == Phase::Working;
            [
                idle.filter(|_| spare && working),
                slot.expires_at().filter(|_| working && slot.replace_cause.is_none()),
                slot.abandon_at.filter(|when| *when > now),
                slot.started_at.checked_add(settings.start_timeout).filter(|_| late),
            ]
        });
        let start = self.start_not_before.filter(|when| *when > now);
        slots.flatten().chain(start).min()
    }

    /// Workers that count against `max`: not stopping ones, and not a replacement beside the
    /// worker that it replaces.
    pub(super) fn active_workers(&self) -> usize {
        let stays = |id: &WorkerId| self.workers.get(id).is_some_and(WorkerSlot::is_serving);
        let counts = |slot: &&WorkerSlot| slot.is_serving() && !slot.replaces.as_ref().is_some_and(stays);
        self.workers.values().filter(counts).count()
    }

    pub(super) fn starting(&self) -> usize {
        self.workers.values().filter(|slot| slot.phase == Phase::Starting).count()
    }

    fn abandoned(&self) -> usize {
        self.workers.values().filter(|slot| slot.phase == Phase::Abandoned).count()
    }

    /// Workers that get no more calls, and still run their last ones beside `max` others.
    pub(super) fn leaving_with_calls(&self) -> usize {
        self.workers.values().filter(|slot| slot.is_leaving_with_calls()).count()
    }

    /// How many workers may end their last calls beside `max` others.
    pub(super) fn max_leaving(&self) -> usize {
        self.settings.max_abandoned.max(self.replacements_at_once())
    }

    fn replacements_at_once(&self) -> usize {
        (self.settings.max / 10).max(1)
    }

    pub(super) fn has_serving_worker(&self) -> bool {
        self.workers.values().any(WorkerSlot::is_serving)
    }

    /// Whether a worker would be started if `more` calls were added to the waiting ones.
    pub(super) fn needs_worker(&self, more: usize, now: Instant) -> bool {
        self.waiting() + more > self.starting()
            && self.active_workers() < self.settings.max
            && self.may_start(now)
    }

    /// Adds a worker to start, if the waiting calls and `more` others need one.
    pub(super) fn add_if_needed(&mut self, more: usize, now: Instant) -> Option<WorkerId> {
        self.needs_worker(more, now).then(|| self.add_slot(None, now))
    }

    fn may_start(&self, now: Instant) -> bool {
        self.start_not_before.is_none_or(|time| time <= now)
    }

    fn add_slot(&mut self, replaces: Option<WorkerId>, now: Instant) -> WorkerId {
        let id = self.next_id;
        self.next_id += 1;
        // Schedules the check of its start timeout.
        self.maintenance_requested = true;
        self.workers.insert(id, WorkerSlot::new(id, &self.settings, replaces, now));
        id
    }

    /// A worker could not be started. Returns the calls that no worker can run now.
    pub(crate) fn start_failed(&mut self, id: WorkerId, now: Instant) -> Vec<J> {
        self.maintenance_requested = true;
        // A slow start was already counted as a failure.
        if !self.workers.remove(&id).is_some_and(|slot| slot.slow_start) {
            self.back_off(now);
        }
        self.take_unservable(now)
    }

    /// Delays the next start, longer after each failure.
    pub(super) fn back_off(&mut self, now: Instant) {
        let wait = START_BACKOFF.0.saturating_mul(1 << self.failed_starts.min(10)).min(START_BACKOFF.1);
        self.failed_starts = self.failed_starts.saturating_add(1);
        self.start_not_before = Some(now + wait);
    }

    /// Removes all waiting calls if there is no worker and none may be started yet.
    pub(crate) fn take_unservable(&mut self, now: Instant) -> Vec<J> {
        match self.has_serving_worker() || self.may_start(now) {
            true => Vec::new(),
            false => self.take_all_waiting(),
        }
    }

    /// Abandons threads that hang in cancelled calls, up to the limit of abandoned threads.
    pub(super) fn abandon_hung(&mut self, now: Instant) {
        let mut allowed = self.settings.max_abandoned.saturating_sub(self.abandoned());
        for slot in self.workers.values_mut() {
            let over = slot.abandon_at.is_some_and(|when| when <= now) && slot.in_flight > 0;
            if allowed > 0 && over && slot.phase != Phase::Abandoned {
                slot.phase = Phase::Abandoned;
                allowed -= 1;
            }
        }
    }

    /// Reports threads that take too long to start. They cannot be killed; the process backend
    /// enforces its start timeout itself.
    fn report_slow_starts(&mut self, commands: &mut Vec<BackendCommand>, now: Instant) {
        let limit = self.settings.start_timeout;
        let mut allowed = self.settings.max_abandoned.saturating_sub(self.abandoned());
        let before = commands.len();
        let starting = |slot: &WorkerSlot| slot.phase == Phase::Starting && !slot.slow_start;
        for (id, slot) in &mut self.workers {
            if self.threads && starting(slot) && now.duration_since(slot.started_at) >= limit {
                slot.slow_start = true;
                commands.push(BackendCommand::ReportSlowStart(*id));
                if allowed > 0 {
                    slot.phase = Phase::Abandoned;
                    allowed -= 1;
                }
            }
        }
        if commands.len() > before {
            self.back_off(now);
        }
    }

    /// Workers that were given all their calls and have capacity to spare no longer count against
    /// `max`: else one long call would keep all others waiting.
    fn release_used_up(&mut self) {
        let allowed = self.max_leaving().saturating_sub(self.leaving_with_calls());
        for slot in self.workers.values_mut().filter(|slot| slot.may_leave_early()).take(allowed) {
            slot.phase = Phase::Leaving(EndCause::Calls);
        }
    }

    fn start_replacements(&mut self, commands: &mut Vec<BackendCommand>, now: Instant) {
        for slot in self.workers.values_mut().filter(|slot| slot.phase == Phase::Working) {
            if slot.expires_at().is_some_and(|end| end <= now) {
                slot.replace_cause.get_or_insert(EndCause::Age);
            }
        }
        let underway: Vec<WorkerId> = self.workers.values().filter_map(|slot| slot.replaces).collect();
        let due = |(id, slot): &(&WorkerId, &WorkerSlot)| {
            slot.replace_cause.is_some() && slot.phase == Phase::Working && !underway.contains(id)
        };
        let due: Vec<WorkerId> = self.workers.iter().filter(due).map(|(id, _)| *id).collect();
        let at_once = self.replacements_at_once().saturating_sub(underway.len());
        // Each replaced worker may become one that leaves with calls.
        let may_leave = self.max_leaving().saturating_sub(self.leaving_with_calls() + underway.len());
        for id in due.into_iter().take(at_once.min(may_leave)) {
            if self.may_start(now) {
                commands.push(BackendCommand::Start(self.add_slot(Some(id), now)));
                self.back_off_if_failed_early(id, now);
            }
        }
    }

    /// If a worker asks for its replacement, or exceeds the memory limit, before its first call,
    /// its successor probably will too. So the next start is delayed, longer each time.
    fn back_off_if_failed_early(&mut self, predecessor: WorkerId, now: Instant) {
        let failed_early = |slot: &WorkerSlot| {
            slot.calls == 0 && matches!(slot.replace_cause, Some(EndCause::Requested | EndCause::Memory))
        };
        if self.workers.get(&predecessor).is_some_and(failed_early) {
            self.back_off(now);
        }
    }

    fn stop_after_idle_timeout(&mut self, commands: &mut Vec<BackendCommand>, now: Instant) {
        let limit = self.settings.idle_timeout;
        let spare = self.active_workers().saturating_sub(self.settings.min);
        let idle = |slot: &WorkerSlot| slot.is_idle() && now.duration_since(slot.idle_since) >= limit;
        let idle: Vec<WorkerId> =
            self.workers.iter().rev().filter(|(_, slot)| idle(slot)).map(|(id, _)| *id).take(spare).collect();
        self.stop_idle_workers(commands, EndCause::Idle, |id| idle.contains(&id));
    }

    fn stop_idle_workers(
        &mut self,
        commands: &mut Vec<BackendCommand>,
        cause: EndCause,
        which: impl Fn(WorkerId) -> bool,
    ) {
        for (id, slot) in &mut self.workers {
            if slot.is_idle() && which(*id) {
                slot.phase = Phase::Leaving(cause);
                commands.push(BackendCommand::Stop(*id, cause));
            }
        }
    }

    /// Changes the number of workers. Surplus workers stop when they are idle.
    pub(crate) fn resize(&mut self, min: usize, max: usize) {
        (self.settings.min, self.settings.max) = (min, max);
        self.shrinking = self.active_workers() > max;
        self.maintenance_requested = true;
    }

    fn stop_surplus(&mut self, commands: &mut Vec<BackendCommand>) {
        if !self.shrinking {
            return;
        }
        let surplus = self.active_workers().saturating_sub(self.settings.max);
        let free = self.workers.iter().rev().filter(|(_, slot)| slot.is_idle()).map(|(id, _)| *id);
        let free: Vec<WorkerId> = free.take(surplus).collect();
        self.stop_idle_workers(commands, EndCause::Surplus, |id| free.contains(&id));
        self.shrinking = self.active_workers() > self.settings.max;
    }
}

/// Longest time between two runs of maintenance.
pub(crate) const MAX_MAINTENANCE_INTERVAL: Duration = Duration::from_secs(3600);
