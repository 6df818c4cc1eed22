//! Decides which processes should run, and what to do about it. Pure: processes are ids here, and
//! time is a parameter.
//!
//! [`Reconciler::ended`] and the like report events; [`Reconciler::step`] returns the actions that
//! follow. It may be called at any time, and repeats no action.

use std::time::Duration;

use super::process_group::{ProcessState, SectionState, SupervisedProcess};

/// When processes are started, restarted and given up. Times are since the supervisor's start.
#[derive(Debug, Clone, PartialEq)]
pub struct RestartRules {
    /// A process that ends sooner has failed to start.
    pub start_time: Duration,
    /// After this many failures to start …
    pub start_failures: u32,
    /// … within this window, the section is given up.
    pub start_window: Duration,
    /// The delay of the first restart; it doubles with each.
    pub restart_after: Duration,
    /// The maximum delay.
    pub restart_most: Duration,
    /// A process that was told to stop is killed after this long.
    pub drain: Duration,
}

/// The size of a section.
#[derive(Debug, Clone, PartialEq)]
pub struct SectionSpec {
    /// The section's name.
    pub name: String,
    /// Number of processes at the start.
    pub begin: u32,
    /// Minimum number, …
    pub min: u32,
    /// … and maximum.
    pub max: u32,
    /// An older process is replaced.
    pub max_age: Option<Duration>,
}

impl SectionSpec {
    /// The section with a size of zero.
    pub fn emptied(&self) -> Self {
        Self { begin: 0, min: 0, max: 0, ..self.clone() }
    }
}

/// One run of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u64);

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SupervisorAction {
    /// Start a process of this section.
    Start {
        /// Its id.
        id: ProcessId,
        /// The section's index.
        group: usize,
        /// Its number in the section, from 1: the lowest that is free.
        number: u32,
    },
    /// Tell it to drain and stop.
    Ask(ProcessId, StopReason),
    /// Kill it.
    Kill(ProcessId),
}

/// Why a process is told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Its replacement is up.
    Replaced,
    /// There are more than wanted.
    TooMany,
    /// The supervisor stops.
    RemoteSupport,
}

/// What follows from the end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterEnd {
    /// It was told to stop.
    Expected,
    /// It is restarted after this delay at the earliest.
    Restart(Duration),
    /// Its section failed to start too often: it is given up.
    GivenUp,
}

/// The actual and the desired processes of all sections.
#[derive(Debug)]
pub struct Reconciler {
    rules: RestartRules,
    groups: Vec<SectionState>,
    next: u64,
    generation: u64,
    is_over: bool,
}

impl Reconciler {
    /// Without processes.
    pub fn new(rules: RestartRules, shapes: impl IntoIterator<Item = SectionSpec>) -> Self {
        let groups = shapes.into_iter().map(SectionState::new).collect();
        Self { rules, groups, next: 1, generation: 0, is_over: false }
    }

    /// Sets other rules and sizes. Sections keep their positions; new ones are appended. Processes
    /// of removed sections are drained.
    pub fn reshape(&mut self, rules: RestartRules, shapes: impl IntoIterator<Item = SectionSpec>) {
        self.rules = rules;
        let mut shapes = shapes.into_iter();
        for group in &mut self.groups {
            match shapes.next() {
                Some(shape) => group.reshape(shape),
                None => group.reshape(group.shape.emptied()),
            }
        }
        self.groups.extend(shapes.map(SectionState::new));
    }

    /// The actions to take now.
    pub fn step(&mut self, now: Duration) -> Vec<SupervisorAction> {
        let mut actions = Vec::new();
        for (index, group) in self.groups.iter_mut().enumerate() {
            group.update_ages(now, &self.rules);
            actions.extend(group.overdue(now));
            if self.is_over {
                let all = group.processes.iter_mut().filter(|process| !process.is_ending());
                actions.extend(all.map(|process| process.stop(StopReason::RemoteSupport, now, &self.rules)));
                continue;
            }
            for _ in 0..group.to_start(now, self.generation) {
                let number = group.free_number();
                let id = ProcessId(self.next);
                self.next += 1;
                group.processes.push(SupervisedProcess::new(id, number, now, self.generation, group.round));
                actions.push(SupervisorAction::Start { id, group: index, number });
            }
            actions.extend(group.stop_surplus(now, self.generation, &self.rules));
        }
        actions
    }

    /// A process has ended, or could not be started.
    pub fn ended(&mut self, id: ProcessId, now: Duration) -> AfterEnd {
        for group in &mut self.groups {
            if let Some(at) = group.processes.iter().position(|process| process.id == id) {
                let process = group.processes.remove(at);
                return group.handle_end(&process, now, &self.rules);
            }
        }
        AfterEnd::Expected
    }

    /// Replaces all processes, one by one. Sections that were given up are tried again.
    pub fn refresh(&mut self, now: Duration) {
        self.generation += 1;
        self.groups.iter_mut().for_each(|group| group.reset_failures(now));
    }

    /// Replaces this process.
    pub fn replace(&mut self, id: ProcessId) {
        let mut all = self.groups.iter_mut().flat_map(|group| &mut group.processes);
        if let Some(process) = all.find(|process| process.id == id) {
            process.stale = true;
        }
    }

    /// Adds a process to each section, up to its maximum.
    pub fn more(&mut self) {
        self.groups.iter_mut().for_each(SectionState::more);
    }

    /// Adds a process to one section. False if it has its maximum.
    pub fn more_of(&mut self, group: usize) -> bool {
        self.change(group, SectionState::more)
    }

    /// Removes a process from one section. False if it has its minimum.
    pub fn fewer_of(&mut self, group: usize) -> bool {
        self.change(group, SectionState::fewer)
    }

    fn change(&mut self, group: usize, change: fn(&mut SectionState)) -> bool {
        let Some(group) = self.groups.get_mut(group) else { return false };
        let before = group.wanted;
        change(group);
        group.wanted != before
    }

    /// The desired number of processes of a section.
    pub fn wanted(&self, group: usize) -> u32 {
        self.groups.get(group).map_or(0, |group| group.wanted)
    }

    /// Removes a process from each section, down to its minimum.
    pub fn fewer(&mut self) {
        self.groups.iter_mut().for_each(SectionState::fewer);
    }

    /// Drains and stops all processes.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// Kills processes that were told to stop this long from now, if that is sooner.
    pub fn shorten_drain(&mut self, now: Duration, grace: Duration) {
        for process in self.groups.iter_mut().flat_map(|group| &mut group.processes) {
            if let ProcessState::Ending { until, .. } = &mut process.state {
                *until = (*until).min(now + grace);
            }
        }
    }

    /// The next time at which an action may be due without an event.
    pub fn due(&self) -> Option<Duration> {
        let starts = |group: &SectionState| {
            Some(group.not_before).filter(|_| !self.is_over && group.needs_start(self.generation))
        };
        let due = self.groups.iter();
        due.flat_map(|group| group.next_changes(&self.rules).chain(starts(group))).min()
    }

    /// Whether all processes are up and current, or their sections were given up.
    pub fn is_settled(&self) -> bool {
        self.groups.iter().all(|group| group.is_settled(self.generation))
    }

    /// Whether no process is left.
    pub fn is_empty(&self) -> bool {
        self.groups.iter().all(|group| group.processes.is_empty())
    }

    /// Whether no process is left, and none will be started.
    pub fn cannot_run(&self) -> bool {
        // A section with a size of zero may grow later.
        self.is_empty() && self.groups.iter().all(|group| group.given_up || group.shape.max == 0)
    }

    /// How many processes are up, and how many are wanted.
    pub fn count(&self) -> (usize, u32) {
        let up = |process: &&SupervisedProcess| matches!(process.state, ProcessState::Up);
        let all = self.groups.iter().flat_map(|group| &group.processes);
        (all.filter(up).count(), self.groups.iter().map(|group| group.wanted).sum())
    }
}
