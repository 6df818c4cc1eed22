//! The processes of one section, for [`super::reconciler`]. Pure.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use longshore::{exponential_delay, half_jitter};

use super::reconciler::{ExitDecision, ProcessId, RestartRules, SectionSpec, StopReason, SupervisorAction};

/// The processes of one section.
#[derive(Debug)]
pub(super) struct SectionState {
    pub(super) spec: SectionSpec,
    pub(super) wanted: u32,
    pub(super) processes: Vec<SupervisedProcess>,
    pub(super) given_up: bool,
    /// Increased by each failure, so that processes which fail together count as one.
    pub(super) round: u64,
    /// Times of recent failures to start.
    failures: Vec<Duration>,
    /// Consecutive unexpected ends, each soon after the start.
    streak: u32,
    /// The earliest time of the next start.
    pub(super) not_before: Duration,
}

/// One process.
#[derive(Debug)]
pub(super) struct SupervisedProcess {
    pub(super) id: ProcessId,
    pub(super) state: ProcessState,
    /// To be replaced, whatever its generation.
    pub(super) stale: bool,
    number: u32,
    generation: u64,
    round: u64,
    since: Duration,
}

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessState {
    /// Not yet up for `min_uptime`.
    Starting,
    /// Up for at least `min_uptime`.
    Up,
    /// Told to stop; killed at `until`.
    Ending { until: Duration, killed: bool },
}

impl SupervisedProcess {
    pub(super) fn new(id: ProcessId, number: u32, since: Duration, generation: u64, round: u64) -> Self {
        Self { id, state: ProcessState::Starting, stale: false, number, generation, round, since }
    }

    pub(super) fn is_ending(&self) -> bool {
        matches!(self.state, ProcessState::Ending { .. })
    }

    /// Tells the process to stop, and kills it after `limit`.
    pub(super) fn stop(&mut self, why: StopReason, now: Duration, limit: Duration) -> SupervisorAction {
        self.state = ProcessState::Ending { until: now + limit, killed: false };
        SupervisorAction::Terminate(self.id, why)
    }

    fn is_old(&self, generation: u64) -> bool {
        self.stale || self.generation < generation
    }
}

impl SectionState {
    pub(super) fn new(spec: SectionSpec) -> Self {
        Self {
            wanted: spec.begin,
            spec,
            processes: Vec::new(),
            given_up: false,
            round: 0,
            failures: Vec::new(),
            streak: 0,
            not_before: Duration::ZERO,
        }
    }

    /// Sets another size. A number that was changed by hand stays unless the configured one
    /// changed.
    pub(super) fn set_spec(&mut self, spec: SectionSpec) {
        if spec.begin != self.spec.begin {
            self.wanted = spec.begin;
        }
        self.wanted = self.wanted.clamp(spec.min, spec.max);
        self.spec = spec;
    }

    pub(super) fn scale_up(&mut self) {
        self.wanted = (self.wanted + 1).min(self.spec.max);
    }

    pub(super) fn scale_down(&mut self) {
        self.wanted = self.wanted.saturating_sub(1).max(self.spec.min);
    }

    /// Updates states by age: a process becomes up, and later stale.
    pub(super) fn update_ages(&mut self, now: Duration, rules: &RestartRules) {
        for process in &mut self.processes {
            let age = now.saturating_sub(process.since);
            if process.state == ProcessState::Starting && age >= rules.min_uptime {
                process.state = ProcessState::Up;
            }
            process.stale |= self.spec.max_age.is_some_and(|max_age| age >= max_age);
        }
    }

    /// Kills processes that did not stop in time.
    pub(super) fn overdue(&mut self, now: Duration) -> Vec<SupervisorAction> {
        let mut actions = Vec::new();
        for process in &mut self.processes {
            if let ProcessState::Ending { until, killed: killed @ false } = &mut process.state
                && *until <= now
            {
                *killed = true;
                actions.push(SupervisorAction::Kill(process.id));
            }
        }
        actions
    }

    /// How many processes to start now. One above the size if a process is to be replaced: the new
    /// one starts before the old one stops.
    pub(super) fn to_start(&self, now: Duration, generation: u64) -> usize {
        if self.given_up || now < self.not_before {
            return 0;
        }
        self.lacking(generation)
    }

    fn lacking(&self, generation: u64) -> usize {
        let here = self.active().count();
        let wanted = self.wanted as usize;
        let replaces = self.active().any(|process| process.is_old(generation));
        let is_calm = self.processes.iter().all(|process| process.state == ProcessState::Up);
        match here {
            _ if here < wanted => wanted - here,
            _ if here == wanted && replaces && is_calm => 1,
            _ => 0,
        }
    }

    /// Stops one process if there are more than wanted, old ones first; but only once its
    /// replacement is up.
    pub(super) fn stop_surplus(
        &mut self,
        now: Duration,
        generation: u64,
        rules: &RestartRules,
    ) -> Option<SupervisorAction> {
        let here = self.active().count();
        let is_young = self.active().any(|process| process.state == ProcessState::Starting);
        if here <= self.wanted as usize {
            return None;
        }
        let old = self.active().filter(|process| process.is_old(generation)).map(|old| old.id).min();
        let (id, why) = match old {
            Some(_) if is_young => return None,
            Some(id) => (id, StopReason::Replaced),
            None => (self.active().map(|process| process.id).max()?, StopReason::TooMany),
        };
        let limit = self.drain_limit(rules);
        let process = self.processes.iter_mut().find(|process| process.id == id)?;
        Some(process.stop(why, now, limit))
    }

    /// How long a process may take to stop.
    pub(super) fn drain_limit(&self, rules: &RestartRules) -> Duration {
        self.spec.drain_timeout.unwrap_or(rules.drain_timeout)
    }

    /// The processes that were not told to stop.
    fn active(&self) -> impl Iterator<Item = &SupervisedProcess> {
        self.processes.iter().filter(|process| !process.is_ending())
    }

    pub(super) fn free_number(&self) -> u32 {
        let taken = |number: &u32| self.processes.iter().any(|process| process.number == *number);
        (1..).find(|number| !taken(number)).unwrap_or(u32::MAX)
    }

    /// Handles the end of a process.
    pub(super) fn handle_end(
        &mut self,
        process: &SupervisedProcess,
        now: Duration,
        rules: &RestartRules,
    ) -> ExitDecision {
        if process.is_ending() {
            return ExitDecision::Expected;
        }
        let again = |section: &Self| ExitDecision::Restart(section.not_before.saturating_sub(now));
        if process.round < self.round {
            return if self.given_up { ExitDecision::GivenUp } else { again(self) };
        }
        self.round += 1;
        let age = now.saturating_sub(process.since);
        if age >= rules.restart_max {
            self.streak = 0;
        }
        self.streak += 1;
        self.not_before = now + self.wait(rules);
        if age < rules.min_uptime {
            self.failures.push(now);
            self.failures.retain(|at| now.saturating_sub(*at) <= rules.start_window);
            if self.failures.len() >= rules.start_failures as usize {
                self.given_up = true;
                return ExitDecision::GivenUp;
            }
        }
        again(self)
    }

    /// The restart delay: doubles with each consecutive restart, with a jitter of up to half, so
    /// that sections which failed together do not restart together.
    fn wait(&self, rules: &RestartRules) -> Duration {
        let doublings = self.streak.saturating_sub(1);
        let wait = exponential_delay(rules.restart_base, rules.restart_max, doublings);
        let mut hasher = DefaultHasher::new();
        (&self.spec.name, self.round, std::process::id()).hash(&mut hasher);
        half_jitter(wait, hasher.finish() as f64 / u64::MAX as f64)
    }

    /// Resets failures and delays, so that starts are tried at once.
    pub(super) fn reset_failures(&mut self, now: Duration) {
        self.given_up = false;
        self.failures.clear();
        self.streak = 0;
        self.round += 1;
        self.not_before = self.not_before.min(now);
    }

    /// Whether a process is to be started as soon as the delay allows.
    pub(super) fn needs_start(&self, generation: u64) -> bool {
        !self.given_up && self.lacking(generation) > 0
    }

    /// The times at which processes change their states by themselves.
    pub(super) fn next_changes(&self, rules: &RestartRules) -> impl Iterator<Item = Duration> {
        self.processes.iter().filter_map(|process| match process.state {
            ProcessState::Starting => Some(process.since + rules.min_uptime),
            ProcessState::Up if process.stale => None,
            ProcessState::Up => Some(process.since + self.spec.max_age?),
            ProcessState::Ending { killed: true, .. } => None,
            ProcessState::Ending { until, .. } => Some(until),
        })
    }

    /// Whether all processes are up and current, or the section was given up.
    pub(super) fn is_settled(&self, generation: u64) -> bool {
        let is_done =
            |process: &SupervisedProcess| process.state == ProcessState::Up && !process.is_old(generation);
        let is_whole = self.processes.len() == self.wanted as usize;
        let rests = self.processes.iter().all(|process| process.state == ProcessState::Up);
        (self.given_up && rests) || (is_whole && self.processes.iter().all(is_done))
    }
}
